//! The executor over the broker in memory: reports become attempts, logs become archives, silence becomes a loss.
#![allow(clippy::unwrap_used)]

mod logs;
mod losses;
mod reports;
mod stage;
