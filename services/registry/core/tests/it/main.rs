//! The registry's rules as stories, and under random histories of writers that know only what they have read.
#![allow(clippy::unwrap_used)]

mod approving;
mod lineage;
mod naming;
mod properties;
mod registering;
mod serving;
mod world;
