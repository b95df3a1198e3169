//! The sweep service over a broker: clients over gRPC on one side, the scheduler, the tracker and the workers played on the other.
#![allow(clippy::unwrap_used)]

mod doors;
mod real;
mod stage;
mod trials;
