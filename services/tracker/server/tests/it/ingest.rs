//! Metrics through the doors: exact, once, and readable at once.

use crate::world::*;
use footplate_api::v1;
use footplate_testkit::eventually;
use std::time::Duration;

async fn log(world: &World, batch: v1::IngestRequest) -> Result<v1::IngestResponse, footplate_api::ApiError> {
    world.client().once(world.client().metrics().log_batch(batch)).await
}

#[tokio::test]
async fn what_is_acknowledged_is_read_at_once_bit_for_bit() {
    let world = World::new().await;
    let run = world.create("first").await;
    let values = [(0, 0.1), (1, f64::NAN), (2, f64::INFINITY), (3, 0.0), (-5, f64::MIN_POSITIVE), (i64::MAX, 1e300)];
    let acked = log(&world, batch(&run, &session(1), 1, "val/acc (top 1)", &values)).await.unwrap();
    assert_eq!(acked.acked, 1);
    let answer = world.history(&run, "val/acc (top 1)").await;
    let read: Vec<(i64, u64)> = answer.points.iter().map(|point| (point.step, point.value.to_bits())).collect();
    assert_eq!(read, values.map(|(step, value): (i64, f64)| (step, value.to_bits())));
    assert_eq!((answer.count, answer.reduced), (6, false));
    let latest = v1::ListLatestRequest { project: PROJECT.into(), run_id: run, all_ranks: false };
    let latest = world.client().once(world.client().metrics().list_latest(latest)).await.unwrap().latest;
    assert_eq!((latest[0].step, latest[0].value, latest[0].nan_count, latest[0].infinite_count), (i64::MAX, 1e300, 1, 1));
}

#[tokio::test]
async fn a_repeated_number_is_acknowledged_and_stored_once_even_by_a_tracker_that_has_forgotten() {
    let mut world = World::new().await;
    let run = world.create("first").await;
    for n in [1, 1, 2, 2, 1] {
        log(&world, batch(&run, &session(1), n, "loss", &[(n as i64, 1.0)])).await.unwrap();
    }
    assert_eq!(world.history(&run, "loss").await.count, 2);
    world.restart().await;
    assert_eq!(log(&world, batch(&run, &session(1), 2, "loss", &[(2, 1.0)])).await.unwrap().acked, 2);
    assert_eq!(log(&world, batch(&run, &session(1), 1, "loss", &[(1, 1.0)])).await.unwrap().acked, 2);
    assert_eq!(log(&world, batch(&run, &session(1), 3, "loss", &[(3, 1.0)])).await.unwrap().acked, 3);
    assert_eq!(world.history(&run, "loss").await.count, 3);
    let other = log(&world, batch(&run, &session(2), 1, "loss", &[(1, 1.0)])).await.unwrap();
    assert_eq!((other.acked, world.history(&run, "loss").await.count), (1, 3), "an exact repeat of a point costs nothing and succeeds");
}

#[tokio::test]
async fn more_sessions_than_are_remembered_are_each_acknowledged_as_far_as_they_are_durable() {
    let mut world = World::new().await;
    world.config.sessions_max = 2;
    world.restart().await;
    let run = world.create("first").await;
    for n in 1..=3 {
        for byte in 1..=4 {
            let answered = log(&world, batch(&run, &session(byte), n, "loss", &[(n as i64 * 10 + i64::from(byte), 1.0)])).await.unwrap();
            assert_eq!(answered.acked, n, "session {byte}");
        }
    }
    // A repeat of what a forgotten session has sent is stored no second time.
    assert_eq!(log(&world, batch(&run, &session(1), 2, "loss", &[(21, 1.0)])).await.unwrap().acked, 3);
    assert_eq!(world.history(&run, "loss").await.count, 12);
    // Its very first one begins nothing anew: what follows is answered as before.
    for _ in 0..2 {
        log(&world, batch(&run, &session(2), 1, "loss", &[(12, 1.0)])).await.unwrap();
        assert_eq!(log(&world, batch(&run, &session(2), 4, "loss", &[(42, 1.0)])).await.unwrap().acked, 4);
        log(&world, batch(&run, &session(3), 3, "loss", &[(33, 1.0)])).await.unwrap();
        log(&world, batch(&run, &session(4), 3, "loss", &[(34, 1.0)])).await.unwrap();
    }
    assert_eq!(world.history(&run, "loss").await.count, 13);
}

