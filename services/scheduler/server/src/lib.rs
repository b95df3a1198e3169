//! The shell of the scheduler service: consumers, gRPC, projection.
