//! The back end in a cluster, against a real Apache Cassandra: the suite, then what a single file cannot meet.

mod late;
mod servers;

use footplate_series::{
    Feed, HistoryQuery, IngestBatch, PageToken, SeriesError, SeriesStore,
    conformance::{Writer, in_time, point, points},
    scylla::{Address, SCHEMA_VERSION, Scylla},
};
use footplate_testkit::{CassandraServer, Keyspace, cassandra};
use footplate_types::Timestamp;
use scylla::client::{session::Session, session_builder::SessionBuilder};
use std::{sync::Arc, time::Duration};

async fn connect(keyspace: &Keyspace, writer: &str) -> Scylla {
    Scylla::connect(&Address::parse(&keyspace.url()).unwrap(), writer).await.unwrap()
}

async fn fresh() -> (Keyspace, Box<dyn SeriesStore>) {
    let keyspace = cassandra().await;
    let store = connect(&keyspace, "suite").await;
    (keyspace, Box::new(store))
}

footplate_series::series_conformance!(fresh);

/// Another client, to look at the tables and to do what a store never would.
async fn raw(keyspace: &Keyspace) -> Session {
    let raw = SessionBuilder::new().known_node(&keyspace.node).build().await.unwrap();
    raw.use_keyspace(&keyspace.name, false).await.unwrap();
    raw
}

