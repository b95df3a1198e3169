//! The one writer: takes over by compare-and-set, stores what METRICS brings, and raises floors only once all below them is acknowledged.

use super::{
    commit::{self, Stamp},
    db::Db,
    layout::{Version, Versions},
    progress::{Epochs, Floors, Progress, Visible, stored_floors},
};
use crate::{Feed, IngestBatch, Ingested, SeriesError, SeriesKey, SeriesSource, SessionKey, SessionProgress};
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc, time::Duration};
use tokio::time::Instant;

/// After how long without any progress of another writer this instance takes over.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(5);

/// The wait between two looks at another writer's progress.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long one call waits for another writer before it says that another writes.
const FOLLOW_WITHIN: Duration = Duration::from_secs(2);

/// Bits of a timestamp that count the commits of one writer; it takes over from itself before they run out.
const COMMIT_BITS: u32 = 30;

/// The most bytes of last chunks that are kept between commits; then all are forgotten and read again when needed.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// The most sessions whose progress is kept.
const KEPT_SESSIONS_MAX: usize = 20_000;

/// What this instance is to the store.
pub(super) enum Standing {
    /// It has not written yet: its first write makes it the writer, whoever was it before.
    Fresh,
    Writer(Box<Seat>),
    /// Another took over; it is watched, and followed when it stands still.
    Deposed {
        seen: Progress,
        since: Instant,
    },
}

impl Standing {
    /// The floor that another writer has reached, as it was last seen.
    fn others_floor(&self, shard: u8) -> u64 {
        match self {
            Self::Deposed { seen, .. } => seen.floors[usize::from(shard)],
            Self::Fresh | Self::Writer(_) => 0,
        }
    }
}

/// What the writer knows.
pub(super) struct Seat {
    epoch: i64,
    commits: i64,
    pub(super) visible: Visible,
    /// The floors as the row holds them.
    stored: Option<Vec<i64>>,
    /// A commit failed half-way: what it left must not count, so the next one needs a new epoch.
    unsettled: bool,
    pub(super) series: BTreeMap<SeriesKey, commit::Kept>,
    pub(super) sessions: BTreeMap<SessionKey, (SessionProgress, u64)>,
}

impl Seat {
    fn stamp(&mut self) -> Stamp {
        self.commits += 1;
        Stamp { epoch: self.epoch, timestamp: (self.epoch << COMMIT_BITS) | self.commits }
    }

    fn floor(&self, shard: u8) -> u64 {
        self.visible.floors[usize::from(shard)]
    }

    fn keep_within_bounds(&mut self) {
        let bytes: usize = self.series.values().map(commit::Kept::bytes).sum();
        if bytes > KEPT_BYTES_MAX {
            self.series.clear();
        }
        if self.sessions.len() > KEPT_SESSIONS_MAX {
            self.sessions.clear();
        }
    }
}

/// The writing side of one instance.
pub(super) struct Writer {
    pub(super) db: Arc<Db>,
    pub(super) epochs: Arc<Epochs>,
    /// This instance, told apart from every other.
    pub(super) name: String,
    pub(super) standing: tokio::sync::Mutex<Standing>,
}

