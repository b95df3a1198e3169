//! One commit: who is let in, then series by series and session by session, all acknowledged before it ends. The floors are not its work.

use super::{
    db::Db,
    fold::{Fold, OpenChunk, Written, bits},
    layout::{BUCKET_CHUNKS, ChunkRow, Place, Seen, Version, Versions, places_bytes, read_chunk, seen, split},
    progress::Visible,
};
use crate::{
    IngestBatch, Ingested, Noted, Point, RefusedBatch, SeriesError, SeriesKey, SessionKey, SessionProgress,
    chunk::{self, Damaged, Header},
    rows::{read_session, session_bytes},
};
use futures::{StreamExt, TryStreamExt, stream};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::ControlFlow,
};

/// Series and sessions that are worked on at once; how many statements are under way at once is the session's to bound.
const AT_ONCE: usize = 64;

/// Chunks of one series that are stored at once.
const CHUNKS_AT_ONCE: usize = 16;

/// Under which epoch a commit writes, and with which timestamp: higher than that of every commit before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) epoch: i64,
    pub(super) timestamp: i64,
}

/// A series between commits.
#[derive(Clone)]
pub(super) struct Kept {
    born: u64,
    version: Option<Version>,
    as_of: u64,
    open: Option<OpenChunk>,
}

impl Kept {
    pub(super) fn bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.bytes.len() + open.places.len() * size_of::<(u64, u32)>()) + size_of::<Self>()
    }
}

/// What a commit has stored. It counts once the floors are raised to `raised`.
pub(super) struct Done {
    pub(super) outcome: Ingested,
    pub(super) raised: BTreeMap<u8, u64>,
    pub(super) series: Vec<(SeriesKey, Kept)>,
    pub(super) sessions: Vec<(SessionKey, (SessionProgress, u64))>,
}

/// Points of one series in one batch.
struct Arrival<'b> {
    sequence: u64,
    points: &'b [Point],
}

type KeptSeries = BTreeMap<SeriesKey, Kept>;
type KeptSessions = BTreeMap<SessionKey, (SessionProgress, u64)>;

/// Stores batches, all but the floors.
pub(super) async fn store(
    db: &Db,
    visible: &Visible,
    stamp: Stamp,
    (kept, sessions): (&mut KeptSeries, &mut KeptSessions),
    batches: &[IngestBatch],
) -> Result<Done, SeriesError> {
    let floor = |batch: &IngestBatch| visible.floors[usize::from(batch.source.shard())];
    let wanted: BTreeSet<SessionKey> = batches
        .iter()
        .filter(|batch| batch.sequence > floor(batch))
        .map(IngestBatch::session_key)
        .filter(|key| !sessions.contains_key(key))
        .collect();
    let mut loads = Vec::new();
    for key in wanted {
        loads.push(load_session(db, visible, key));
    }
    let loaded: Vec<_> = stream::iter(loads).buffer_unordered(AT_ONCE).try_collect().await?;
    sessions.extend(loaded);

    let mut admitted = admit(visible, sessions, batches);
    let as_of = |shard: u8| admitted.raised.get(&shard).copied().unwrap_or(0);
    let mut writes = Vec::new();
    for (key, arrivals) in std::mem::take(&mut admitted.series) {
        let before = kept.get(&key).cloned();
        let as_of = as_of(key.source.shard());
        writes.push(store_series(db, visible, stamp, as_of, key, arrivals, before));
    }
    let mut notes = Vec::new();
    for (key, progress) in std::mem::take(&mut admitted.noted) {
        let as_of = as_of(key.source.shard());
        let before = sessions.get(&key).cloned();
        notes.push(store_session(db, stamp, as_of, key, progress, before));
    }
    let stored = stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>();
    let noted = stream::iter(notes).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>();
    let (stored, noted) = futures::try_join!(stored, noted)?;
    let mut outcome = admitted.outcome;
    let mut series = Vec::with_capacity(stored.len());
    for (key, now, added) in stored {
        outcome.points += added;
        series.push((key, now));
    }
    Ok(Done { outcome, raised: admitted.raised, series, sessions: noted })
}

