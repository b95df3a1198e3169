//! The archive of a ledger as a reader knows it: the chain of segments, what has left the broker, and segments that were read last.
//!
//! What a reader knows may be a little old. So a list of what leaves the broker stands in the store for [`ANNOUNCED_FOR`] before anything is
//! removed, and a reader whose knowledge is older than [`STALE_AFTER`] asks how many events the broker lacks before it believes a page.

use super::gone::{self, Gone, Leaving, Place};
use super::segment::{self, Entry, Segment, SegmentError};
use super::store::SegmentStore;
use crate::port::{Bounds, Broker, ReadError, StreamName};
use footplate_types::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How old a reader's knowledge gets before it is looked up again, beside the reading.
pub const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How old it may be while a page of the broker is believed because of it.
pub const STALE_AFTER: Duration = Duration::from_secs(120);
/// How long a list of what leaves is there before anything leaves: longer than anybody believes in what it read before.
pub const ANNOUNCED_FOR: Duration = Duration::from_secs(300);
/// Segments that are kept unpacked: one for who reads on, one for who came in between.
const KEPT: usize = 2;
/// Segments that are unpacked at the same time: each takes tens of megabytes until it is.
const UNPACKED_AT_ONCE: usize = 2;

/// Why the archive cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// A segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A list of what has left.
    #[error("the list {name} of what has left the broker is damaged: {why}")]
    List {
        /// Which.
        name: String,
        /// In what way.
        why: String,
    },
    /// The ledger is another one than the segments were made of.
    #[error(
        "segment {name} ends with another event than stands in the broker at sequence {sequence}: the ledger was put back from an older copy"
    )]
    Diverged {
        /// Which.
        name: String,
        /// Where.
        sequence: u64,
    },
    /// The store holds nothing of a ledger that was archived.
    #[error(
        "the broker lacks {lacks} events of the ledger and the object store holds no segment of it: it is not the store that the ledger was archived \
         in; start with the right one"
    )]
    OtherStore {
        /// How many events are lacking.
        lacks: u64,
    },
    /// The object store does not answer.
    #[error("the archive of the ledger is away: {0}")]
    Away(String),
    /// The broker does not answer.
    #[error(transparent)]
    Broker(#[from] ReadError),
}

impl From<ArchiveError> for ReadError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Broker(error) => error,
            ArchiveError::Away(_) => Self::Unavailable(error.to_string()),
            ArchiveError::Segment(_) | ArchiveError::List { .. } | ArchiveError::Diverged { .. } | ArchiveError::OtherStore { .. } => {
                Self::Refused(error.to_string())
            }
        }
    }
}

/// The index as it is stored: a help at the start, never the truth. One that is missing or does not hold together is made again from the segments.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    entries: Vec<Entry>,
}

/// What is known of the archive at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) ledger: Timestamp,
    pub(super) entries: Arc<Vec<Entry>>,
    pub(super) gone: Arc<Gone>,
    pub(super) lists: u32,
    /// Whether the broker lacks events that no list names.
    pub(super) unlisted: bool,
    looked: Option<Instant>,
}

impl Known {
    /// Up to which sequence everything stands in segments.
    pub(super) fn end(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.head.last)
    }

    /// Up to which sequence the broker may lack something: what is read from there or before is read from segments.
    pub(super) fn horizon(&self) -> u64 {
        if self.unlisted { self.end() } else { self.gone.horizon() }
    }

    /// Whether it is young enough to be believed.
    pub(super) fn is_fresh(&self) -> bool {
        self.looked.is_some_and(|looked| looked.elapsed() < STALE_AFTER)
    }

    fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
    }

    /// Where the events of a subject are that the broker may lack; nowhere when it has them all.
    pub(super) fn place(&self, subject: &str) -> Option<Place> {
        if !self.unlisted {
            return self.gone.place(subject);
        }
        // Nobody has said what is lacking: it may be of any aggregate.
        let last = self.entries.last()?;
        Some(Place { through: last.head.last, first_segment: 1, last_segment: last.head.number, lacking: None })
    }

    /// How many events the broker lacks for reasons that are known.
    pub(super) fn accounted(&self) -> u64 {
        let gaps: u64 = self.entries.iter().map(|entry| entry.head.last + 1 - entry.head.first - entry.head.count).sum();
        gaps + self.gone.events()
    }

    /// The segment that holds or follows a sequence.
    pub(super) fn entry_at(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(self.entries.partition_point(|entry| entry.head.last < sequence))
    }
}

