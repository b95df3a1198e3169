//! The registry over a broker: clients over gRPC on one side, the tracker's facts played on the other.
#![allow(clippy::unwrap_used)]

mod approvals;
mod keys;
mod races;
mod reads;
mod real;
mod registering;
mod snapshots;
mod stage;
mod watched;
