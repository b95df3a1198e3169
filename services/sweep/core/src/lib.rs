//! The pure domain of sweep: which point is tried next, which trial is ended early, what came of each, which is best.
//!
//! [`Sweeps`] is a fold of the ledger; [`check`] says no to what cannot be searched; [`decide`] closes and prunes trials; [`drafts`] says which
//! points are wanted now. A point is fixed by the space, the seed, the trial's number and what the ledger holds: whoever replays it gets the
//! same. It never reads a clock or a stream, draws no randomness of its own, and acts on sealed runs alone.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod check;
mod decide;
mod draw;
mod grid;
mod job;
mod pruner;
mod sampler;
mod space;
mod state;

pub use check::{PARALLEL_MAX, PARAMETERS_MAX, RUNGS_MAX, TRIALS_MAX, check};
pub use decide::{DECISIONS_MAX, DRAFTS_MAX, Draft, Seen, decide, drafts};
pub use grid::GRID_POINTS_MAX;
pub use job::{SWEEP_LABEL, TRIAL_LABEL, trial_job};
pub use pruner::STARTUP_DEFAULT;
pub use sampler::{Suggestion, suggest};
pub use space::sample_point;
pub use state::{Counts, Sealed, Standing, Stop, Sweep, Sweeps, Trial, TrialState};

/// The service's name, as in its subjects, its term and its events' source.
pub const SERVICE: &str = "sweep";
