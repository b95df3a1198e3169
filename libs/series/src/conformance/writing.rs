//! What a store does with what it is given.

use super::{Writer, metric, point, points};
use crate::{Feed, Ingested, SeriesKey, SeriesStore, embedded::CUT_EVERY_SEQUENCES};
use footplate_types::{Rank, SessionId, Timestamp};
use std::{future::Future as _, slice::from_ref};

pub async fn what_was_ingested_reads_back_bit_for_bit(store: &dyn SeriesStore) {
    let mut writer = Writer::of("bits");
    let mut all = points(0..2_000);
    let strange =
        [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE / 3.0, f64::from_bits(0x7ff0_0000_dead_beef)];
    all.extend(strange.iter().zip([0, -1, i64::MAX, i64::MIN, 7, 8, 9]).map(|(value, step)| point(step, *value)));
    for part in all.chunks(301) {
        writer.write(store, &[("loss", part.to_vec())]).await;
    }
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), all);
    assert_eq!(store.points_count(&writer.source).await.unwrap(), all.len() as u64);
    assert_eq!(store.list(&writer.source).await.unwrap(), [writer.key("loss")]);
}

pub async fn an_unknown_series_is_empty_and_not_an_error(store: &dyn SeriesStore) {
    let mut writer = Writer::of("unknown");
    for _ in 0..2 {
        assert_eq!(store.points(&writer.key("none")).await.unwrap(), []);
        assert_eq!(store.sample(&writer.key("none"), 10).await.unwrap().count, 0);
        let other = SeriesKey { rank: Rank(9), ..writer.key("loss") };
        assert_eq!(store.points(&other).await.unwrap(), []);
        writer.write(store, &[("loss", points(0..3)), ("empty", vec![])]).await;
    }
    let state = store.state(&Writer::of("nobody").source).await.unwrap();
    assert!(state.series.is_empty() && state.sessions.is_empty());
    assert_eq!(store.list(&writer.source).await.unwrap(), [writer.key("loss")], "a metric without points is no series");
}

pub async fn names_of_any_script_and_samples_of_nodes_are_kept_apart(store: &dyn SeriesStore) {
    let names = ["val/acc (top 1)", "学习率", "é", "e\u{301}", "a", "A", "a/b", &"x".repeat(250)];
    for mut writer in [Writer::of("names"), Writer::of_node("gpu-01"), Writer { rank: Rank(3), sequence: 10, ..Writer::of("names") }] {
        for (at, name) in (0i64..).zip(names) {
            writer.write(store, &[(name, points(at..at + 2))]).await;
        }
        for (at, name) in (0i64..).zip(names) {
            assert_eq!(store.points(&writer.key(name)).await.unwrap(), points(at..at + 2), "{name}");
        }
    }
    assert_eq!(store.list(&Writer::of("names").source).await.unwrap().len(), 2 * names.len());
    assert_eq!(store.list(&Writer::of_node("gpu-01").source).await.unwrap().len(), names.len());
}

pub async fn a_redelivered_message_is_dropped_by_the_floor(store: &dyn SeriesStore) {
    let mut writer = Writer::of("redelivered");
    let first = writer.batch(&[("loss", points(0..10))]);
    let second = writer.batch(&[("loss", points(10..20))]);
    let ingested = store.ingest(&[first.clone(), second.clone()]).await.unwrap();
    assert_eq!(ingested, Ingested { points: 20, duplicate_batches: 0, refused: vec![] });
    for again in [vec![second.clone()], vec![first, second]] {
        let ingested = store.ingest(&again).await.unwrap();
        assert_eq!(ingested, Ingested { points: 0, duplicate_batches: again.len() as u64, refused: vec![] });
    }
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..20));
    assert_eq!(store.floor(writer.source.shard()).await.unwrap(), 2);
}

pub async fn a_batch_sent_again_is_dropped_by_its_session_however_late(store: &dyn SeriesStore) {
    let mut writer = Writer::of("again");
    let first = writer.write(store, &[("loss", points(0..4))]).await;
    for step in 1..300 {
        writer.write(store, &[("loss", points(step * 4..step * 4 + 4))]).await;
    }
    writer.sequence += 1;
    let again = crate::IngestBatch { sequence: writer.sequence, ..first };
    let ingested = store.ingest(from_ref(&again)).await.unwrap();
    assert_eq!(ingested, Ingested { points: 0, duplicate_batches: 1, refused: vec![] });
    assert_eq!(store.floor(writer.source.shard()).await.unwrap(), writer.sequence, "a duplicate still moves the floor");
    let twice = writer.batch(&[("loss", points(1_200..1_210))]);
    let copy = crate::IngestBatch { sequence: twice.sequence + 1, ..twice.clone() };
    let ingested = store.ingest(&[twice, copy]).await.unwrap();
    assert_eq!((ingested.points, ingested.duplicate_batches), (10, 1), "also within one call");
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..1_210));
}

