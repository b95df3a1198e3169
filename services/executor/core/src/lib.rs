//! The pure domain of the executor: what the nodes report, checked against what was placed, folded into attempts; and who is lost.
//!
//! Never reads a clock or a stream: reports, beats and archives come in as facts, decisions go out as events.

mod losses;
mod reports;
mod state;

pub use losses::{due_fences, losses};
pub use reports::{Refused, Reported, fold_reports};
pub use state::{AttemptState, Executor, MemberPhase, MemberState, NodeState};

#[cfg(test)]
mod tests;
