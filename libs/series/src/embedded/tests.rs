//! The file through a disk that counts, fills up and breaks.

use super::*;
use crate::{IngestBatch, Point};
use footplate_types::{AttemptNumber, MetricName, Rank, RunId, SessionId};
use redb::{StorageBackend, backends::FileBackend};
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

const UNBOUNDED: u64 = u64::MAX;
const PAGE: u64 = 4_096;

/// What the disk has done and may still do.
#[derive(Debug)]
struct Meter {
    syncs: AtomicU64,
    written: AtomicU64,
    /// Pages that may still be taken before the disk is full; writing again to one that is taken costs none.
    room: AtomicU64,
    taken: Mutex<BTreeSet<u64>>,
}

/// A file on a disk with a meter.
#[derive(Debug)]
struct Metered {
    file: FileBackend,
    meter: Arc<Meter>,
}

impl StorageBackend for Metered {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.meter.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let length = data.len() as u64;
        let mut taken = self.meter.taken.lock().unwrap();
        let fresh: Vec<u64> = (offset / PAGE..(offset + length).div_ceil(PAGE)).filter(|page| !taken.contains(page)).collect();
        let needed = fresh.len() as u64;
        let fits = self.meter.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
            if room == UNBOUNDED { Some(room) } else { room.checked_sub(needed) }
        });
        if fits.is_err() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        taken.extend(fresh);
        self.meter.written.fetch_add(length, Ordering::Relaxed);
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.file.close()
    }
}

fn metered(folder: &Path) -> (Embedded, Arc<Meter>) {
    let meter =
        Arc::new(Meter { syncs: AtomicU64::new(0), written: AtomicU64::new(0), room: AtomicU64::new(UNBOUNDED), taken: Mutex::default() });
    let (of_store, path) = (Arc::clone(&meter), folder.join(FILE_NAME));
    let store = Embedded::open_with(path.clone(), move || {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        Builder::new().create_with_backend(Metered { file: FileBackend::new(file)?, meter: Arc::clone(&of_store) })
    });
    (store.unwrap(), meter)
}

fn batch(run: u8, sequence: u64, series: usize, points: i64) -> IngestBatch {
    let from = sequence as i64 * points;
    let points: Vec<Point> = (from..from + points).map(|step| Point { step, time_ms: step * 11, value: step as f64 / 7.0 }).collect();
    IngestBatch {
        sequence,
        source: SeriesSource::Run(RunId::from_bytes([run; 16])),
        attempt: AttemptNumber(1),
        rank: Rank(0),
        session: SessionId::from_bytes([run; 16]),
        n: sequence,
        series: (0..series).map(|at| (MetricName::parse(&format!("m{at}")).unwrap(), points.clone())).collect(),
    }
}

fn key(run: u8, name: &str) -> SeriesKey {
    let batch = batch(run, 1, 0, 0);
    SeriesKey { source: batch.source, attempt: batch.attempt, rank: batch.rank, name: MetricName::parse(name).unwrap() }
}