#[tokio::test]
async fn everything_is_there_for_the_next_tracker() {
    let keyspace = cassandra().await;
    in_time(async {
        let mut writer = Writer::of("reopen");
        for part in 0..5 {
            let store = connect(&keyspace, &format!("tracker-{part}")).await;
            let batch = writer.write(&store, &[("loss", points(part * 300..part * 300 + 300))]).await;
            assert_eq!(store.ingest(&[batch]).await.unwrap().duplicate_batches, 1);
        }
        let store = connect(&keyspace, "reader").await;
        assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..1_500));
        assert_eq!(store.floor(writer.source.shard()).await.unwrap(), 5);
        assert_eq!(store.sessions(&writer.source).await.unwrap()[0].contiguous, 5);
        assert!(store.told().await.unwrap().contains("written by tracker-4"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_series_of_many_partitions_reads_on_from_any_place() {
    let keyspace = cassandra().await;
    in_time(async {
        let store = connect(&keyspace, "long").await;
        let mut writer = Writer::of("long");
        let count = 540_000;
        for from in (0..count).step_by(60_000) {
            writer.write(&store, &[("loss", points(from..from + 60_000))]).await;
        }
        let key = writer.key("loss");
        let query = HistoryQuery { from_step: count - 10_000, ..HistoryQuery::default() };
        let page = store.history(&key, query).await.unwrap();
        assert_eq!((page.points, page.next), (points(count - 10_000..count), None));
        let first = store.history(&key, HistoryQuery { from_step: 530_000, limit: 1, ..HistoryQuery::default() }).await.unwrap();
        let after = first.next.unwrap();
        assert!(after.sequence > 1 && after.index > 0);
        let rest = store.history(&key, HistoryQuery { after: Some(after), ..HistoryQuery::default() }).await.unwrap();
        assert_eq!(rest.points, points(530_001..count), "the token leads to the partition that it lies in");
        let again = writer.batch(&[("loss", points([5, 529_999, 539_999]))]);
        assert_eq!(store.ingest(&[again]).await.unwrap().points, 0, "a repeat is found in whichever partition it lies");
        store.delete(&key.source).await.unwrap();
        writer.write(&store, &[("loss", points(0..3))]).await;
        assert_eq!(store.points(&key).await.unwrap(), points(0..3), "none of the old partitions comes back");
        let raw = raw(&keyspace).await;
        let left = raw.query_unpaged("SELECT COUNT(*) FROM chunks", ()).await.unwrap();
        assert_eq!(left.into_rows_result().unwrap().single_row::<(i64,)>().unwrap().0, 1, "their chunks are gone");
        let nowhere = PageToken { sequence: u64::MAX, offset: 0, index: 0 };
        assert_eq!(store.history(&key, HistoryQuery { after: Some(nowhere), ..HistoryQuery::default() }).await.unwrap().points, []);
    })
    .await;
}

/// A tracker is cut off in the middle of a commit again and again, and the next one goes on with other points under the same sequences, as
/// when METRICS was made anew: what was not acknowledged must be there whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_cut_short_is_there_whole_or_not_at_all() {
    let keyspace = cassandra().await;
    in_time(async {
        let mut expected: Vec<footplate_series::Point> = Vec::new();
        let mut writer = Writer::of("cut-short");
        for round in 0..12u64 {
            let store = Arc::new(connect(&keyspace, &format!("round-{round}")).await);
            let start = expected.len() as i64;
            let batch = |n: u64| {
                let from = start + n as i64 * 40;
                let part: Vec<_> = (from..from + 40).map(|step| point(step, round as f64)).collect();
                let sequence = writer.sequence + n + 1;
                IngestBatch { sequence, n: writer.n + n + 1, ..writer.clone().batch(&[("loss", part.clone()), ("lr", part)]) }
            };
            let batches: Vec<IngestBatch> = (0..40).map(batch).collect();
            let (told, mut acknowledged) = tokio::sync::watch::channel(0);
            let writing = tokio::spawn({
                let (store, batches) = (store.clone(), batches.clone());
                async move {
                    for (stored, batch) in (1..).zip(&batches) {
                        store.ingest(std::slice::from_ref(batch)).await.unwrap();
                        told.send_replace(stored);
                    }
                }
            });
            acknowledged.wait_for(|stored| *stored > round % 3).await.unwrap();
            tokio::time::sleep(Duration::from_millis(round * 3)).await;
            writing.abort();
            let _ = writing.await;
            drop(store);
            let reader = connect(&keyspace, &format!("reader-{round}")).await;
            // From here on the writer that was cut off, whose last statements may still be on their way, changes nothing any more.
            reader.raise_floor((writer.source.shard() + 1) % footplate_series::SHARDS, round + 1).await.unwrap();
            let state = reader.state(&writer.source).await.unwrap();
            let stored = (state.floor - writer.sequence) as usize;
            for batch in &batches[..stored] {
                expected.extend(&batch.series[0].1);
            }
            (writer.sequence, writer.n) = (state.floor, writer.n + stored as u64);
            let contiguous = state.sessions.first().map_or(0, |progress| progress.contiguous);
            assert_eq!(contiguous, writer.n, "the session stands where the floor stands");
            for name in ["loss", "lr"] {
                assert_eq!(reader.points(&writer.key(name)).await.unwrap(), expected, "round {round}");
            }
            assert!(state.series.iter().all(|summary| summary.stats.count == expected.len() as u64));
        }
    })
    .await;
}

/// The table of chunks is away, as if the tracker had been cut off before it wrote the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_series_is_named_before_a_chunk_of_it_is_stored() {
    let keyspace = cassandra().await;
    in_time(async {
        let store = connect(&keyspace, "cut off").await;
        let raw = raw(&keyspace).await;
        let mut writer = Writer::of("named");
        let batch = writer.batch(&[("loss", points(0..10))]);
        store.raise_floor((writer.source.shard() + 1) % footplate_series::SHARDS, 1).await.unwrap();
        raw.query_unpaged("DROP TABLE chunks", ()).await.unwrap();
        store.ingest(std::slice::from_ref(&batch)).await.unwrap_err();
        let named = raw.query_unpaged("SELECT name FROM series", ()).await.unwrap().into_rows_result().unwrap();
        assert_eq!(named.single_row::<(String,)>().unwrap().0, "loss");
        assert_eq!(store.list(&writer.source).await.unwrap(), [], "it does not count yet");
        drop(store);

        let tables = include_str!("../../../../deploy/scylla/0001_series.cql");
        let chunks = tables.split("CREATE TABLE IF NOT EXISTS ").find(|table| table.starts_with("chunks (")).unwrap();
        let (chunks, _) = chunks.split_once(';').unwrap();
        raw.query_unpaged(format!("CREATE TABLE {chunks}"), ()).await.unwrap();
        let next = connect(&keyspace, "goes on").await;
        next.ingest(std::slice::from_ref(&batch)).await.unwrap();
        assert_eq!(next.points(&writer.key("loss")).await.unwrap(), points(0..10));
        next.delete(&writer.source).await.unwrap();
        let left = raw.query_unpaged("SELECT COUNT(*) FROM chunks", ()).await.unwrap().into_rows_result().unwrap();
        assert_eq!(left.single_row::<(i64,)>().unwrap().0, 0, "whatever was stored of it is found again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_trackers_one_writes_and_the_other_follows_and_takes_over_when_it_stands_still() {
    let keyspace = cassandra().await;
    in_time(async {
        let (first, second) = tokio::join!(connect(&keyspace, "first"), connect(&keyspace, "second"));
        let mut writer = Writer::of("two");
        let all: Vec<IngestBatch> = (0..30).map(|part| writer.batch(&[("loss", points(part * 10..part * 10 + 10))])).collect();
        let feed = |store: Scylla, all: Vec<IngestBatch>| async move {
            for batch in &all {
                while store.ingest(std::slice::from_ref(batch)).await.is_err() {}
            }
            store
        };
        let (first, second) = tokio::join!(feed(first, all.clone()), feed(second, all));
        for store in [&first, &second] {
            assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..300));
            assert_eq!(store.points_count(&writer.source).await.unwrap(), 300);
            assert_eq!(store.floor(writer.source.shard()).await.unwrap(), 30);
        }
        let third = connect(&keyspace, "third").await;
        let stored = writer.write(&third, &[("loss", points(300..310))]).await;
        let other = IngestBatch { series: vec![(writer.key("loss").name, points(900..910))], ..stored };
        for relieved in [&first, &second] {
            assert_eq!(relieved.ingest(std::slice::from_ref(&other)).await.unwrap().points, 0, "another has stored that sequence");
        }
        assert_eq!(first.points(&writer.key("loss")).await.unwrap(), points(0..310));
        let next = writer.batch(&[("loss", points(310..320))]);
        while let Err(refused) = first.ingest(std::slice::from_ref(&next)).await {
            assert!(matches!(&refused, SeriesError::Elsewhere { writer, .. } if writer == "third"), "{refused}");
            assert!(refused.is_transient());
        }
        assert!(first.told().await.unwrap().contains("written by first"), "the other stood still");
        assert_eq!(third.points(&writer.key("loss")).await.unwrap(), points(0..320));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tracker_that_stored_nothing_leaves_no_row_behind() {
    let keyspace = cassandra().await;
    in_time(async {
        let mut writer = Writer::of("idle");
        for round in 0..3i64 {
            for start in 0..4 {
                // Its first write makes it the writer, even of nothing.
                connect(&keyspace, &format!("idle-{round}-{start}")).await.ingest(&[]).await.unwrap();
            }
            writer.write(&connect(&keyspace, "writes").await, &[("loss", points(round * 10..round * 10 + 10))]).await;
            let epochs = raw(&keyspace).await.query_unpaged("SELECT epoch FROM epochs WHERE part = 0", ()).await.unwrap();
            assert_eq!(epochs.into_rows_result().unwrap().rows_num() as i64, round + 1, "one a tracker that wrote");
        }
        let last = connect(&keyspace, "reads").await;
        assert_eq!(last.points(&writer.key("loss")).await.unwrap(), points(0..30));
    })
    .await;
}

#[tokio::test]
async fn a_feed_never_counts_from_below_what_is_stored() {
    let keyspace = cassandra().await;
    in_time(async {
        let store = connect(&keyspace, "feed").await;
        let mut writer = Writer::of("feed");
        writer.sequence = 99;
        writer.write(&store, &[("loss", points(0..3))]).await;
        let created = Timestamp::from_nanos(7);
        assert!(matches!(store.feed_from(Feed { created, base: 99 }).await, Err(SeriesError::Invalid(_))));
        store.feed_from(Feed { created, base: 100 }).await.unwrap();
        assert_eq!(store.feed().await.unwrap(), Some(Feed { created, base: 100 }));
        let beyond = IngestBatch { sequence: u64::MAX, ..writer.batch(&[]) };
        assert!(matches!(store.ingest(&[beyond]).await, Err(SeriesError::Invalid(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_start_at_once_make_the_tables_once() {
    let keyspace = cassandra().await;
    in_time(async {
        let names: Vec<String> = (0..4).map(|at| format!("tracker-{at}")).collect();
        let starts = names.iter().map(|name| connect(&keyspace, name));
        let stores = futures::future::join_all(starts).await;
        let mut writer = Writer::of("at-once");
        writer.write(&stores[2], &[("loss", points(0..9))]).await;
        for store in &stores {
            assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..9));
        }
    })
    .await;
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused_with_what_to_do() {
    let keyspace = cassandra().await;
    in_time(async {
        let kept = Address::parse(&format!("{}?migrate=no", keyspace.url())).unwrap();
        let missing = Scylla::connect(&kept, "old").await.unwrap_err();
        assert!(matches!(&missing, SeriesError::Schema { found: 0, needed, .. } if *needed == SCHEMA_VERSION), "{missing}");
        drop(connect(&keyspace, "makes").await);
        Scylla::connect(&kept, "fits").await.unwrap();
        let raw = raw(&keyspace).await;
        let note = |version: i32| raw.query_unpaged("UPDATE schema_version SET version = ? WHERE part = 0 IF EXISTS", (version,));
        note(SCHEMA_VERSION - 1).await.unwrap();
        let old = Scylla::connect(&kept, "old").await.unwrap_err();
        assert!(old.to_string().contains("migrate=no") && !old.is_transient(), "{old}");
        drop(connect(&keyspace, "brings in line").await);
        Scylla::connect(&kept, "fits again").await.unwrap();
        note(SCHEMA_VERSION + 1).await.unwrap();
        let address = Address::parse(&keyspace.url()).unwrap();
        let new = Scylla::connect(&address, "too old a program").await.unwrap_err();
        assert!(matches!(&new, SeriesError::Schema { found, .. } if *found == SCHEMA_VERSION + 1), "{new}");
        assert!(new.to_string().contains("newer tracker"), "{new}");
    })
    .await;
}

#[tokio::test]
async fn a_wrong_address_is_told_as_that() {
    in_time(async {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for node in [closed.to_string(), "no-such-host.invalid:9042".to_owned()] {
            let address = Address::parse(&format!("scylla://{node}/footplate")).unwrap();
            let away = Scylla::connect(&address, "nobody").await.unwrap_err();
            assert!(matches!(&away, SeriesError::Away { .. }) && away.to_string().contains("address is right"), "{away}");
        }
        let file = "scylla://127.0.0.1:1/k?user=u&password_file=/nowhere/at/all";
        let refused = Scylla::connect(&Address::parse(file).unwrap(), "nobody").await.unwrap_err();
        assert!(matches!(&refused, SeriesError::Refused { .. }) && refused.to_string().contains("/nowhere/at/all"), "{refused}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_while_writing_loses_and_doubles_nothing() {
    let server = CassandraServer::start().await;
    in_time(async {
        let keyspace = server.keyspace();
        let store = Arc::new(connect(&keyspace, "survivor").await);
        let mut writer = Writer::of("killed");
        let (told, mut acknowledged) = tokio::sync::watch::channel(0u64);
        let batches: Vec<IngestBatch> =
            (0..400).map(|part| writer.batch(&[("loss", points(part * 50..part * 50 + 50)), ("lr", points([part]))])).collect();
        let writing = tokio::spawn({
            let store = store.clone();
            async move {
                let mut refused = 0;
                for batch in &batches {
                    // As the tracker does: again and again until it is stored, since METRICS keeps it.
                    while let Err(error) = store.ingest(std::slice::from_ref(batch)).await {
                        assert!(error.is_transient(), "{error}");
                        refused += 1;
                    }
                    told.send_replace(batch.sequence);
                }
                refused
            }
        });
        let key = writer.key("loss");
        for round in 1..=2u64 {
            acknowledged.wait_for(|sequence| *sequence >= round * 60).await.unwrap();
            server.kill9().await.unwrap();
            let before = *acknowledged.borrow();
            let away = store.floor(writer.source.shard()).await.unwrap_err();
            assert!(matches!(away, SeriesError::Away { .. }), "{away}");
            assert!(*acknowledged.borrow() <= before + 1, "nothing is acknowledged while the server is away");
            server.restart().await.unwrap();
            acknowledged.wait_for(|sequence| *sequence > before + 1).await.unwrap();
            let page = store.history(&key, HistoryQuery::default()).await.unwrap();
            assert!(page.floor >= before, "{} was acknowledged, {} is stored", before, page.floor);
            assert_eq!(page.points, points(0..page.floor as i64 * 50));
        }
        assert!(writing.await.unwrap() > 0, "the outages were met");
        assert_eq!(store.points(&key).await.unwrap(), points(0..20_000));
        assert_eq!(store.points(&writer.key("lr")).await.unwrap(), points(0..400));
        assert_eq!(store.sessions(&writer.source).await.unwrap()[0].contiguous, 400);
    })
    .await;
}
