//! The scheduler over a broker: clients over gRPC on one side, agents and the executor played on the other.
#![allow(clippy::unwrap_used)]

mod after;
mod arrays;
mod assignments;
mod capacity;
mod decisions;
mod hands;
mod hostile;
mod leaders;
mod life;
mod measures;
mod queues;
mod reads;
mod real;
mod requests;
mod roles;
mod sharing;
mod stage;
mod submissions;
mod trials;
