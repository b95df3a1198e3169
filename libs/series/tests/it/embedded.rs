//! The file of the embedded back end: one opener, damage, reopening, deletion.

use footplate_series::{
    IngestBatch, SeriesError, SeriesStore,
    conformance::{Writer, points},
    embedded::Embedded,
};
use std::{fs, path::Path};

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join("series.redb")
}

#[tokio::test]
async fn everything_is_there_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::of("reopen");
    for part in 0..20 {
        let store = Embedded::open(folder.path()).unwrap();
        let batch = writer.write(&store, &[("loss", points(part * 100..part * 100 + 100))]).await;
        assert_eq!(store.ingest(&[batch]).await.unwrap().duplicate_batches, 1);
    }
    let store = Embedded::open(folder.path()).unwrap();
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..2_000));
    assert_eq!(store.floor(writer.source.shard()).await.unwrap(), 20);
    assert_eq!(store.sessions(&writer.source).await.unwrap()[0].contiguous, 20);
}

#[tokio::test]
async fn a_second_opener_is_refused_and_let_in_when_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let first = Embedded::open(folder.path()).unwrap();
    let refused = Embedded::open(folder.path()).unwrap_err();
    assert!(matches!(&refused, SeriesError::InUse { path } if *path == file(folder.path())), "{refused}");
    assert!(refused.to_string().contains("in use"));
    Writer::of("first").write(&first, &[("loss", points(0..3))]).await;
    drop(first);
    let second = Embedded::open(folder.path()).unwrap();
    assert_eq!(second.points(&Writer::of("first").key("loss")).await.unwrap(), points(0..3));
}

#[test]
fn a_file_that_is_no_store_is_named_and_left_alone() {
    for content in [b"not a database, but long enough to be looked at, at least".repeat(200), vec![0u8; 100_000], b"x".to_vec()] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(file(folder.path()), &content).unwrap();
        let refused = Embedded::open(folder.path()).unwrap_err();
        assert!(matches!(&refused, SeriesError::Corrupted { path, .. } if *path == file(folder.path())), "{refused:?}");
        assert_eq!(fs::read(file(folder.path())).unwrap(), content);
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("taken"), b"").unwrap();
    let refused = Embedded::open(&folder.path().join("taken")).unwrap_err();
    assert!(matches!(&refused, SeriesError::Io { .. }) && refused.to_string().contains("taken"), "{refused}");
}

#[tokio::test]
async fn a_store_bent_anywhere_gives_an_error_or_the_right_points() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::of("bent");
    {
        let store = Embedded::open(folder.path()).unwrap();
        for part in 0..30 {
            writer.write(&store, &[("loss", points(part * 200..part * 200 + 200)), ("lr", points([part]))]).await;
        }
    }
    let whole = fs::read(file(folder.path())).unwrap();
    let mut noticed = 0;
    for round in 0..60 {
        let bent = tempfile::tempdir().unwrap();
        let mut bytes = whole.clone();
        let at = 64 + (round * 7_919_993) % (bytes.len() - 64);
        bytes[at] ^= 0x55;
        fs::write(file(bent.path()), bytes).unwrap();
        let Ok(store) = Embedded::open(bent.path()) else {
            noticed += 1;
            continue;
        };
        match store.points(&writer.key("loss")).await {
            Ok(read) if read.is_empty() => noticed += 1,
            Ok(read) => assert_eq!(read, points(0..6_000), "byte {at}"),
            Err(SeriesError::Corrupted { what, .. }) => {
                noticed += 1;
                assert!(!what.is_empty());
            }
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(noticed > 0, "some of sixty bent bytes hit something");
}

#[tokio::test]
async fn a_damaged_chunk_names_its_series_and_holds_back_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::of("damaged");
    {
        let store = Embedded::open(folder.path()).unwrap();
        writer.write(&store, &[("loss", points(0..100)), ("lr", points(1_000..1_100))]).await;
    }
    bend_last_chunk(folder.path());
    let store = Embedded::open(folder.path()).unwrap();
    let broken = store.points(&writer.key("lr")).await.unwrap_err();
    assert!(matches!(&broken, SeriesError::Corrupted { what, .. } if what.contains("\"lr\"") && what.contains("sequence 1")), "{broken}");
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..100));
    for part in 0..40 {
        writer.write(&store, &[("loss", points(100 + part..101 + part)), ("lr", points(1_100 + part..1_101 + part))]).await;
    }
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..140));
    let counts: Vec<u64> = store.latest(&writer.source).await.unwrap().iter().map(|summary| summary.stats.count).collect();
    assert_eq!(counts, [140, 140], "the damaged series goes on in new chunks");
}

