//! Verbs of `queue`: weights, quotas, holds.

pub mod list;
pub mod set;
