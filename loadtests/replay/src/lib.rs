//! Published traces, replayed in virtual time through the scheduler's pure core, beside what is published of them.
//!
//! No server, no clock: the same trace gives the same figures. The traces themselves are not part of the repository ([`trace`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod backfill;
pub mod cycle;
pub mod jct;
pub mod pack;
pub mod report;
pub mod trace;
