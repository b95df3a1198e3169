//! The node's side of the executor: prepares and runs the members that the scheduler assigned, and takes over what they report.
//!
//! It decides nothing about jobs and never writes the ledger: it obeys assignments, keeps its leases, and says what it saw. It never starts
//! a member twice, never lets one outlive its lease, and never acknowledges what is not on its disk.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
mod aside;
pub mod blob;
pub mod boot;
pub mod config;
mod core;
mod durable;
mod hands;
mod last_words;
mod members;
pub mod node;
mod out_of_memory;
pub mod prepare;
mod record;
pub mod shim;
mod ship;
mod simulated;
pub mod socket;
pub mod spool;
pub mod stage;
mod tail;

pub use agent::run;
pub use aside::AsideLimits;
pub use blob::{BlobAccess, BlobError};
pub use config::{AgentConfig, AgentError, Mode, OnShutdown, SpoolSizes, Timings};
pub use node::ShapeSource;
pub use shim::shim_main;