#[tokio::test]
async fn a_call_costs_a_bounded_number_of_syncs_and_bytes_and_a_repeated_one_none() {
    let folder = tempfile::tempdir().unwrap();
    let (store, meter) = metered(folder.path());
    store.ingest(&[batch(1, 1, 100, 1)]).await.unwrap();
    let before = (meter.syncs.load(Ordering::Relaxed), meter.written.load(Ordering::Relaxed));
    for sequence in 2..=21 {
        store.ingest(&[batch(1, sequence, 100, 1)]).await.unwrap();
    }
    let after = (meter.syncs.load(Ordering::Relaxed), meter.written.load(Ordering::Relaxed));
    println!("20 calls of one point for each of 100 series: {} syncs, {} bytes a call", after.0 - before.0, (after.1 - before.1) / 20);
    assert!(after.0 - before.0 <= 20 + 4, "{} syncs for 20 calls", after.0 - before.0);
    assert!(after.1 - before.1 <= 20 * 100 * 3 * 4096, "{} bytes for 20 calls", after.1 - before.1);
    store.ingest(&[batch(1, 21, 100, 1), batch(1, 1, 100, 1)]).await.unwrap();
    assert_eq!(meter.syncs.load(Ordering::Relaxed), after.0, "what is stored already is not written again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_wait_share_a_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (store, meter) = metered(folder.path());
    let store = Arc::new(store);
    let before = meter.syncs.load(Ordering::Relaxed);
    let calls: Vec<_> = (0..200u8)
        .map(|run| {
            let store = Arc::clone(&store);
            // Runs of one shard must come in order; here each stands alone, so that only the first of a shard is counted.
            tokio::spawn(async move { store.ingest(&[batch(run, 1, 1, 3)]).await.unwrap() })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let syncs = meter.syncs.load(Ordering::Relaxed) - before;
    assert!(syncs < 200, "{syncs} syncs for 200 calls");
}

#[tokio::test]
async fn a_full_disk_is_said_so_stores_nothing_and_is_forgotten_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (store, meter) = metered(folder.path());
    let (mut stored, mut refused) = (0, 0);
    for round in 1..=60u64 {
        meter.room.store(if round % 3 == 0 { round / 10 } else { UNBOUNDED }, Ordering::Relaxed);
        match store.ingest(&[batch(1, stored + 1, 40, 200)]).await {
            Ok(ingested) => {
                assert_eq!(ingested.points, 40 * 200);
                stored += 1;
            }
            Err(SeriesError::DiskFull { path }) => {
                assert!(path.ends_with(FILE_NAME));
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        let read = store.points(&key(1, "m0")).await.unwrap().len() as u64;
        assert_eq!(read, stored * 200, "what is stored stays readable on a full disk, and nothing else is there");
    }
    assert!(refused >= 5 && stored >= 30, "{refused} refused, {stored} stored");
    meter.room.store(UNBOUNDED, Ordering::Relaxed);
    assert_eq!(store.ingest(&[batch(1, stored + 1, 40, 200)]).await.unwrap().points, 8_000);
    for name in ["m0", "m39"] {
        let steps: Vec<i64> = store.points(&key(1, name)).await.unwrap().iter().map(|point| point.step).collect();
        assert_eq!(steps, (200..(stored as i64 + 2) * 200).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_deletion_cut_short_is_finished_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = Embedded::open(folder.path()).unwrap();
        store.ingest(&[batch(1, 1, 5, 3_000), batch(2, 1, 1, 10)]).await.unwrap();
        let source = key(1, "m0").source;
        store.slot.write(|database| writer::doom(database, &source)).unwrap();
        assert_eq!(store.points_count(&source).await.unwrap(), 0);
        assert!(chunks(&store) > 20, "the chunks are still there");
    }
    let store = Embedded::open(folder.path()).unwrap();
    store.raise_floor(0, 1).await.unwrap();
    assert_eq!(chunks(&store), 1, "the writer's first work was to remove them");
    assert_eq!(store.points(&key(2, "m0")).await.unwrap().len(), 10);
}

fn chunks(store: &Embedded) -> u64 {
    use redb::ReadableTableMetadata;
    store.slot.read(|reader| Ok(reader.transaction().open_table(tables::CHUNKS)?.len()?)).unwrap()
}

#[tokio::test]
async fn chunks_are_sealed_at_their_size_and_at_cuts_also_of_idle_series() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    store.ingest(&[batch(1, 1, 3, 600)]).await.unwrap();
    assert_eq!((chunks(&store), open(&store)), (6, 3), "one full and one open for each of three series");
    let mut next = batch(1, 2, 1, 10);
    next.sequence = CUT_EVERY_SEQUENCES + 5;
    store.ingest(&[next]).await.unwrap();
    assert_eq!((chunks(&store), open(&store)), (7, 1), "the cut sealed the two idle ones as well");
    assert_eq!(store.points(&key(1, "m1")).await.unwrap().len(), 600);
}

#[tokio::test]
async fn a_chunk_lies_under_the_sequence_and_offset_that_it_starts_from() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    store.ingest(&[batch(1, 7, 1, 600), batch(1, 20, 1, 500)]).await.unwrap();
    let mut starts = Vec::new();
    let mut query = HistoryQuery { limit: 1, ..HistoryQuery::default() };
    for step in [600 * 7 + 1, 600 * 7 + 513, 20 * 500 + 437] {
        query.from_step = step;
        let next = store.history(&key(1, "m0"), query).await.unwrap().next.unwrap();
        starts.push((next.sequence, next.offset, next.index));
    }
    assert_eq!(starts, [(7, 0, 2), (7, 512, 2), (20, 424, 14)], "whatever was stored together, the same stream makes the same chunks");
}

fn open(store: &Embedded) -> u64 {
    use redb::ReadableTableMetadata;
    store.slot.read(|reader| Ok(reader.transaction().open_table(tables::OPEN)?.len()?)).unwrap()
}
