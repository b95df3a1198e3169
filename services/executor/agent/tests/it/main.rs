//! Tests of the agent with real processes and real disks.
#![allow(clippy::unwrap_used)]

mod agent;
mod disk;
mod node;
mod shim;
mod simulated;
mod spool;