/// Who is let in.
#[derive(Default)]
struct Admitted<'b> {
    outcome: Ingested,
    raised: BTreeMap<u8, u64>,
    noted: BTreeMap<SessionKey, SessionProgress>,
    series: BTreeMap<SeriesKey, Vec<Arrival<'b>>>,
}

fn admit<'b>(visible: &Visible, sessions: &KeptSessions, batches: &'b [IngestBatch]) -> Admitted<'b> {
    let mut admitted = Admitted::default();
    let mut ordered: Vec<&IngestBatch> = batches.iter().collect();
    ordered.sort_by_key(|batch| batch.sequence);
    for batch in ordered {
        let shard = batch.source.shard();
        if batch.sequence <= visible.floors[usize::from(shard)] {
            admitted.outcome.duplicate_batches += 1;
            continue;
        }
        admitted.raised.insert(shard, batch.sequence);
        let key = batch.session_key();
        let known = || sessions.get(&key).map_or_else(|| SessionProgress::new(key.clone()), |(progress, _)| progress.clone());
        let mut progress = admitted.noted.get(&key).cloned().unwrap_or_else(known);
        match progress.note(batch.n) {
            Ok(Noted::Duplicate) => admitted.outcome.duplicate_batches += 1,
            Err(reason) => admitted.outcome.refused.push(RefusedBatch { sequence: batch.sequence, session: key, n: batch.n, reason }),
            Ok(Noted::New) => {
                admitted.noted.insert(key, progress);
                for (name, points) in batch.series.iter().filter(|(_, points)| !points.is_empty()) {
                    let key = SeriesKey { source: batch.source.clone(), attempt: batch.attempt, rank: batch.rank, name: name.clone() };
                    admitted.series.entry(key).or_default().push(Arrival { sequence: batch.sequence, points });
                }
            }
        }
    }
    admitted
}

async fn load_session(db: &Db, visible: &Visible, key: SessionKey) -> Result<(SessionKey, (SessionProgress, u64)), SeriesError> {
    let values = (key.source.to_string(), i64::from(key.attempt.0), i64::from(key.rank.0), key.session.as_bytes().to_vec());
    let row: Versions = db.row(&db.statements.one_session, values).await?.unwrap_or_default();
    let known = match seen(&row, visible, key.source.shard()) {
        Seen::As(bytes, as_of) => (read_session(key.clone(), bytes).map_err(|Damaged(what)| db.damaged(what))?, as_of),
        Seen::Nothing => (SessionProgress::new(key.clone()), 0),
        Seen::Passed => return Err(ahead(db, &key.source.to_string())),
    };
    Ok((key, known))
}

/// No writer leaves a row both of whose versions lie beyond its floor.
fn ahead(db: &Db, source: &str) -> SeriesError {
    db.damaged(format!("a row of {source} lies beyond the floor of its shard; was the table progress restored without the others?"))
}

async fn store_session(
    db: &Db,
    stamp: Stamp,
    as_of: u64,
    key: SessionKey,
    progress: SessionProgress,
    before: Option<(SessionProgress, u64)>,
) -> Result<(SessionKey, (SessionProgress, u64)), SeriesError> {
    let before = before.filter(|(_, as_of)| *as_of > 0);
    let before_as_of = before.as_ref().map_or(-1, |(_, as_of)| as_of.cast_signed());
    let before = before.map(|(before, _)| session_bytes(&before)).unwrap_or_default();
    let values = (
        key.source.to_string(),
        i64::from(key.attempt.0),
        i64::from(key.rank.0),
        key.session.as_bytes().to_vec(),
        stamp.epoch,
        as_of.cast_signed(),
        session_bytes(&progress),
        before_as_of,
        before,
        stamp.timestamp,
    );
    db.run(&db.statements.put_session, values).await?;
    Ok((key, (progress, as_of)))
}

