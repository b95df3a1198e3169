//! The shell of the executor service: consumers, gRPC, projection.
