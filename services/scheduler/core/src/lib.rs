//! The pure domain of the scheduler: which job runs where, when it is stopped, and how its attempts end.
//!
//! [`State`] is a fold of the ledger and nothing else: whoever replays the same prefix holds the same claims, the same order, the same
//! assignments. [`decide`] looks at a state and at [`Facts`] (elapsed time, the view, the policy) and answers with events; [`assignments`]
//! says what every node should hold; [`admit`] and [`explain`] tell people no, and why. [`plan`] says when the waiting jobs' turns come, [`pack`]
//! chooses nodes so that few GPUs are stranded.
//!
//! It never reads a clock, never draws randomness, never does I/O, and never releases a claim by itself: only a member's `exited` or the
//! attempt's `lost`, written by the executor, does.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admit;
mod after;
mod assign;
mod capacity;
mod decide;
mod explain;
mod facts;
pub mod pack;
pub mod plan;
mod preemption;
mod state;

pub use admit::{Refusal, admit, can_close, can_configure};
pub use after::{can_follow, order, outlook_after};
pub use assign::{assignment, assignments};
pub use capacity::{Asked, Capacity, DEMANDS_MAX, Demand, Help, Idle, Kind, capacity};
pub use decide::{Forecast, Memory, Ruling, decide};
pub use explain::{Explanation, PoolRoom, explain, outlook};
pub use facts::{Facts, Policy, Timeline};
pub use preemption::{Preemption, preemptions};
pub use state::{
    Answer, Ask, Attempt, Budget, Chain, Checkpoint, Claim, ClaimKey, Claimed, DEPTH_MAX, EndedJob, Ending, Holding, How, Job, Launch,
    Mark, Member, MemberStage, Node, PastAttempt, Queue, Request, Stage, Stamp, State, Stop, Urgency, Wanted,
};

/// The service's name, as in its subjects, its term and its events' source.
pub const SERVICE: &str = "scheduler";

/// The queue that exists without being configured: weight 1, no quota.
pub const DEFAULT_QUEUE: &str = "default";
