//! Generated gRPC code, the JSON door, the typed client.