/// How many events the broker lacks.
pub(super) fn lacks(bounds: &Bounds) -> u64 {
    bounds.last.saturating_sub(bounds.messages)
}

/// The archive of the ledger behind a broker. Cheap to clone.
#[derive(Clone)]
pub struct Archive {
    shared: Arc<Shared>,
}

struct Shared {
    broker: Arc<dyn Broker>,
    store: Arc<dyn SegmentStore>,
    known: Mutex<Known>,
    kept: Mutex<VecDeque<Arc<Segment>>>,
    looking: tokio::sync::Mutex<()>,
    /// When a look beside the reading was begun last, and whether it goes on.
    beside: Mutex<Beside>,
    unpacking: Semaphore,
}

#[derive(Debug, Default)]
struct Beside {
    begun: Option<Instant>,
    goes_on: bool,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("end", &self.known().end()).finish_non_exhaustive()
    }
}

impl Archive {
    /// The archive in `store` of the ledger that `broker` (itself, not one with an archive) holds.
    pub fn new(broker: Arc<dyn Broker>, store: Arc<dyn SegmentStore>) -> Self {
        Self {
            shared: Arc::new(Shared {
                broker,
                store,
                known: Mutex::default(),
                kept: Mutex::default(),
                looking: tokio::sync::Mutex::default(),
                beside: Mutex::default(),
                unpacking: Semaphore::new(UNPACKED_AT_ONCE),
            }),
        }
    }

    pub(super) fn broker(&self) -> &Arc<dyn Broker> {
        &self.shared.broker
    }

    pub(super) fn store(&self) -> &Arc<dyn SegmentStore> {
        &self.shared.store
    }