#[tokio::test]
async fn a_bad_batch_is_refused_whole_and_names_key_field_and_value() {
    let world = World::new().await;
    let run = world.create("first").await;
    let mut bad = batch(&run, &session(1), 1, "good", &[(1, 1.0)]);
    bad.series.push(v1::SeriesPoints { name: " blank".into(), points: vec![v1::Point::default()] });
    let refused = log(&world, bad).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FIELD", Some("series[1].name")));
    assert_eq!(refused.value.as_deref(), Some(" blank"));
    let none = v1::GetHistoryRequest { project: PROJECT.into(), run_id: run.clone(), name: "good".into(), ..Default::default() };
    let none = world.client().once(world.client().metrics().get_history(none)).await.unwrap_err();
    assert_eq!(none.reason, "SERIES_NOT_FOUND");
    assert_eq!(log(&world, batch(&run, &session(1), 0, "x", &[])).await.unwrap_err().field.as_deref(), Some("n"));
    assert_eq!(log(&world, batch(&run, "nonsense", 1, "x", &[])).await.unwrap_err().field.as_deref(), Some("session"));
    let many: Vec<(i64, f64)> = (0..20_001).map(|step| (step, 0.0)).collect();
    assert_eq!(log(&world, batch(&run, &session(1), 1, "x", &many)).await.unwrap_err().reason, "TOO_LARGE");
    let attempt = v1::IngestRequest { attempt: 3, ..batch(&run, &session(1), 1, "x", &[(1, 1.0)]) };
    assert_eq!(log(&world, attempt).await.unwrap_err().reason, "ATTEMPT_NOT_FOUND");
}

#[tokio::test]
async fn a_metric_for_another_projects_run_or_an_unknown_run_is_not_found() {
    let world = World::new().await;
    let run = world.create("first").await;
    let foreign = v1::IngestRequest { project: "audio".into(), ..batch(&run, &session(1), 1, "loss", &[(1, 1.0)]) };
    assert_eq!(log(&world, foreign).await.unwrap_err().reason, "RUN_NOT_FOUND");
    let unknown = batch(&"ab".repeat(16), &session(1), 1, "loss", &[(1, 1.0)]);
    assert_eq!(log(&world, unknown).await.unwrap_err().reason, "RUN_NOT_FOUND");
    assert_eq!(world.broker.bounds(footplate_eventlog::StreamName::Metrics).await.unwrap().last, 0, "nothing was published");
}

#[tokio::test]
async fn implausible_times_are_kept_as_they_are_and_told() {
    let world = World::new().await;
    let run = world.create("first").await;
    let times = [1_700_000_000, 1_700_000_000_123, 1_700_000_000_123_456, 4_102_444_800_000];
    let points = times.iter().enumerate().map(|(step, time_ms)| v1::Point { step: step as i64, time_ms: *time_ms, value: 0.0 }).collect();
    let series = vec![v1::SeriesPoints { name: "t".into(), points }];
    let request = v1::IngestRequest { series, ..batch(&run, &session(1), 1, "t", &[]) };
    assert_eq!(log(&world, request.clone()).await.unwrap().implausible_times, 3);
    assert_eq!(
        log(&world, request).await.unwrap().implausible_times,
        3,
        "a repeat, whose first answer may have been lost, is told the same"
    );
    assert_eq!(log(&world, batch(&run, &session(1), 2, "u", &[(1, 1.0)])).await.unwrap().implausible_times, 0);
    let read: Vec<i64> = world.history(&run, "t").await.points.iter().map(|point| point.time_ms).collect();
    assert_eq!(read, times);
}

#[tokio::test]
async fn order_is_per_key_and_a_lower_step_than_anothers_is_not_dropped() {
    let world = World::new().await;
    let run = world.create("first").await;
    let lat: Vec<(i64, f64)> = (0..8_000).map(|step| (step, 1.0)).collect();
    let loss: Vec<(i64, f64)> = (0..100).map(|step| (step, 2.0)).collect();
    let acc: Vec<(i64, f64)> = (0..5).map(|step| (step, 3.0)).collect();
    for (n, (name, points)) in [("infer/lat", &lat), ("train/loss", &loss), ("val/acc", &acc)].into_iter().enumerate() {
        log(&world, batch(&run, &session(1), n as u64 + 1, name, points)).await.unwrap();
    }
    for (name, count) in [("infer/lat", 8_000), ("train/loss", 100), ("val/acc", 5)] {
        assert_eq!(world.history(&run, name).await.count, count, "{name}");
    }
}

