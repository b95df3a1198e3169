//! The series store: metric points of runs and samples of nodes, packed in chunks, never a row a point.
//!
//! [`SeriesStore`] is the port; [`embedded`] is the back end that lives in the data folder, [`scylla`] the one in a cluster. Writers hand in batches as they stand in the
//! METRICS stream; readers get points in the order of arrival, reduced samples that say so, and views over attempts. What is newer than
//! the store is held by a [`Tail`], and [`Live`] reads both as one.
//!
//! This crate never talks to a broker, reads no clock, draws no randomness, and never reports a batch stored before it is durable.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch;
mod chunk;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
mod error;
mod key;
mod live;
mod port;
mod reduce;
mod rows;
pub mod scylla;
mod stats;
mod tail;
mod view;

pub use batch::{IngestBatch, Ingested, Noted, RefusedBatch, SessionKey, SessionProgress};
pub use error::SeriesError;
pub use key::{Point, SHARDS, SeriesKey, SeriesSource};
pub use live::Live;
pub use port::{Feed, HistoryPage, HistoryQuery, MAX_PAGE_POINTS, PageToken, Pending, SeriesStore, SourceState};
pub use reduce::{MIN_SAMPLE_POINTS, Sample, reduce};
pub use stats::{SeriesStats, SeriesSummary};
pub use tail::{Tail, TailFull};
pub use view::{MergedPoint, last_by_step, merge_attempts};
