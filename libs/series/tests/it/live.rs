//! Store and tail read as one.

use footplate_series::{
    HistoryQuery, IngestBatch, Live, SeriesStats, TailFull,
    conformance::{Writer, metric, point, points},
    embedded::Embedded,
};
use footplate_types::{AttemptNumber, Rank, RunId};
use std::sync::Arc;

fn live(most_tail_points: u64) -> (tempfile::TempDir, Arc<Live>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(folder.path()).unwrap());
    (folder, Arc::new(Live::new(store, most_tail_points)))
}

fn push(live: &Live, batch: &IngestBatch) -> bool {
    live.push(Arc::new(batch.clone())).unwrap()
}

#[tokio::test]
async fn a_batch_is_read_once_before_while_and_after_it_is_stored() {
    let (_folder, live) = live(1_000_000);
    let mut writer = Writer::of("once");
    let key = writer.key("loss");
    let mut all = Vec::new();
    for part in 0..30 {
        let batch = writer.batch(&[("loss", points(part * 40..part * 40 + 40))]);
        all.extend(points(part * 40..part * 40 + 40));
        assert!(push(&live, &batch));
        assert_eq!(live.points(&key).await.unwrap(), all);
        // Stored, and still in the tail.
        live.store().ingest(std::slice::from_ref(&batch)).await.unwrap();
        assert_eq!(live.points(&key).await.unwrap(), all);
        assert_eq!(live.latest(&writer.source).await.unwrap()[0].stats, SeriesStats::of(&all).unwrap());
        if part % 3 == 0 {
            live.trim(writer.source.shard(), writer.sequence);
            assert_eq!(live.points(&key).await.unwrap(), all);
        }
    }
    assert_eq!(live.sample(&key, 100).await.unwrap(), footplate_series::reduce(&all, 100));
}

#[tokio::test]
async fn a_batch_sent_again_or_a_point_repeated_shows_once() {
    let (_folder, live) = live(1_000);
    let mut writer = Writer::of("repeat");
    let key = writer.key("loss");
    let first = writer.batch(&[("loss", points(0..5))]);
    live.ingest(std::slice::from_ref(&first)).await.unwrap();
    writer.sequence += 1;
    push(&live, &IngestBatch { sequence: writer.sequence, ..first });
    let repeats = writer.batch(&[("loss", vec![point(2, 2f64.sin()), point(9, 1.0), point(9, 1.0), point(2, 7.0)])]);
    push(&live, &repeats);
    writer.sequence += 1;
    assert!(!push(&live, &IngestBatch { sequence: writer.sequence, ..repeats.clone() }));
    let expected: Vec<_> = points(0..5).into_iter().chain([point(9, 1.0), point(2, 7.0)]).collect();
    assert_eq!(live.points(&key).await.unwrap(), expected);
    assert_eq!(live.latest(&writer.source).await.unwrap()[0].stats, SeriesStats::of(&expected).unwrap());
    live.ingest(&[repeats]).await.unwrap();
    assert_eq!(live.points(&key).await.unwrap(), expected, "the store comes to the same");
}

#[tokio::test]
async fn a_batch_sent_again_after_a_deletion_shows_nothing() {
    let (_folder, live) = live(1_000);
    let mut writer = Writer::of("deleted");
    let batch = writer.batch(&[("loss", points(0..5))]);
    live.ingest(std::slice::from_ref(&batch)).await.unwrap();
    live.store().delete(&writer.source).await.unwrap();
    push(&live, &IngestBatch { sequence: batch.sequence + 1, ..batch });
    assert_eq!(live.points(&writer.key("loss")).await.unwrap(), []);
    assert_eq!(live.latest(&writer.source).await.unwrap(), []);
}

