//! The replays on traces that are written here: nothing needs the published ones.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod backfill;
mod jct;
mod pack;
mod shares;
