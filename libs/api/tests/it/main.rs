//! One port, spoken to as clients speak: gRPC, JSON over HTTP/1.1 and HTTP/2, reflection, health, pages.

#![allow(clippy::unwrap_used)]

mod client;
mod door;
mod fixture;
mod gate;
mod grpc;
mod tls;
mod traces;