    /// What is known now.
    pub(super) fn known(&self) -> Known {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The chain as far as it is known.
    pub fn entries(&self) -> Arc<Vec<Entry>> {
        self.known().entries
    }

    /// What is known; looked up beside the reading where it is due. What it says may be a little old.
    pub(super) async fn current(&self) -> Result<Known, ReadError> {
        let known = self.known();
        if known.looked.is_none() {
            return self.first_look().await;
        }
        if known.is_due() {
            self.look_beside();
        }
        Ok(known)
    }

    /// Nobody waits for the store to read a ledger that lacks nothing: the store may be away.
    async fn first_look(&self) -> Result<Known, ReadError> {
        let bounds = self.shared.broker.bounds(StreamName::Ledger).await?;
        if lacks(&bounds) > 0 {
            return Ok(self.look().await?);
        }
        self.look_beside();
        Ok(Known { ledger: bounds.created, ..Known::default() })
    }

    /// Looks in a task of its own, one at a time, and after a failure not at once again, however many read.
    fn look_beside(&self) {
        {
            let mut beside = self.beside();
            if beside.goes_on || beside.begun.is_some_and(|begun| begun.elapsed() < LOOK_EVERY) {
                return;
            }
            *beside = Beside { begun: Some(Instant::now()), goes_on: true };
        }
        let archive = self.clone();
        tokio::spawn(async move {
            if let Err(error) = archive.look().await {
                tracing::warn!(%error, "the archive of the ledger could not be looked at");
            }
            archive.beside().goes_on = false;
        });
    }

    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.shared.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, and by now surely holds everything that had left the broker when this was called. The broker itself tells, where the store is
    /// away: a list is written before anything leaves, and the next one after, so whoever can account for all that is lacking knows every list.
    pub(super) async fn assured(&self) -> Result<Known, ReadError> {
        let known = self.current().await?;
        if known.is_fresh() {
            return Ok(known);
        }
        let bounds = self.shared.broker.bounds(StreamName::Ledger).await?;
        if bounds.created == known.ledger && lacks(&bounds) <= known.accounted() {
            return Ok(known);
        }
        Ok(self.look().await?)
    }

    /// Looks the archive up in the store: new segments, new lists, and whether the broker lacks what nobody names.
    pub async fn refresh(&self) -> Result<(), ArchiveError> {
        self.look().await.map(|_| ())
    }

    pub(super) async fn look(&self) -> Result<Known, ArchiveError> {
        let _one = self.shared.looking.lock().await;
        let began = Instant::now();
        let bounds = self.shared.broker.bounds(StreamName::Ledger).await?;
        let mut known = self.known();
        if known.looked.is_none() || known.ledger != bounds.created {
            known = Known { ledger: bounds.created, entries: Arc::new(self.index(bounds.created).await?), ..Known::default() };
        }
        // Lists before the chain: a segment that a list names was written before it.
        self.follow_lists(&mut known).await?;
        self.follow_chain(&mut known).await?;
        if lacks(&bounds) > 0 && known.end() == 0 && self.known().ledger != known.ledger {
            let lacks = lacks(&bounds);
            tracing::warn!(
                lacks,
                "the broker lacks events of the ledger and the object store has no segment of it: is it the right store?"
            );
        }
        // What may lie beyond the archive's end is nobody's loss but the ledger's own.
        let unlisted = lacks(&bounds) > known.accounted() && known.end() > 0;
        if unlisted && !known.unlisted {
            let (lacks, accounted) = (lacks(&bounds), known.accounted());
            tracing::warn!(
                lacks,
                accounted,
                "the broker lacks events that no list names; the ledger's older part is read from segments alone"
            );
        }
        known.unlisted = unlisted;
        known.looked = Some(began);
        *self.shared.known.lock().unwrap_or_else(PoisonError::into_inner) = known.clone();
        Ok(known)
    }

    /// The chain as the index tells it, as far as it holds together.
    async fn index(&self, ledger: Timestamp) -> Result<Vec<Entry>, ArchiveError> {
        let name = index_name(ledger);
        let Some(bytes) = self.load(&name).await? else { return Ok(Vec::new()) };
        let index: Index = match serde_json::from_slice(&bytes) {
            Ok(index) => index,
            Err(error) => {
                tracing::warn!(%error, name, "the archive's index cannot be read; it is made again from the segments");
                return Ok(Vec::new());
            }
        };
        let mut entries: Vec<Entry> = Vec::with_capacity(index.entries.len());
        for entry in index.entries {
            if let Err(error) = segment::follows(&segment::name(ledger, entry.head.first), ledger, entries.last(), &entry.head) {
                tracing::warn!(%error, name, "the archive's index does not hold together; the rest is made again from the segments");
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    async fn follow_chain(&self, known: &mut Known) -> Result<(), ArchiveError> {
        loop {
            let name = segment::name(known.ledger, known.end() + 1);
            let _turn = self.turn().await?;
            let Some(bytes) = self.load(&name).await? else { return Ok(()) };
            let segment = opened(known.ledger, known.entries.last().cloned(), bytes).await?;
            Arc::make_mut(&mut known.entries).push(segment.entry().clone());
        }
    }

    async fn follow_lists(&self, known: &mut Known) -> Result<(), ArchiveError> {
        loop {
            let name = gone::name(known.ledger, known.lists + 1);
            let Some(bytes) = self.load(&name).await? else { return Ok(()) };
            let list = gone::open(known.ledger, known.lists + 1, &bytes);
            let list = list.map_err(|error| ArchiveError::List { name, why: error.to_string() })?;
            Arc::make_mut(&mut known.gone).add(&list);
            known.lists += 1;
        }
    }

    /// A list, if there is one of that number.
    pub(super) async fn list(&self, ledger: Timestamp, number: u32) -> Result<Option<Vec<Leaving>>, ArchiveError> {
        let name = gone::name(ledger, number);
        let Some(bytes) = self.load(&name).await? else { return Ok(None) };
        gone::open(ledger, number, &bytes).map(Some).map_err(|error| ArchiveError::List { name, why: error.to_string() })
    }

    async fn load(&self, name: &str) -> Result<Option<bytes::Bytes>, ArchiveError> {
        self.shared.store.load(name).await.map_err(|error| ArchiveError::Away(error.to_string()))
    }

    /// Writes the index, so that the next start need not read every segment.
    pub(super) async fn write_index(&self, known: &Known) -> Result<(), ArchiveError> {
        let index = Index { entries: known.entries.to_vec() };
        let bytes = serde_json::to_vec(&index).map_err(|error| ArchiveError::Away(error.to_string()))?;
        self.shared.store.replace(&index_name(known.ledger), bytes.into()).await.map_err(|error| ArchiveError::Away(error.to_string()))
    }

    /// A segment by its number, verified against the chain.
    pub(super) async fn segment(&self, known: &Known, number: u32) -> Result<Arc<Segment>, ArchiveError> {
        let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(entry) = known.entries.get(at) else {
            return Err(SegmentError::Missing { name: format!("number {number}") }.into());
        };
        if let Some(kept) = self.kept(entry) {
            return Ok(kept);
        }
        let _turn = self.turn().await?;
        // Whoever had the turn before may have read this very one.
        if let Some(kept) = self.kept(entry) {
            return Ok(kept);
        }
        let name = segment::name(known.ledger, entry.head.first);
        let bytes = self.load(&name).await?.ok_or_else(|| SegmentError::Missing { name: name.clone() })?;
        let before = at.checked_sub(1).and_then(|before| known.entries.get(before)).cloned();
        let segment = Arc::new(opened(known.ledger, before, bytes).await?);
        if segment.entry().digest != entry.digest {
            let (found, wanted) = (segment.entry().digest.to_string(), entry.digest.to_string());
            return Err(SegmentError::Unchained { name, field: "digest", found, wanted }.into());
        }
        let mut all = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_front(segment.clone());
        all.truncate(KEPT);
        Ok(segment)
    }

    /// The turn to unpack a segment.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, ArchiveError> {
        self.shared.unpacking.acquire().await.map_err(|error| ArchiveError::Away(error.to_string()))
    }

    fn kept(&self, entry: &Entry) -> Option<Arc<Segment>> {
        let mut all = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|kept| kept.entry().digest == entry.digest)?;
        let kept = all.remove(at)?;
        all.push_front(kept.clone());
        Some(kept)
    }

    /// The segment that holds or follows a sequence.
    pub(super) async fn segment_at(&self, known: &Known, sequence: u64) -> Result<Option<Arc<Segment>>, ArchiveError> {
        match known.entry_at(sequence) {
            Some(entry) => self.segment(known, entry.head.number).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads every segment and looks whether the whole chain is what it was when it was written; how many events it holds.
    ///
    /// # Errors
    /// The first segment that is damaged, missing or out of place.
    pub async fn verify(&self) -> Result<u64, ArchiveError> {
        let known = self.look().await?;
        let mut events = 0;
        for entry in known.entries.iter() {
            events += self.segment(&known, entry.head.number).await?.entry().head.count;
        }
        Ok(events)
    }
}

/// Unpacks a segment, which takes a while: not on the runtime's threads.
async fn opened(ledger: Timestamp, before: Option<Entry>, bytes: bytes::Bytes) -> Result<Segment, ArchiveError> {
    let opened = tokio::task::spawn_blocking(move || Segment::open(ledger, before.as_ref(), &bytes)).await;
    Ok(opened.map_err(|error| ArchiveError::Away(error.to_string()))??)
}

fn index_name(ledger: Timestamp) -> String {
    format!("{}/index", ledger.as_nanos())
}
