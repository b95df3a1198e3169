//! Metrics: from clients into METRICS, from METRICS into the series store, and back to readers.

mod consumer;
mod ingest;
mod publisher;
mod reads;
mod sessions;
mod validate;

pub(crate) use consumer::Consumer;
pub use consumer::{ConsumerConfig, Reached};
pub(crate) use ingest::Ingest;
pub(crate) use publisher::Publisher;
pub(crate) use reads::{Reads, Searchable, Wanted, newest};
pub(crate) use sessions::Sessions;
pub(crate) use validate::{Checked, check};
