//! The scheduler's rules, given / when / then, on a ledger in memory.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod admission;
mod after;
mod after_graphs;
mod arrays;
mod capacity;
mod cases;
mod checker;
mod clock;
mod complaints;
mod deadlines;
mod forecasts;
mod gangs;
mod holds;
mod hostile;
mod orders;
mod pack;
mod placing;
mod plans;
mod preemption;
mod properties;
mod queues;
mod racks;
mod requests;
mod retries;
mod roles;
mod scale;
mod sharing;
mod small_first;
mod taints;
mod trials;
mod world;
