//! The executor over the broker in memory (and, where that differs, a real one): reports become attempts, logs become archives, silence becomes a loss.
#![allow(clippy::unwrap_used)]

mod logs;
mod losses;
mod reports;
mod stage;
