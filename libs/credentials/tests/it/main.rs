//! What credentials promise, on a real nats-server.
#![allow(clippy::unwrap_used)]

mod cluster;
mod mirrors;
mod resolving;
mod servers;