/// Flips a bit in the body of the chunk of the series with the highest number, past redb.
fn bend_last_chunk(folder: &Path) {
    let database = redb::Database::open(file(folder)).unwrap();
    let table: redb::TableDefinition<'_, &[u8; 20], &[u8]> = redb::TableDefinition::new("chunks");
    let txn = database.begin_write().unwrap();
    {
        use redb::ReadableTable;
        let mut chunks = txn.open_table(table).unwrap();
        let (key, mut bytes) = chunks.last().unwrap().map(|(key, bytes)| (*key.value(), bytes.value().to_vec())).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        chunks.insert(&key, bytes.as_slice()).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn a_store_of_a_newer_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Embedded::open(folder.path()).unwrap());
    let database = redb::Database::open(file(folder.path())).unwrap();
    let meta: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    let txn = database.begin_write().unwrap();
    txn.open_table(meta).unwrap().insert("format", 2).unwrap();
    txn.commit().unwrap();
    drop(database);
    let refused = Embedded::open(folder.path()).unwrap_err();
    assert!(matches!(refused, SeriesError::TooNew { found: 2, known: 1, .. }), "{refused}");
}

#[tokio::test]
async fn a_deletion_gives_its_room_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    let mut sizes = Vec::new();
    for round in 0..6u32 {
        let mut writer = Writer::of(&format!("room-{round}"));
        // Whatever shard the source is in, its sequences lie above the earlier rounds'.
        writer.sequence = u64::from(round) * 100;
        for part in 0..10 {
            writer.write(&store, &[("loss", points(part * 5_000..part * 5_000 + 5_000))]).await;
        }
        store.delete(&writer.source).await.unwrap();
        sizes.push(fs::metadata(file(folder.path())).unwrap().len());
    }
    assert!(sizes[5] <= sizes[1] * 2, "the file does not grow with every deleted run: {sizes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_whole_commits_while_the_writer_works() {
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(Embedded::open(folder.path()).unwrap());
    let key = Writer::of("whole").key("loss");
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            let mut writer = Writer::of("whole");
            for part in 0..100 {
                writer.write(store.as_ref(), &[("loss", points(part * 7..part * 7 + 7)), ("lr", points(part * 7..part * 7 + 7))]).await;
            }
        }
    });
    let mut last = 0;
    while last < 700 {
        let read = store.history(&key, Default::default()).await.unwrap();
        assert_eq!(read.points.len() as u64, read.floor * 7, "points and floor are of one commit");
        assert!(read.points.len() >= last);
        last = read.points.len();
        let state = store.state(&key.source).await.unwrap();
        assert!(state.series.iter().all(|summary| summary.stats.count == state.floor * 7));
        assert!(state.sessions.iter().all(|progress| progress.contiguous == state.floor));
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn an_empty_call_and_an_empty_batch_are_nothing_special() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    assert_eq!(store.ingest(&[]).await.unwrap(), Default::default());
    let mut writer = Writer::of("empty");
    let batch: IngestBatch = writer.write(&store, &[]).await;
    assert_eq!(store.sessions(&writer.source).await.unwrap()[0].contiguous, 1);
    assert_eq!(store.ingest(&[batch]).await.unwrap().duplicate_batches, 1);
}
