//! The archiver: writes the ledger's older part as segments, and lets ended aggregates leave the broker where that is wanted.
//!
//! One instance does it, and two at once do no harm: a segment's name is the sequence at which it begins and is never overwritten, so that both end
//! up with one chain; what leaves is named in a list before, and removing it twice is removing it once.

use super::chain::{Archive, ArchiveError, Known, lacks};
use super::ended::{Ended, EndedRun};
use super::gone::{self, Leaving};
use super::segment::{self, Builder, Entry, Segment, SegmentError};
use super::store::Created;
use super::{ANNOUNCED_FOR, SEGMENT_BYTES};
use crate::port::{Stored, StreamName};
use bytes::Bytes;
use footplate_types::{Digest, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Messages that are read from the broker at a time.
const PAGE: usize = 1_000;
/// The first pause after a failure; doubled up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_secs(1);
/// The longest.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// Aggregates that are named together, at most or a few more.
const LIST_MAX: usize = 5_000;
/// Runs that had to wait and are looked at together.
const AT_ONCE: usize = 500;

/// What the archiver keeps where.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    /// How many of the newest events stand in the broker alone.
    pub keep_events: u64,
    /// How many bytes a segment has before it is compressed: at most [`SEGMENT_BYTES`].
    pub segment_bytes: usize,
    /// How often it looks whether there is something to do.
    pub every: Duration,
    /// How long after its last event an ended aggregate leaves the broker; `None`: nothing ever does.
    pub keep_ended: Option<Duration>,
    /// How long a list of what leaves is there before anything leaves.
    pub announced_for: Duration,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            keep_events: 1_000_000,
            segment_bytes: SEGMENT_BYTES,
            every: Duration::from_secs(60),
            keep_ended: None,
            announced_for: ANNOUNCED_FOR,
        }
    }
}

/// How far the archiver is; what its figures are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Up to which sequence the ledger stands in segments.
    pub archived: u64,
    /// How many segments there are.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many aggregates have left the broker, or are about to.
    pub gone_aggregates: u64,
    /// How many events of theirs.
    pub gone_events: u64,
}

/// Writes the archive of one ledger.
#[derive(Debug)]
pub struct Archiver {
    archive: Archive,
    config: ArchiveConfig,
    /// What is not full yet, so that it need not be read again.
    building: Option<Builder>,
    ended: Ended,
    /// Ended runs with an event that is too young yet, or not archived.
    waiting: Vec<Waiting>,
    /// Whether the last list is known to be done with.
    cleared: bool,
    /// How many events the broker lacked, beside those that are named, when they were looked for last.
    looked_for: u64,
}

/// A run that has ended, and what keeps it.
#[derive(Debug)]
struct Waiting {
    run: EndedRun,
    sequence: u64,
    recorded_at: Timestamp,
}

impl Archiver {
    /// An archiver of `archive`. It begins where the archive ends.
    pub fn new(archive: Archive, config: ArchiveConfig) -> Self {
        Self { archive, config, building: None, ended: Ended::default(), waiting: Vec::new(), cleared: false, looked_for: 0 }
    }