pub async fn batches_out_of_turn_are_stored_and_the_session_tells_what_is_missing(store: &dyn SeriesStore) {
    let mut writer = Writer::of("turns");
    for n in [1, 2, 5, 4, 9] {
        writer.n = n - 1;
        writer.write(store, &[("loss", points([n as i64]))]).await;
    }
    let other = SessionId::derived(&[b"other"]);
    Writer { session: other, n: 0, ..writer.clone() }.write(store, &[("loss", points([100]))]).await;
    let sessions = store.sessions(&writer.source).await.unwrap();
    let of = |session| sessions.iter().find(|progress| progress.key.session == session).unwrap();
    assert_eq!((of(writer.session).contiguous, of(writer.session).beyond.as_slice()), (2, [(4, 5), (9, 9)].as_slice()));
    assert_eq!(of(other).contiguous, 1);
    writer.sequence += 1;
    writer.n = 2;
    writer.write(store, &[("loss", points([3]))]).await;
    let sessions = store.sessions(&writer.source).await.unwrap();
    assert!(sessions.iter().any(|progress| progress.key.session == writer.session && progress.contiguous == 5));
    let steps: Vec<i64> = store.points(&writer.key("loss")).await.unwrap().iter().map(|point| point.step).collect();
    assert_eq!(steps, [1, 2, 5, 4, 9, 100, 3], "in the order of arrival");
}

pub async fn a_batch_that_can_never_be_stored_does_not_hold_back_its_shard(store: &dyn SeriesStore) {
    let mut writer = Writer::of("refused");
    let good = writer.batch(&[("loss", points(0..2))]);
    let mut bad = writer.batch(&[("loss", points(2..4))]);
    bad.n = 0;
    writer.n -= 1;
    let next = writer.batch(&[("loss", points(4..6))]);
    let ingested = store.ingest(&[good, bad.clone(), next]).await.unwrap();
    assert_eq!((ingested.points, ingested.duplicate_batches), (4, 0));
    assert_eq!(ingested.refused.iter().map(|refused| (refused.sequence, refused.n)).collect::<Vec<_>>(), [(bad.sequence, 0)]);
    assert_eq!(store.floor(writer.source.shard()).await.unwrap(), 3);
}

pub async fn floors_are_per_shard_and_only_rise(store: &dyn SeriesStore) {
    let mut writer = Writer::of("floors");
    let shard = writer.source.shard();
    let other = (shard + 1) % crate::SHARDS;
    assert_eq!(store.floor(shard).await.unwrap(), 0);
    store.raise_floor(shard, 10).await.unwrap();
    store.raise_floor(shard, 5).await.unwrap();
    assert_eq!((store.floor(shard).await.unwrap(), store.floor(other).await.unwrap()), (10, 0));
    writer.sequence = 9;
    writer.write(store, &[("loss", points([0]))]).await;
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), [], "at the floor is stored already");
    writer.write(store, &[("loss", points([1]))]).await;
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points([1]));
    assert!(store.raise_floor(crate::SHARDS, 1).await.is_err() && store.floor(u8::MAX).await.is_err());
}

pub async fn the_stream_that_feeds_it_is_noted_with_where_its_count_begins(store: &dyn SeriesStore) {
    assert_eq!(store.feed().await.unwrap(), None);
    for (created, base) in [(1_700_000_000_000_000_001, 0), (-1, u64::MAX - 7)] {
        let feed = Feed { created: Timestamp::from_nanos(created), base };
        store.feed_from(feed).await.unwrap();
        assert_eq!(store.feed().await.unwrap(), Some(feed));
    }
}

pub async fn a_point_exactly_repeated_costs_nothing(store: &dyn SeriesStore) {
    let mut writer = Writer::of("repeats");
    let same = point(3, 0.5);
    writer.write(store, &[("loss", vec![same; 5])]).await;
    for _ in 0..3 {
        let again = writer.batch(&[("loss", vec![same])]);
        assert_eq!(store.ingest(from_ref(&again)).await.unwrap().points, 0);
    }
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), [same]);
    writer.write(store, &[("long", points(0..3_000))]).await;
    let again = writer.batch(&[("long", points((0..3_000).step_by(7)))]);
    assert_eq!(store.ingest(from_ref(&again)).await.unwrap().points, 0, "also where the chunk is sealed long ago");
    let near = [crate::Point { time_ms: same.time_ms + 1, ..same }, point(3, f64::NAN), crate::Point { value: -0.5, ..same }];
    writer.write(store, &[("loss", near.to_vec())]).await;
    assert_eq!(store.latest(&writer.source).await.unwrap()[1].stats.count, 4, "a point that differs anywhere is another point");
}