#[tokio::test]
async fn pages_ranges_and_attempts_reach_into_the_tail() {
    let (_folder, live) = live(10_000);
    let mut first = Writer::of("reach");
    let batch = first.batch(&[("loss", points(0..300))]);
    live.ingest(&[batch]).await.unwrap();
    push(&live, &first.batch(&[("loss", points(300..310)), ("new", points(0..2))]));
    let mut query = HistoryQuery { limit: 128, ..HistoryQuery::default() };
    let mut read = Vec::new();
    loop {
        let page = live.history(&first.key("loss"), query).await.unwrap();
        read.extend(page.points);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(read, points(0..310));
    let range = HistoryQuery { from_step: 299, to_step: 301, ..HistoryQuery::default() };
    assert_eq!(live.history(&first.key("loss"), range).await.unwrap().points, points(299..302));
    assert_eq!(live.points(&first.key("new")).await.unwrap(), points(0..2));
    let mut second = Writer { attempt: AttemptNumber(2), n: 0, ..first.clone() };
    push(&live, &second.batch(&[("loss", points(200..205))]));
    let merged = live.merged(RunId::derived(&[b"reach"]), Rank(0), &metric("loss")).await.unwrap();
    assert_eq!(merged.iter().map(|merged| merged.point).collect::<Vec<_>>(), points(0..205));
}

#[tokio::test]
async fn a_full_tail_is_back_pressure_until_the_store_has_caught_up() {
    let (_folder, live) = live(100);
    let mut writer = Writer::of("full");
    let first = writer.batch(&[("loss", points(0..80))]);
    let second = writer.batch(&[("loss", points(80..160))]);
    push(&live, &first);
    assert_eq!(live.push(Arc::new(second.clone())), Err(TailFull { most_points: 100 }));
    live.ingest(&[first]).await.unwrap();
    assert!(push(&live, &second));
    assert_eq!(live.points(&writer.key("loss")).await.unwrap(), points(0..160));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_misses_or_doubles_a_batch_while_it_moves_to_the_store() {
    let (_folder, live) = live(1_000_000);
    let writing = tokio::spawn({
        let live = live.clone();
        async move {
            let mut writer = Writer::of("moving");
            for part in 0..150 {
                let batch = writer.batch(&[("loss", points(part * 10..part * 10 + 10))]);
                push(&live, &batch);
                live.ingest(&[batch]).await.unwrap();
            }
        }
    });
    let key = Writer::of("moving").key("loss");
    let mut last = 0;
    while last < 1_500 {
        let read = live.points(&key).await.unwrap();
        assert_eq!(read, points(0..read.len() as i64));
        assert!(read.len() >= last && read.len().is_multiple_of(10));
        last = read.len();
        for summary in live.latest(&key.source).await.unwrap() {
            assert!(summary.stats.count >= last as u64 && summary.stats.count.is_multiple_of(10));
            assert_eq!(summary.stats.max_step + 1, summary.stats.count as i64);
        }
    }
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_commits_come_between_shows_every_received_point_once() {
    let (_folder, live) = live(1_000_000);
    let mut writer = Writer::of("between");
    let key = writer.key("loss");
    // Wide bounds, so that every later point could be a repeat and is looked for in the store.
    let ends = writer.batch(&[("loss", vec![point(0, 0.0), point(10_000, 0.0)])]);
    push(&live, &ends);
    let (commits, mut waiting) = tokio::sync::mpsc::unbounded_channel::<IngestBatch>();
    commits.send(ends).unwrap();
    let committing = tokio::spawn({
        let live = Arc::clone(&live);
        async move {
            while let Some(batch) = waiting.recv().await {
                live.ingest(&[batch]).await.unwrap();
            }
        }
    });
    for step in 1..=300usize {
        let batch = writer.batch(&[("loss", vec![point(step as i64, 1.0)])]);
        push(&live, &batch);
        commits.send(batch).unwrap();
        assert_eq!(live.points(&key).await.unwrap().len(), step + 2);
        assert_eq!(live.latest(&writer.source).await.unwrap()[0].stats.count, step as u64 + 2);
    }
    drop(commits);
    committing.await.unwrap();
}
