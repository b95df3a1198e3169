//! The pure domain of gpu-inventory: what nodes have, whether they may be used, and what operators asked.
//!
//! Never reads a clock or a stream. It says that a node is not heard of any more; it releases nothing (only the executor does).

mod decide;
mod state;
mod taints;

pub use decide::{Reported, decide};
pub use state::{Inventory, Mark, NodeState, PendingRequest, RequestKind};

#[cfg(test)]
mod tests;
