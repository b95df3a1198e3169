//! The tracker whole, spoken to over its port: on the memory broker first, then on a real nats-server and a real Cassandra.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod door;
mod events;
mod ingest;
mod nats;
mod reports;
mod runs;
mod seals;
mod search;
mod shared;
mod views;
mod webhooks;
mod world;
