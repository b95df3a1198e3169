//! The broker on NATS JetStream.