async fn store_series(
    db: &Db,
    visible: &Visible,
    stamp: Stamp,
    as_of: u64,
    key: SeriesKey,
    arrivals: Vec<Arrival<'_>>,
    kept: Option<Kept>,
) -> Result<(SeriesKey, Kept, u64), SeriesError> {
    let row = RowKey::of(&key);
    let kept = match kept {
        Some(kept) => kept,
        None => load_series(db, visible, stamp, &key, &row).await?,
    };
    let known = match &kept.version {
        Some(version) => repeated(db, visible, &key, &row, version, &arrivals).await?,
        None => HashSet::new(),
    };
    let damaged = |damaged: Damaged| db.damaged(damaged.of_chunk(&key, as_of).0);
    let mut fold = Fold::resume(kept.born, kept.version.as_ref(), kept.open.clone(), &known).map_err(damaged)?;
    let (mut added, mut place) = (0, Place::default());
    for arrival in &arrivals {
        if place.sequence != arrival.sequence {
            place = Place { sequence: arrival.sequence, start: 0 };
        }
        for point in arrival.points {
            added += u64::from(fold.add(*point, place).map_err(damaged)?);
            place.start += 1;
        }
    }
    let Some(folded) = fold.finish().map_err(damaged)? else { return Ok((key, kept, added)) };
    // The series before its chunks: one cut off in between leaves no chunk that no series leads to, which nobody would ever remove.
    let before_as_of = kept.version.map_or(-1, |_| kept.as_of.cast_signed());
    let before = kept.version.map(|version| version.bytes()).unwrap_or_default();
    let (epoch, now, figures) = (stamp.epoch, as_of.cast_signed(), folded.version.bytes());
    let values = (&row.source, row.attempt, row.rank, &row.name, epoch, now, figures, before_as_of, before, stamp.timestamp);
    db.run(&db.statements.put_series, values).await?;
    let mut writes = Vec::new();
    for written in &folded.written {
        writes.push(store_chunk(db, stamp, &row, kept.born, written));
    }
    stream::iter(writes).buffer_unordered(CHUNKS_AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok((key, Kept { born: kept.born, version: Some(folded.version), as_of, open: folded.open }, added))
}

/// A series as the tables name it.
pub(super) struct RowKey {
    pub(super) source: String,
    pub(super) attempt: i64,
    pub(super) rank: i64,
    pub(super) name: String,
}

impl RowKey {
    pub(super) fn of(key: &SeriesKey) -> Self {
        let (attempt, rank) = (i64::from(key.attempt.0), i64::from(key.rank.0));
        Self { source: key.source.to_string(), attempt, rank, name: key.name.as_str().to_owned() }
    }
}

async fn load_series(db: &Db, visible: &Visible, stamp: Stamp, key: &SeriesKey, row: &RowKey) -> Result<Kept, SeriesError> {
    let versions: Option<Versions> = db.row(&db.statements.one_series, (&row.source, row.attempt, row.rank, &row.name)).await?;
    let versions = versions.unwrap_or_default();
    let damaged = |Damaged(what)| db.damaged(what);
    match seen(&versions, visible, key.source.shard()) {
        Seen::Passed => Err(ahead(db, &row.source)),
        Seen::Nothing => {
            // One whose first commit failed goes on under its name, so that its chunk is written over and none is left behind.
            let left = versions.2.filter(|bytes| !bytes.is_empty()).map(|bytes| Version::read(&bytes)).transpose().map_err(damaged)?;
            let born = left.map_or(stamp.timestamp.cast_unsigned(), |version| version.born);
            Ok(Kept { born, version: None, as_of: 0, open: None })
        }
        Seen::As(bytes, as_of) => {
            let version = Version::read(bytes).map_err(damaged)?;
            let open = match load_chunk(db, visible, key, row, &version).await {
                Ok(open) => open,
                Err(SeriesError::Corrupted { what, .. }) => {
                    // It stays as it is: reading its series says so, writing goes on behind it.
                    tracing::error!(what, "a chunk is damaged; new points go into another one");
                    None
                }
                Err(error) => return Err(error),
            };
            Ok(Kept { born: version.born, version: Some(version), as_of, open })
        }
    }
}

async fn load_chunk(
    db: &Db,
    visible: &Visible,
    key: &SeriesKey,
    row: &RowKey,
    version: &Version,
) -> Result<Option<OpenChunk>, SeriesError> {
    let bucket = version.chunks.saturating_sub(1) / BUCKET_CHUNKS;
    let missing = || db.damaged(Damaged("its row is missing".to_owned()).of_chunk(key, version.last.sequence).0);
    let stored = one_chunk(db, row, version.born, bucket, version.last).await?.ok_or_else(missing)?;
    let stored = read_chunk(db, key, stored, visible)?.ok_or_else(missing)?;
    OpenChunk::of(stored).map_err(|damaged| db.damaged(damaged.of_chunk(key, version.last.sequence).0))
}

async fn one_chunk(db: &Db, row: &RowKey, born: u64, bucket: u64, at: Place) -> Result<Option<ChunkRow>, SeriesError> {
    let values = (
        &row.source,
        row.attempt,
        row.rank,
        &row.name,
        born.cast_signed(),
        bucket.cast_signed(),
        at.sequence.cast_signed(),
        i64::from(at.start),
    );
    db.row(&db.statements.one_chunk, values).await
}

/// Which of the points that come repeat a stored one. Only points that lie within the series' bounds of both step and time can: a program
/// that goes forward never pays for this.
async fn repeated(
    db: &Db,
    visible: &Visible,
    key: &SeriesKey,
    row: &RowKey,
    version: &Version,
    arrivals: &[Arrival<'_>],
) -> Result<HashSet<(i64, i64, u64)>, SeriesError> {
    let mut bounds = version.stats;
    let mut candidates = Vec::new();
    for point in arrivals.iter().flat_map(|arrival| arrival.points) {
        if bounds.may_hold(point) {
            candidates.push(*point);
        }
        bounds.add(*point);
    }
    let mut known = HashSet::new();
    if candidates.is_empty() {
        return Ok(known);
    }
    for bucket in 0..version.buckets() {
        let mut places = Vec::new();
        let values = (&row.source, row.attempt, row.rank, &row.name, version.born.cast_signed(), bucket.cast_signed());
        db.rows(&db.statements.chunk_headers, values, |(sequence, start, header): (i64, i64, Option<Vec<u8>>)| {
            let header = header.unwrap_or_default();
            if Header::read(&header).is_ok_and(|(header, _)| candidates.iter().any(|point| header.may_hold(point))) {
                places.push(Place { sequence: sequence.cast_unsigned(), start: start as u32 });
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        for at in places {
            let Some(stored) = one_chunk(db, row, version.born, bucket, at).await? else { continue };
            let Some(stored) = read_chunk(db, key, stored, visible)? else { continue };
            // A damaged chunk holds back no write; what it held is taken for unknown.
            let points = Header::read(&stored.bytes).and_then(|(header, blocks)| chunk::points(&header, blocks)).unwrap_or_default();
            let points: HashSet<_> = points.iter().take(stored.visible).map(bits).collect();
            known.extend(candidates.iter().map(bits).filter(|bits| points.contains(bits)));
        }
    }
    Ok(known)
}

async fn store_chunk(db: &Db, stamp: Stamp, row: &RowKey, born: u64, written: &Written) -> Result<(), SeriesError> {
    let (born, bucket) = (born.cast_signed(), written.bucket().cast_signed());
    let (sequence, start) = (written.at.sequence.cast_signed(), i64::from(written.at.start));
    if written.begins_bucket() {
        let values = (&row.source, row.attempt, row.rank, &row.name, born, bucket, stamp.epoch, sequence, start, stamp.timestamp);
        db.run(&db.statements.put_bucket, values).await?;
    }
    let (header, body) = split(&written.bytes);
    let (last, places, stamp) = (written.last_sequence().cast_signed(), places_bytes(&written.places), (stamp.epoch, stamp.timestamp));
    let RowKey { source, attempt, rank, name } = row;
    let values = (source, attempt, rank, name, born, bucket, sequence, start, stamp.0, last, places, header, body, stamp.1);
    db.run(&db.statements.put_chunk, values).await.map(|_| ())
}
