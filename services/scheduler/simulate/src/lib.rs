//! What would be: the scheduler's own core over a declared cluster and a workload, in virtual time, under one policy or another.
//!
//! [`simulate`] plays the leader, the executor and the inventory: it writes the events that they would write, folds them into the scheduler's
//! [`State`](footplate_scheduler_core::State), asks [`decide`](footplate_scheduler_core::decide) until it has nothing more to say, and moves the clock to
//! the next thing that happens. What comes out ([`Outcome`]) is how long jobs waited and took, what was in use, who was stopped, and how far each queue was
//! from what it was entitled to; [`page`] draws it.
//!
//! It reads no file, no clock and no randomness of its own: the same scenario, policy and habits give the same outcome.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod book;
mod chart;
mod cluster;
mod dice;
mod fair;
mod knobs;
mod outcome;
mod page;
mod scenario;
mod trace;
mod workload;
mod world;

pub use cluster::{Amount, Cluster, GpuGroup, NodeGroup, QueueGroup, Size, Span};
pub use footplate_scheduler_core::Policy;
pub use knobs::{KNOBS, policy};
pub use outcome::{Never, Outcome, Point, Spread, Stay, Use};
pub use page::page;
pub use scenario::{Arrival, Scenario};
pub use trace::trace;
pub use workload::{JobGroup, Workload};
pub use world::{Habits, Stuck, simulate};

/// The `apiVersion` of the files.
pub const API_VERSION: &str = "footplate/v1";
