//! The fixtures against the real thing.

#![allow(clippy::unwrap_used)]

mod nats;
mod process;