pub async fn a_step_that_comes_twice_keeps_both_and_the_later_wins(store: &dyn SeriesStore) {
    let mut writer = Writer::of("twice");
    writer.write(store, &[("loss", vec![point(1, 1.0), point(2, 2.0)])]).await;
    writer.write(store, &[("loss", vec![point(2, 20.0), point(1, 10.0)])]).await;
    let all = store.points(&writer.key("loss")).await.unwrap();
    assert_eq!(all, [point(1, 1.0), point(2, 2.0), point(2, 20.0), point(1, 10.0)]);
    assert_eq!(crate::last_by_step(&all), [point(1, 10.0), point(2, 20.0)]);
    assert_eq!(store.latest(&writer.source).await.unwrap()[0].stats.latest, point(2, 20.0));
}

pub async fn order_is_per_series_and_no_lower_step_is_dropped(store: &dyn SeriesStore) {
    let mut writer = Writer::of("order");
    for from in (0..8_000).step_by(1_000) {
        writer.write(store, &[("infer/lat", points(from..from + 1_000))]).await;
    }
    writer.write(store, &[("train/loss", points(0..100)), ("val/acc", points(0..5))]).await;
    writer.write(store, &[("train/loss", points((0..50).rev()).iter().map(|p| point(p.step, 7.0)).collect())]).await;
    assert_eq!(store.points(&writer.key("infer/lat")).await.unwrap(), points(0..8_000));
    assert_eq!(store.points(&writer.key("val/acc")).await.unwrap(), points(0..5));
    let loss = store.points(&writer.key("train/loss")).await.unwrap();
    assert_eq!(loss[..100], points(0..100));
    assert_eq!(loss[100..].iter().map(|point| point.step).collect::<Vec<_>>(), (0..50).rev().collect::<Vec<_>>());
}

pub async fn chunks_end_at_cuts_and_read_on_in_order(store: &dyn SeriesStore) {
    let mut writer = Writer::of("cuts");
    let mut idle = Writer { session: SessionId::derived(&[b"idle"]), ..writer.clone() };
    idle.write(store, &[("idle", points(0..20))]).await;
    writer.sequence = idle.sequence;
    for cut in 0..5u64 {
        writer.sequence = cut * CUT_EVERY_SEQUENCES + 1_000;
        for part in 0..3 {
            let from = (cut * 30 + part * 10) as i64;
            writer.write(store, &[("loss", points(from..from + 10))]).await;
        }
    }
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..150));
    idle.sequence = writer.sequence;
    idle.write(store, &[("idle", points(20..30))]).await;
    assert_eq!(store.points(&writer.key("idle")).await.unwrap(), points(0..30));
}

pub async fn a_deleted_source_is_gone_and_stays_gone(store: &dyn SeriesStore) {
    let mut writer = Writer::of("deleted");
    let mut neighbour = Writer::of("neighbour");
    neighbour.write(store, &[("loss", points(0..10))]).await;
    let batch = writer.write(store, &[("loss", points(0..2_000)), ("lr", points(0..3))]).await;
    store.delete(&writer.source).await.unwrap();
    store.delete(&Writer::of("never").source).await.unwrap();
    assert_eq!(store.list(&writer.source).await.unwrap(), []);
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), []);
    writer.sequence += 1;
    let again = crate::IngestBatch { sequence: writer.sequence, ..batch };
    assert_eq!(store.ingest(from_ref(&again)).await.unwrap().duplicate_batches, 1, "a batch sent again brings nothing back");
    assert_eq!(store.list(&writer.source).await.unwrap(), []);
    writer.write(store, &[("loss", points(0..4))]).await;
    assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..4), "what is logged afterwards is kept");
    assert_eq!(store.points(&neighbour.key("loss")).await.unwrap(), points(0..10));
}

pub async fn many_writers_at_once_lose_and_double_nothing(store: &dyn SeriesStore) {
    let write = |at: usize| async move {
        let mut writer = Writer::of_node(&format!("node-{at}"));
        // Sources of one shard share its order, so that each writer here has a shard of its own.
        for step in 0..20 {
            writer.write(store, &[("util", points(step * 10..step * 10 + 10)), ("mem", points([step]))]).await;
        }
        writer
    };
    let mut shards = std::collections::BTreeSet::new();
    let apart: Vec<usize> = (0..64).filter(|at| shards.insert(Writer::of_node(&format!("node-{at}")).source.shard())).take(12).collect();
    let mut tasks: Vec<_> = apart.into_iter().map(|at| Box::pin(write(at))).collect();
    let mut writers = Vec::new();
    std::future::poll_fn(|cx| {
        tasks.retain_mut(|task| match task.as_mut().poll(cx) {
            std::task::Poll::Ready(writer) => {
                writers.push(writer);
                false
            }
            std::task::Poll::Pending => true,
        });
        if tasks.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    assert_eq!(writers.len(), 12);
    for writer in writers {
        assert_eq!(store.points(&writer.key("util")).await.unwrap(), points(0..200));
        assert_eq!(store.points(&SeriesKey { name: metric("mem"), ..writer.key("util") }).await.unwrap(), points(0..20));
    }
}
