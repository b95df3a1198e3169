//! The shell of the tracker service: consumers, gRPC, projection.