#[tokio::test]
async fn a_later_attempt_shadows_the_steps_it_repeats_and_both_can_be_asked_for() {
    let world = World::new().await;
    let run = world.running_job().await;
    world.job(run, placed(2, "n1")).await;
    let run = run.to_string();
    for (attempt, steps, value) in [(1, 0..100, 1.0), (2, 60..80, 2.0)] {
        let points: Vec<(i64, f64)> = steps.map(|step| (step, value)).collect();
        let batch = v1::IngestRequest { attempt, ..batch(&run, &session(attempt as u8), 1, "loss", &points) };
        log(&world, batch).await.unwrap();
    }
    let merged = world.history(&run, "loss").await;
    assert_eq!(merged.points.len(), 80);
    assert!(merged.points.iter().all(|point| (point.step >= 60) == (point.value == 2.0)));
    let first = v1::GetHistoryRequest { project: PROJECT.into(), run_id: run, name: "loss".into(), attempt: 1, ..Default::default() };
    let first = world.client().once(world.client().metrics().get_history(first)).await.unwrap();
    assert_eq!(first.points.len(), 100);
}

#[tokio::test]
async fn a_reduced_answer_says_so_keeps_the_spike_and_is_the_same_each_time() {
    let world = World::new().await;
    let run = world.create("first").await;
    let points: Vec<(i64, f64)> = (0..20_000).map(|step| (step, if step == 13_337 { 99.0 } else { 1.0 })).collect();
    log(&world, batch(&run, &session(1), 1, "a", &points)).await.unwrap();
    let every_7th: Vec<(i64, f64)> = (0..20_000).step_by(7).map(|step| (step, 0.0)).collect();
    log(&world, batch(&run, &session(1), 2, "b", &every_7th)).await.unwrap();
    let reduced =
        v1::GetHistoryRequest { project: PROJECT.into(), run_id: run.clone(), name: "a".into(), max_points: 100, ..Default::default() };
    let ask = || async { world.client().once(world.client().metrics().get_history(reduced.clone())).await.unwrap() };
    let answer = ask().await;
    assert!(answer.reduced && answer.points.len() <= 100 && answer.count == 20_000);
    assert!(answer.points.iter().any(|point| point.step == 13_337));
    assert_eq!((answer.points[0].step, answer.points.last().unwrap().step), (0, 19_999));
    assert_eq!(answer, ask().await);
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let page_size = 3_000;
        let request = v1::GetHistoryRequest { max_points: 0, page_size, page_token: page_token.clone(), ..reduced.clone() };
        let page = world.client().once(world.client().metrics().get_history(request)).await.unwrap();
        all.extend(page.points.iter().map(|point| point.step));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(all, (0..20_000).collect::<Vec<i64>>());
    assert_eq!(world.history(&run, "b").await.count, 2_858);
    let bad = v1::GetHistoryRequest { max_points: 0, page_token: "x".into(), ..reduced };
    assert_eq!(world.client().once(world.client().metrics().get_history(bad)).await.unwrap_err().reason, "INVALID_PAGE_TOKEN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_acknowledged_in_order_and_each_ack_means_durable() {
    let world = World::new().await;
    let run = world.create("first").await;
    let batches: Vec<_> = (1..=200).map(|n| batch(&run, &session(1), n, "loss", &[(n as i64, n as f64)])).collect();
    let mut answers = world.client().metrics().ingest(tokio_stream::iter(batches)).await.unwrap().into_inner();
    let (mut last, mut count) = (0, 0);
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(answer.acked >= last);
        last = answer.acked;
        count += 1;
    }
    assert_eq!((last, count), (200, 200));
    assert_eq!(world.history(&run, "loss").await.count, 200);
}

#[tokio::test]
async fn a_full_broker_refuses_a_batch_with_one_code_and_takes_it_when_there_is_room() {
    let world = World::new().await;
    let run = world.create("first").await;
    let faults = world.memory.as_ref().unwrap().faults();
    faults.full(true);
    let refused = log(&world, batch(&run, &session(1), 1, "loss", &[(1, 1.0)])).await.unwrap_err();
    assert_eq!(refused.reason, "DISK_FULL");
    faults.full(false);
    assert_eq!(log(&world, batch(&run, &session(1), 1, "loss", &[(1, 1.0)])).await.unwrap().acked, 1);
    assert_eq!(world.history(&run, "loss").await.count, 1);
}

#[tokio::test]
async fn metrics_are_purged_up_to_what_is_stored_less_the_replay_window() {
    let mut world = World::new().await;
    world.config.consumer.replay_messages = 5;
    world.config.consumer.purge_every = Duration::ZERO;
    world.restart().await;
    let run = world.create("first").await;
    for n in 1..=40 {
        log(&world, batch(&run, &session(1), n, "loss", &[(n as i64, 1.0)])).await.unwrap();
    }
    eventually(SOON, "the purge", || async {
        let bounds = world.broker.bounds(footplate_eventlog::StreamName::Metrics).await.unwrap();
        (bounds.last == 40 && bounds.first > 20).then_some(())
    })
    .await;
    world.restart().await;
    assert_eq!(world.history(&run, "loss").await.count, 40);
}
