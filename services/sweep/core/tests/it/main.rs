//! The pure sweep: what is let in, which points are tried, what comes of them.
#![allow(clippy::unwrap_used)]

mod checks;
mod life;
mod points;
mod properties;
mod world;
