//! The series store in ScyllaDB or Apache Cassandra: for many machines, and for as many tracker instances as wanted.
//!
//! The same tables serve both servers (`deploy/scylla`). Points lie in packed chunks, a row each, in partitions of a bounded number of chunks
//! of one series. Every write may be repeated and is acknowledged by a quorum; how many are under way at once is bounded.
//!
//! **One writer.** Any instance reads; one writes. Whoever writes first after its start takes over from the one before, by compare-and-set on
//! the one row of `progress`, and gets an epoch of its own. An instance that was relieved leaves the writing to the other: its `ingest`
//! ends when the other has stored the batches, and it takes over when the other stands still. That is for liveness; what makes a relieved
//! writer harmless is the epoch ([`progress`]): its floors are refused, its rows beyond its last floor never count, and its timestamps lose.
//!
//! **A commit** writes figures, chunks and sessions, waits until all are acknowledged, and only then raises the floors. Readers go by the
//! floor: of a chunk they take the points up to it, of figures and sessions the version as of it (a row keeps those of its last two
//! commits). So a commit that is cut short is as if it had never been, whoever goes on.
//!
//! While the servers are away nothing is acknowledged and no floor moves: what came stays in METRICS.
//!
//! Nothing here reads a clock but to wait.

mod address;
mod commit;
mod db;
mod durable;
mod fold;
mod layout;
mod progress;
mod read;
mod schema;
mod statements;
mod writer;

pub use address::Address;
pub use schema::SCHEMA_VERSION;

use crate::{
    Feed, HistoryPage, HistoryQuery, IngestBatch, Ingested, Pending, SHARDS, Sample, SeriesError, SeriesKey, SeriesSource, SeriesStore,
    SourceState,
};
use db::Db;
use progress::Epochs;
use read::Reader;
use std::sync::Arc;
use writer::{Standing, Writer};

/// The back end in a cluster.
pub struct Scylla {
    db: Arc<Db>,
    epochs: Arc<Epochs>,
    writer: Writer,
}

impl std::fmt::Debug for Scylla {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scylla").field("address", &self.db.address).finish_non_exhaustive()
    }
}

impl Scylla {
    /// Connects to the cluster and brings its tables in line. `writer` names this process; no two that live at once may share a name.
    pub async fn connect(address: &Address, writer: &str) -> Result<Self, SeriesError> {
        let db = Arc::new(Db::connect(address, writer).await?);
        let epochs = Arc::new(Epochs::default());
        let writer = Writer { db: db.clone(), epochs: epochs.clone(), name: writer.to_owned(), standing: Standing::Fresh.into() };
        Ok(Self { db, epochs, writer })
    }

    /// Where it is, and who writes to it: for a person.
    pub async fn told(&self) -> Result<String, SeriesError> {
        let progress = self.epochs.progress(&self.db).await?;
        let writer = if progress.writer.is_empty() { "nobody yet" } else { &progress.writer };
        Ok(format!("{}, schema {SCHEMA_VERSION}, written by {writer}, stored up to {}", self.db.address, progress.highest_floor()))
    }

    /// What the servers do when they acknowledge a write before it is on their disks, as the one that was asked at the connection told; none
    /// where it waits for its disk, or does not tell.
    pub fn acknowledges_early(&self) -> Option<&str> {
        self.db.early.as_deref()
    }

    fn reader(&self) -> Reader<'_> {
        Reader { db: &self.db, epochs: &self.epochs }
    }
}

impl SeriesStore for Scylla {
    fn ingest<'a>(&'a self, batches: &'a [IngestBatch]) -> Pending<'a, Ingested> {
        Box::pin(self.writer.ingest(batches))
    }

    fn raise_floor(&self, shard: u8, sequence: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            check_shard(shard)?;
            self.writer.raise_floor(shard, sequence).await
        })
    }

    fn floor(&self, shard: u8) -> Pending<'_, u64> {
        Box::pin(async move {
            check_shard(shard)?;
            self.reader().floor(shard).await
        })
    }

    fn feed(&self) -> Pending<'_, Option<Feed>> {
        Box::pin(async move { Ok(self.epochs.settled(&self.db).await?.feed) })
    }

    fn feed_from(&self, feed: Feed) -> Pending<'_, ()> {
        Box::pin(self.writer.feed_from(feed))
    }

    fn history<'a>(&'a self, key: &'a SeriesKey, query: HistoryQuery) -> Pending<'a, HistoryPage> {
        Box::pin(async move { self.reader().history(key, query).await })
    }

    fn sample<'a>(&'a self, key: &'a SeriesKey, max_points: usize) -> Pending<'a, Sample> {
        Box::pin(async move { Ok(crate::reduce(&self.points(key).await?, max_points)) })
    }

    fn state<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, SourceState> {
        Box::pin(async move { self.reader().state(source).await })
    }

    fn delete<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, ()> {
        Box::pin(self.writer.delete(source))
    }
}

fn check_shard(shard: u8) -> Result<(), SeriesError> {
    if shard < SHARDS { Ok(()) } else { Err(SeriesError::Invalid(format!("shard {shard} does not exist; there are {SHARDS}"))) }
}