    /// Works until shut down, and tells how far it is after each look. What fails is tried again, with growing pauses.
    pub async fn run(mut self, told: impl Fn(Result<Progress, &ArchiveError>), shutdown: CancellationToken) {
        let mut pause = AGAIN;
        loop {
            let done = tokio::select! {
                () = shutdown.cancelled() => return,
                done = self.step() => done,
            };
            let wait = match &done {
                Ok(progress) => {
                    told(Ok(*progress));
                    pause = AGAIN;
                    self.config.every
                }
                Err(error) => {
                    tracing::warn!(%error, "the ledger was not archived; it is tried again");
                    told(Err(error));
                    pause = (pause * 2).min(AGAIN_MAX);
                    pause
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Writes every segment that is full by now, then lets go what may leave. Dropped in the middle it has written whole segments or none.
    ///
    /// # Errors
    /// Stores that are away, segments that are not what was written, a ledger that is not the one that was archived.
    pub async fn step(&mut self) -> Result<Progress, ArchiveError> {
        let mut known = self.archive.look().await?;
        self.is_same_ledger(&known).await?;
        self.is_its_store(&known).await?;
        while let Some(grown) = self.one_segment(&known).await? {
            known = grown;
        }
        known = self.name_lacking(known).await?;
        if let Some(keep) = self.config.keep_ended {
            let gone = self.let_go(known, keep).await;
            if gone.is_err() {
                self.forget_ended();
            }
            known = gone?;
        }
        Ok(progress(&known))
    }

    /// Begins anew with what has ended: what was found and not written down is found again.
    fn forget_ended(&mut self) {
        (self.ended, self.waiting) = (Ended::default(), Vec::new());
    }

    /// A ledger that lacks events was archived before anything left it. A chain that began behind the gap would be taken for whole.
    async fn is_its_store(&self, known: &Known) -> Result<(), ArchiveError> {
        let bounds = self.archive.broker().bounds(StreamName::Ledger).await?;
        match lacks(&bounds) {
            lacks if lacks > 0 && known.end() == 0 => Err(ArchiveError::OtherStore { lacks }),
            _ => Ok(()),
        }
    }

    /// A ledger that was put back from a copy older than its archive has other events where the archive has its last ones.
    async fn is_same_ledger(&self, known: &Known) -> Result<(), ArchiveError> {
        let Some(entry) = known.entries.last() else { return Ok(()) };
        let name = segment::name(known.ledger, entry.head.first);
        let diverged = || ArchiveError::Diverged { name: name.clone(), sequence: entry.head.last };
        let bounds = self.archive.broker().bounds(StreamName::Ledger).await?;
        if bounds.last < entry.head.last {
            return Err(diverged());
        }
        let page = self.archive.broker().read(StreamName::Ledger, "fp.ledger.>", entry.head.last, 1).await?;
        match page.messages.first().filter(|stored| stored.sequence == entry.head.last) {
            Some(stored) if stored.recorded_at != entry.ends => Err(diverged()),
            _ => Ok(()),
        }
    }

    /// The next segment, where there is enough for one.
    async fn one_segment(&mut self, known: &Known) -> Result<Option<Known>, ArchiveError> {
        let before = known.entries.last();
        let mut builder = match self.building.take() {
            Some(builder) if builder.first() == known.end() + 1 => builder,
            _ => Builder::after(known.ledger, before, self.config.segment_bytes),
        };
        let bounds = self.archive.broker().bounds(StreamName::Ledger).await?;
        let end = if bounds.created == known.ledger { bounds.last.saturating_sub(self.config.keep_events) } else { 0 };
        while !builder.is_full() && builder.next() <= end {
            let page = self.archive.broker().read(StreamName::Ledger, "fp.ledger.>", builder.next(), PAGE).await?;
            for stored in page.messages.iter().take_while(|stored| stored.sequence <= end) {
                builder.push(stored);
                if builder.is_full() {
                    break;
                }
            }
            if page.next.is_none() || page.messages.last().is_none_or(|stored| stored.sequence > end) {
                break;
            }
        }
        if !builder.is_full() {
            self.building = Some(builder);
            return Ok(None);
        }
        self.write(known, builder).await.map(Some)
    }

    async fn write(&self, known: &Known, builder: Builder) -> Result<Known, ArchiveError> {
        let name = segment::name(known.ledger, builder.first());
        // Compressing takes a while: not on the runtime's threads.
        let sealed = tokio::task::spawn_blocking(move || builder.seal()).await;
        let (entry, bytes) = sealed.map_err(|error| ArchiveError::Away(error.to_string()))??;
        let made = self.archive.store().create(&name, bytes).await.map_err(|error| ArchiveError::Away(error.to_string()))?;
        // Read back, whoever wrote it: only what was verified counts as archived.
        let known = self.archive.look().await?;
        let written = known.entries.iter().find(|written| written.head.first == entry.head.first);
        let written = written.ok_or_else(|| SegmentError::Missing { name: name.clone() })?;
        match made {
            Created::New if written.digest != entry.digest => {
                let (found, wanted) = (written.digest.to_string(), entry.digest.to_string());
                return Err(SegmentError::Unchained { name, field: "digest", found, wanted }.into());
            }
            Created::New => {
                let (first, last, events, bytes) = (entry.head.first, entry.head.last, entry.head.count, entry.bytes);
                tracing::info!(name, first, last, events, bytes, "a segment of the ledger is archived");
            }
            Created::Exists => tracing::info!(name, "another archiver was first; its segment is the one"),
        }
        if let Err(error) = self.archive.write_index(&known).await {
            tracing::warn!(%error, "the archive's index was not written; a start reads more segments");
        }
        Ok(known)
    }

    /// Names what a hand removed from the broker, so that nobody needs to look for it in every segment. Costs a pass over all that is archived, once.
    async fn name_lacking(&mut self, known: Known) -> Result<Known, ArchiveError> {
        let bounds = self.archive.broker().bounds(StreamName::Ledger).await?;
        let unnamed = lacks(&bounds).saturating_sub(known.accounted());
        if !known.unlisted || unnamed == self.looked_for {
            return Ok(known);
        }
        let mut lacking: BTreeMap<String, Leaving> = BTreeMap::new();
        for entry in known.entries.iter() {
            let held = self.held(entry).await?;
            let segment = self.archive.segment(&known, entry.head.number).await?;
            // Of what has left as a whole every event is named; of what a hand removed, some.
            let is_named = |stored: &Stored| {
                known.gone.place(&stored.subject).is_some_and(|place| place.lacking.is_none() && stored.sequence <= place.through)
            };
            for stored in segment.messages(1).filter(|stored| !held.contains(&stored.sequence) && !is_named(stored)) {
                let subject = stored.subject.clone();
                // Where the aggregate began is not looked for: who reads it passes over the segments before.
                let new = Leaving { subject: stored.subject, through: 0, events: 0, first_segment: 1, last_segment: 0, lacking: true };
                let leaving = lacking.entry(subject).or_insert(new);
                (leaving.through, leaving.last_segment) = (stored.sequence, entry.head.number);
                leaving.events += 1;
            }
        }
        self.looked_for = unnamed;
        let unnamed = lacking.into_values().filter_map(|leaving| {
            let named = known.gone.place(&leaving.subject).and_then(|place| place.lacking).unwrap_or(0);
            let events = leaving.events.saturating_sub(named);
            (events > 0).then_some(Leaving { events, ..leaving })
        });
        let unnamed: Vec<Leaving> = unnamed.collect();
        let mut known = known;
        for part in unnamed.chunks(LIST_MAX) {
            tracing::warn!(aggregates = part.len(), "events were removed from the broker by hand; they are read from the archive");
            let lists = known.lists;
            known = self.write_list(&known, part).await?;
            if self.looked_for == 0 || known.lists != lists + 1 {
                // Another archiver names them: what it has named is looked up before anything is named beside it.
                break;
            }
        }
        Ok(known)
    }

    /// The sequences that the broker has within a segment.
    async fn held(&self, entry: &Entry) -> Result<BTreeSet<u64>, ArchiveError> {
        let mut held = BTreeSet::new();
        let mut from = Some(entry.head.first);
        while let Some(next) = from.filter(|next| *next <= entry.head.last) {
            let page = self.archive.broker().read(StreamName::Ledger, "fp.ledger.>", next, PAGE).await?;
            held.extend(page.messages.iter().map(|stored| stored.sequence).filter(|sequence| *sequence <= entry.head.last));
            from = page.next;
        }
        Ok(held)
    }

    /// Writes the next list, or finds that another archiver has.
    async fn write_list(&mut self, known: &Known, list: &[Leaving]) -> Result<Known, ArchiveError> {
        let name = gone::name(known.ledger, known.lists + 1);
        let bytes: Bytes = gone::seal(known.ledger, known.lists + 1, list)
            .map_err(|error| ArchiveError::List { name: name.clone(), why: error.to_string() })?;
        self.cleared = false;
        match self.archive.store().create(&name, bytes).await.map_err(|error| ArchiveError::Away(error.to_string()))? {
            Created::New => tracing::info!(name, aggregates = list.len(), "a list of what leaves the broker is written"),
            Created::Exists => {
                tracing::info!(name, "another archiver was first; its list is the one");
                self.forget_ended();
                self.looked_for = 0;
            }
        }
        self.archive.look().await
    }

    /// Removes what the last list names, looks for what has ended since, names that and removes it: one list at a time, since each waits a while.
    async fn let_go(&mut self, known: Known, keep: Duration) -> Result<Known, ArchiveError> {
        if !self.cleared {
            if let Some(list) = self.archive.list(known.ledger, known.lists).await? {
                self.remove(list).await?;
            }
            self.cleared = true;
        }
        let list = self.next_list(&known, keep).await?;
        if list.is_empty() {
            return Ok(known);
        }
        let number = known.lists + 1;
        let known = self.write_list(&known, &list).await?;
        // Whoever wrote the list of that number: it is the one.
        if let Some(list) = self.archive.list(known.ledger, number).await? {
            self.remove(list).await?;
        }
        self.cleared = true;
        Ok(known)
    }

    /// Waits until every reader knows the list, then removes what it names, one subject at a time, in the order of their last sequences.
    async fn remove(&self, mut list: Vec<Leaving>) -> Result<(), ArchiveError> {
        let broker = self.archive.broker();
        let mut waited = false;
        list.sort_by_key(|leaving| leaving.through);
        let mut events = 0;
        for leaving in list.iter().filter(|leaving| !leaving.lacking) {
            let left = broker.read(StreamName::Ledger, &leaving.subject, 1, 1).await?;
            if left.messages.first().is_none_or(|stored| stored.sequence > leaving.through) {
                continue;
            }
            if !std::mem::replace(&mut waited, true) {
                tokio::time::sleep(self.config.announced_for).await;
            }
            broker.purge(StreamName::Ledger, Some(leaving.subject.clone()), leaving.through + 1).await?;
            events += leaving.events;
        }
        if events > 0 {
            tracing::info!(aggregates = list.len(), events, "ended aggregates have left the broker");
        }
        Ok(())
    }

    /// What has ended, is old enough and stands in verified segments whole; about as much as one list takes.
    async fn next_list(&mut self, known: &Known, keep: Duration) -> Result<Vec<Leaving>, ArchiveError> {
        let mut list = Vec::new();
        let now = footplate_clock::now();
        let old = |at: Timestamp| u128::from(now.millis_since(at)) >= keep.as_millis();
        let (due, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|waiting| waiting.sequence <= known.end() && old(waiting.recorded_at));
        self.waiting = waiting;
        let mut due: Vec<EndedRun> = due.into_iter().map(|waiting| waiting.run).collect();
        while !due.is_empty() && list.len() < LIST_MAX {
            let rest = due.split_off(due.len().min(AT_ONCE));
            list.extend(self.archived_whole(known, due, &old).await?);
            due = rest;
        }
        // For the next list.
        self.waiting.extend(due.into_iter().map(|run| Waiting { run, sequence: 0, recorded_at: Timestamp::default() }));
        while list.len() < LIST_MAX {
            let number = self.ended.looked_at() + 1;
            if !known.entries.get(number as usize - 1).is_some_and(|entry| old(entry.ends)) {
                break;
            }
            let segment = self.archive.segment(known, number).await?;
            let ended = self.ended.look_at(&segment, known);
            drop(segment);
            list.extend(self.archived_whole(known, ended, &old).await?);
        }
        Ok(list)
    }

    /// Those of some runs that may leave, each with all that belongs to it: every event that the broker has of them is old enough and stands in the
    /// segments, the same in every byte.
    async fn archived_whole(
        &mut self,
        known: &Known,
        ended: Vec<EndedRun>,
        old: &impl Fn(Timestamp) -> bool,
    ) -> Result<Vec<Leaving>, ArchiveError> {
        let mut runs = Vec::with_capacity(ended.len());
        for run in ended {
            let mut subjects = Vec::with_capacity(run.subjects.len());
            let mut keeps = None;
            for (subject, first_segment) in &run.subjects {
                match self.in_broker(known, subject, *first_segment, old).await? {
                    InBroker::Whole(held) => subjects.push(held),
                    other => keeps = Some(other),
                }
            }
            match keeps {
                None => runs.push(subjects),
                Some(InBroker::Until { sequence, recorded_at }) => self.waiting.push(Waiting { run, sequence, recorded_at }),
                // A run of which something has gone already stays as it is.
                Some(_) => {}
            }
        }
        let differing = self.differing(known, &runs).await?;
        let whole = runs.into_iter().enumerate().filter(|(number, _)| !differing.contains(number));
        Ok(whole.flat_map(|(_, subjects)| subjects).map(|held| held.leaving).collect())
    }

    /// What the broker has of an aggregate.
    async fn in_broker(
        &self,
        known: &Known,
        subject: &str,
        first_segment: u32,
        old: &impl Fn(Timestamp) -> bool,
    ) -> Result<InBroker, ArchiveError> {
        let mut events = Vec::new();
        let mut from = Some(1);
        while let Some(next) = from {
            let page = self.archive.broker().read(StreamName::Ledger, subject, next, PAGE).await?;
            for stored in &page.messages {
                if stored.sequence > known.end() || !old(stored.recorded_at) {
                    return Ok(InBroker::Until { sequence: stored.sequence, recorded_at: stored.recorded_at });
                }
                events.push((stored.sequence, segment::fingerprint(stored)));
            }
            from = page.next;
        }
        let Some((through, _)) = events.last().copied() else { return Ok(InBroker::Nothing) };
        let last_segment = known.entry_at(through).map_or(first_segment, |entry| entry.head.number);
        let events_leaving = events.len() as u64;
        let leaving = Leaving { subject: subject.to_owned(), through, events: events_leaving, first_segment, last_segment, lacking: false };
        Ok(InBroker::Whole(Held { leaving, events }))
    }

    /// Which of some runs have an event that does not stand in its segment as it stands in the broker. Each segment is read once.
    async fn differing(&self, known: &Known, runs: &[Vec<Held>]) -> Result<BTreeSet<usize>, ArchiveError> {
        let mut events: Vec<(u64, Digest, usize)> = Vec::new();
        for (run, subjects) in runs.iter().enumerate() {
            events.extend(subjects.iter().flat_map(|held| &held.events).map(|(sequence, print)| (*sequence, *print, run)));
        }
        events.sort_unstable();
        let mut differing = BTreeSet::new();
        let mut segment: Option<Arc<Segment>> = None;
        for (sequence, print, run) in events {
            if segment.as_ref().is_none_or(|segment| segment.entry().head.last < sequence) {
                segment = self.archive.segment_at(known, sequence).await?;
            }
            let archived = segment.as_ref().and_then(|segment| segment.messages(sequence).next());
            if !archived.is_some_and(|stored| stored.sequence == sequence && segment::fingerprint(&stored) == print) {
                tracing::error!(sequence, "an event differs from its copy in the archive: its run stays in the broker");
                differing.insert(run);
            }
        }
        Ok(differing)
    }
}

/// What stands in the broker of an aggregate whose run has ended.
enum InBroker {
    /// Events that all may leave.
    Whole(Held),
    /// One that must stay: it is too young, or not archived.
    Until { sequence: u64, recorded_at: Timestamp },
    /// None.
    Nothing,
}

/// An aggregate as the broker has it.
struct Held {
    leaving: Leaving,
    /// Sequence and fingerprint of each event.
    events: Vec<(u64, Digest)>,
}

fn progress(known: &Known) -> Progress {
    Progress {
        archived: known.end(),
        segments: known.entries.len() as u64,
        bytes: known.entries.iter().map(|entry| entry.bytes).sum(),
        gone_aggregates: known.gone.aggregates(),
        gone_events: known.gone.events(),
    }
}
