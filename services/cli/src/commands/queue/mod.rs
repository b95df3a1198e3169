//! Verbs of `queue`: weights, quotas, holds.

pub mod capacity;
pub mod list;
pub mod set;
