//! The series store in one file of the data folder (redb): for a laptop, a single server, and tests.
//!
//! One thread writes. What callers hand in while a commit is under way goes into the next one together, so that the cost of a commit is
//! shared. Each commit is one transaction: chunks, figures, sessions and floors become durable together or not at all.
//!
//! Layout. A series row holds the figures; chunks lie under (series, METRICS sequence, offset) in the order of arrival. The last chunk of a
//! series is open: a commit appends one encoded block to it. It is sealed, re-encoded small, when it holds [`CHUNK_POINTS`] points or when
//! its cut has come: cuts fall at every [`CUT_EVERY_SEQUENCES`]-th METRICS sequence, whoever writes, so that the same stream always makes
//! the same chunks. A damaged chunk fails reads of its own series alone, and never holds back a write.
//!
//! The floor of a commit is one `fdatasync` (and one more when the file grows) and the pages it touches: about 1,000 bytes for each of 100
//! series of one run that get one point each, since neighbours share pages. A call that holds nothing new writes nothing.
//!
//! Pages are checked when the file is opened after a crash, chunks at each read.

mod apply;
mod fault;
mod packer;
mod read;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use crate::{
    Feed, HistoryPage, HistoryQuery, IngestBatch, Ingested, Pending, SHARDS, Sample, SeriesError, SeriesKey, SeriesSource, SeriesStore,
    SourceState,
};
use fault::Slot;
use redb::{Builder, Database, DatabaseError};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};
use tokio::sync::{mpsc, oneshot};
use writer::Job;

/// A chunk with this many points is sealed.
pub const CHUNK_POINTS: u32 = 512;

/// Chunks never reach over a multiple of this METRICS sequence: at 100 messages a second a cut every three quarters of an hour.
pub const CUT_EVERY_SEQUENCES: u64 = 1 << 18;

/// The file in the data folder.
const FILE_NAME: &str = "series.redb";

/// Memory for pages of the file, in bytes.
const CACHE_BYTES: usize = 128 << 20;

/// Calls that may wait for the writer; a caller beyond that waits to be let in.
const QUEUE_CALLS: usize = 256;

/// The embedded back end. Dropping it waits for the commit under way.
pub struct Embedded {
    slot: Arc<Slot>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("path", &self.slot.path).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the store of a data folder, making both when absent. After a crash the whole file is checked first, which takes as long as
    /// reading it: call this outside the async threads.
    ///
    /// A second opener, in this or another process, gets [`SeriesError::InUse`].
    pub fn open(folder: &Path) -> Result<Self, SeriesError> {
        let path = folder.join(FILE_NAME);
        std::fs::create_dir_all(folder).map_err(|error| fault::io(&path, error))?;
        let file = path.clone();
        Self::open_with(path, move || {
            let is_new = !file.exists();
            let database = Builder::new().set_cache_size(CACHE_BYTES).create(&file)?;
            if is_new && let Some(folder) = file.parent() {
                File::open(folder)?.sync_all()?;
            }
            Ok(database)
        })
    }

    fn open_with(path: PathBuf, open: impl Fn() -> Result<Database, DatabaseError> + Send + Sync + 'static) -> Result<Self, SeriesError> {
        let slot = Arc::new(Slot::open(path, Box::new(open))?);
        let (jobs, queue) = mpsc::channel(QUEUE_CALLS);
        let of_writer = Arc::clone(&slot);
        let writer = std::thread::Builder::new().name("series-writer".to_owned()).spawn(move || writer::run(&of_writer, queue));
        let writer = writer.map_err(|error| fault::io(&slot.path, error))?;
        Ok(Self { slot, jobs: Some(jobs), writer: Some(writer) })
    }

    /// Sends a job to the writer and waits for its answer.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, SeriesError>>) -> Job) -> Result<T, SeriesError> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(SeriesError::Closed)?;
        jobs.send(job(answer)).await.map_err(|_| SeriesError::Closed)?;
        answered.await.map_err(|_| SeriesError::Closed)?
    }

    /// Reads one consistent state, off the async threads.
    fn read<T: Send + 'static>(&self, what: impl FnOnce(&read::Reader<'_>) -> Result<T, fault::Fault> + Send + 'static) -> Pending<'_, T> {
        let slot = Arc::clone(&self.slot);
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || slot.read(what)).await;
            done.unwrap_or(Err(SeriesError::Closed))
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.slot.path.display(), "the writer of the series store ended in a panic");
        }
    }
}

impl SeriesStore for Embedded {
    fn ingest<'a>(&'a self, batches: &'a [IngestBatch]) -> Pending<'a, Ingested> {
        Box::pin(self.ask(|answer| Job::Ingest { batches: batches.to_vec(), answer }))
    }

    fn raise_floor(&self, shard: u8, sequence: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            check_shard(shard)?;
            self.ask(|answer| Job::RaiseFloor { shard, sequence, answer }).await
        })
    }

    fn floor(&self, shard: u8) -> Pending<'_, u64> {
        match check_shard(shard) {
            Ok(()) => self.read(move |reader| reader.floor(shard)),
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }

    fn feed(&self) -> Pending<'_, Option<Feed>> {
        self.read(|reader| reader.feed())
    }

    fn feed_from(&self, feed: Feed) -> Pending<'_, ()> {
        Box::pin(self.ask(move |answer| Job::FeedFrom { feed, answer }))
    }

    fn history<'a>(&'a self, key: &'a SeriesKey, query: HistoryQuery) -> Pending<'a, HistoryPage> {
        let key = key.clone();
        self.read(move |reader| reader.history(&key, query))
    }

    fn sample<'a>(&'a self, key: &'a SeriesKey, max_points: usize) -> Pending<'a, Sample> {
        let key = key.clone();
        self.read(move |reader| Ok(crate::reduce(&reader.points(&key)?, max_points)))
    }

    fn state<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, SourceState> {
        let source = source.clone();
        self.read(move |reader| reader.state(&source))
    }

    fn delete<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, ()> {
        Box::pin(self.ask(|answer| Job::Delete { source: source.clone(), answer }))
    }
}

fn check_shard(shard: u8) -> Result<(), SeriesError> {
    if shard < SHARDS { Ok(()) } else { Err(SeriesError::Invalid(format!("shard {shard} does not exist; there are {SHARDS}"))) }
}
