//! The shell of the gpu-inventory service: consumers, gRPC, projection.
