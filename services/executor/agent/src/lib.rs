//! The node's side of the executor: prepares and runs the members that the scheduler assigned, and takes over what they report.
//!
//! It decides nothing about jobs and never writes the ledger: it obeys assignments, keeps its leases, and says what it saw. It never starts
//! a member twice, never lets one outlive its lease, and never acknowledges what is not on its disk.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod blob;
pub mod boot;
mod durable;
pub mod node;
pub mod prepare;
mod record;
pub mod shim;
pub mod socket;
pub mod spool;
pub mod stage;