impl Writer {
    pub(super) async fn ingest(&self, batches: &[IngestBatch]) -> Result<Ingested, SeriesError> {
        if let Some(batch) = batches.iter().find(|batch| i64::try_from(batch.sequence).is_err()) {
            return Err(SeriesError::Invalid(format!("METRICS sequence {} is beyond what the series store can hold", batch.sequence)));
        }
        let mut standing = self.standing.lock().await;
        let until = Instant::now() + FOLLOW_WITHIN;
        while Instant::now() < until {
            if let Some(seat) = self.seat(&mut standing).await? {
                if let Some(ingested) = self.commit(seat, batches).await? {
                    return Ok(ingested);
                }
                continue;
            }
            if batches.iter().all(|batch| standing.others_floor(batch.source.shard()) >= batch.sequence) {
                // The other writer has stored them.
                return Ok(Ingested { duplicate_batches: batches.len() as u64, ..Ingested::default() });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(self.elsewhere().await)
    }

    /// One commit; none when another has taken over, and then nothing of it counts.
    async fn commit(&self, seat: &mut Seat, batches: &[IngestBatch]) -> Result<Option<Ingested>, SeriesError> {
        seat.unsettled = true;
        let stamp = seat.stamp();
        let done = commit::store(&self.db, &seat.visible, stamp, (&mut seat.series, &mut seat.sessions), batches).await?;
        if done.raised.is_empty() {
            seat.unsettled = false;
            return Ok(Some(done.outcome));
        }
        let mut floors = seat.visible.floors.clone();
        for (shard, floor) in &done.raised {
            floors[usize::from(*shard)] = *floor;
        }
        if !self.raise(seat, floors).await? {
            return Ok(None);
        }
        seat.series.extend(done.series);
        seat.sessions.extend(done.sessions);
        seat.keep_within_bounds();
        Ok(Some(done.outcome))
    }

    /// Raises the floors while this instance is still the writer and they stand where it knows them; whether they are raised. If not, the
    /// seat stays unsettled: this instance is relieved, or takes a new epoch and goes on from the floors that the row holds.
    async fn raise(&self, seat: &mut Seat, floors: Floors) -> Result<bool, SeriesError> {
        seat.unsettled = true;
        let wanted = stored_floors(&floors);
        let raised = self.db.run_conditional(&self.db.statements.raise_floors, (&wanted, seat.epoch, &seat.stored)).await?
            || self.stands(seat.epoch, &wanted).await?;
        if raised {
            (seat.visible.floors, seat.stored) = (floors, Some(wanted));
            seat.unsettled = false;
        }
        Ok(raised)
    }

    /// Whether the row holds these floors under this epoch: a raise was applied by a try whose answer was lost.
    async fn stands(&self, epoch: i64, wanted: &[i64]) -> Result<bool, SeriesError> {
        let progress = self.epochs.settled(&self.db).await?;
        Ok(progress.epoch == epoch && progress.stored.as_deref() == Some(wanted))
    }

    pub(super) async fn raise_floor(&self, shard: u8, sequence: u64) -> Result<(), SeriesError> {
        let mut standing = self.standing.lock().await;
        let until = Instant::now() + FOLLOW_WITHIN;
        while Instant::now() < until {
            if let Some(seat) = self.seat(&mut standing).await? {
                let mut floors = seat.visible.floors.clone();
                if sequence <= seat.floor(shard) {
                    return Ok(());
                }
                floors[usize::from(shard)] = sequence;
                if self.raise(seat, floors).await? {
                    return Ok(());
                }
                continue;
            }
            if standing.others_floor(shard) >= sequence {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(self.elsewhere().await)
    }

    /// Notes the feed under a new epoch: what a failed commit left under the sequences of the feed before must never count.
    pub(super) async fn feed_from(&self, feed: Feed) -> Result<(), SeriesError> {
        let mut standing = self.standing.lock().await;
        if let Some(seat) = self.seat(&mut standing).await? {
            seat.unsettled = true;
        }
        let Some(seat) = self.seat(&mut standing).await? else { return Err(self.elsewhere().await) };
        let highest = seat.visible.floors.iter().copied().max().unwrap_or(0);
        if feed.base < highest {
            return Err(SeriesError::Invalid(format!("a feed cannot count from {}: sequences up to {highest} are stored", feed.base)));
        }
        let values = (feed.created.as_nanos(), feed.base.cast_signed(), seat.epoch);
        if self.db.run_conditional(&self.db.statements.note_feed, values).await? { Ok(()) } else { Err(self.elsewhere().await) }
    }

    /// Removes the series of a source. The rows of its series go in one stroke, so that no reader sees a part; their chunks follow, if need be
    /// by the next writer.
    pub(super) async fn delete(&self, source: &SeriesSource) -> Result<(), SeriesError> {
        let mut standing = self.standing.lock().await;
        if matches!(*standing, Standing::Deposed { .. }) {
            *standing = Standing::Fresh;
        }
        let Some(seat) = self.seat(&mut standing).await? else { return Err(self.elsewhere().await) };
        let stamp = seat.stamp();
        let doomed = self.doom(source, stamp).await?;
        seat.series.retain(|key, _| key.source != *source);
        // Only while this instance is the writer nobody can have stored more of the source meanwhile.
        let floors = seat.visible.floors.clone();
        if !self.raise(seat, floors).await? {
            return Err(self.elsewhere().await);
        }
        let stamp = seat.stamp();
        for one in doomed {
            self.remove(&one, stamp).await?;
        }
        Ok(())
    }

    async fn doom(&self, source: &SeriesSource, stamp: Stamp) -> Result<Vec<Doomed>, SeriesError> {
        let mut doomed = Vec::new();
        type Named = (i64, i64, String, Option<i64>, Option<i64>, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);
        let text = source.to_string();
        self.db
            .rows(&self.db.statements.all_series, (&text,), |(attempt, rank, name, _, _, figures, _, _): Named| {
                if let Ok(version) = Version::read(&figures.unwrap_or_default()) {
                    let (born, buckets) = (version.born.cast_signed(), version.buckets().cast_signed());
                    doomed.push((text.clone(), attempt, rank, name, born, buckets));
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        for (source, attempt, rank, name, born, buckets) in &doomed {
            let values = (source, attempt, rank, name, born, buckets, stamp.timestamp);
            self.db.run(&self.db.statements.put_doomed, values).await?;
        }
        self.db.run(&self.db.statements.drop_series, (stamp.timestamp, &text)).await?;
        Ok(doomed)
    }

    async fn remove(&self, (source, attempt, rank, name, born, buckets): &Doomed, stamp: Stamp) -> Result<(), SeriesError> {
        for bucket in 0..*buckets {
            let values = (stamp.timestamp, source, attempt, rank, name, born, bucket);
            self.db.run(&self.db.statements.drop_bucket, values).await?;
        }
        let values = (stamp.timestamp, source, attempt, rank, name, born);
        self.db.run(&self.db.statements.drop_buckets, values).await?;
        self.db.run(&self.db.statements.drop_doomed, values).await.map(|_| ())
    }

    /// Finishes deletions that were cut short; a series that is there after all keeps its chunks.
    async fn remove_doomed(&self, stamp: Stamp) -> Result<(), SeriesError> {
        let mut doomed: Vec<Doomed> = Vec::new();
        self.db
            .rows(&self.db.statements.all_doomed, (), |row: Doomed| {
                doomed.push(row);
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        for one in &doomed {
            let row: Option<Versions> = self.db.row(&self.db.statements.one_series, (&one.0, one.1, one.2, &one.3)).await?;
            let is_there =
                row.and_then(|row| Version::read(&row.2.unwrap_or_default()).ok()).is_some_and(|there| there.born.cast_signed() == one.4);
            if is_there {
                self.db.run(&self.db.statements.drop_doomed, (stamp.timestamp, &one.0, one.1, one.2, &one.3, one.4)).await?;
            } else {
                self.remove(one, stamp).await?;
            }
        }
        Ok(())
    }

    /// The writer's seat, taken when it is this instance's turn; none while another writes.
    async fn seat<'s>(&self, standing: &'s mut Standing) -> Result<Option<&'s mut Seat>, SeriesError> {
        if let Some(seen) = self.may_claim(standing).await? {
            *standing = self.claim(&seen).await?;
        }
        Ok(match standing {
            Standing::Writer(seat) => Some(seat),
            Standing::Fresh | Standing::Deposed { .. } => None,
        })
    }

    /// What stands where this instance may take over now; none where it is the writer already, or has to wait.
    async fn may_claim(&self, standing: &mut Standing) -> Result<Option<Progress>, SeriesError> {
        let most_commits = (1 << COMMIT_BITS) - 2;
        match standing {
            Standing::Writer(seat) if !seat.unsettled && seat.commits < most_commits => Ok(None),
            Standing::Fresh => self.epochs.settled(&self.db).await.map(Some),
            Standing::Writer(seat) => {
                let progress = self.epochs.settled(&self.db).await?;
                if progress.epoch == seat.epoch && progress.writer == self.name {
                    return Ok(Some(progress));
                }
                tracing::warn!(writer = progress.writer, "another tracker writes to the series store from now on");
                *standing = Standing::Deposed { seen: progress, since: Instant::now() };
                Ok(None)
            }
            Standing::Deposed { seen, since } => {
                // A plain read: one that settles would stand in the other's way.
                let progress = self.epochs.progress(&self.db).await?;
                if progress != *seen {
                    (*seen, *since) = (progress, Instant::now());
                    return Ok(None);
                }
                Ok((since.elapsed() >= TAKE_OVER_AFTER).then_some(progress))
            }
        }
    }

    async fn claim(&self, seen: &Progress) -> Result<Standing, SeriesError> {
        let before = (seen.epoch > 0).then_some(seen.epoch);
        // Whether it was applied is read afterwards: an answer may be lost.
        self.db.run_conditional(&self.db.statements.claim, (seen.epoch + 1, &self.name, before)).await?;
        let progress = self.epochs.settled(&self.db).await?;
        if progress.epoch != seen.epoch + 1 || progress.writer != self.name {
            return Ok(Standing::Deposed { seen: progress, since: Instant::now() });
        }
        // The floors stand still from here on, until this instance raises them.
        let noted = (progress.epoch, stored_floors(&progress.floors), &self.name);
        self.db.run(&self.db.statements.note_epoch, noted).await?;
        let visible = self.epochs.of_writer(&self.db, progress.floors).await?;
        if let Some(idle) = visible.idle_before(progress.epoch) {
            self.db.run(&self.db.statements.drop_epoch, (idle,)).await?;
        }
        let (series, sessions) = (BTreeMap::new(), BTreeMap::new());
        let mut seat = Seat { epoch: progress.epoch, commits: 0, visible, stored: progress.stored, unsettled: false, series, sessions };
        tracing::info!(epoch = seat.epoch, store = self.db.address, "this tracker writes to the series store");
        let stamp = seat.stamp();
        self.remove_doomed(stamp).await?;
        Ok(Standing::Writer(Box::new(seat)))
    }

    async fn elsewhere(&self) -> SeriesError {
        let writer = match self.epochs.progress(&self.db).await {
            Ok(progress) => progress.writer,
            Err(error) => return error,
        };
        SeriesError::Elsewhere { address: self.db.address.clone(), writer }
    }
}

/// source, attempt, rank, name, born, buckets.
type Doomed = (String, i64, i64, String, i64, i64);
