//! Tests of the agent with real processes and real disks.
#![allow(clippy::unwrap_used)]

mod shim;
mod spool;
