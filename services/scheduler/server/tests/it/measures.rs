//! What is told in Prometheus form: exactly what is there, by whom it is to be told, and nothing that is gone.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{types, v1};
use footplate_testkit::{eventually, repository_root};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that an instance tells: samples by name and labels.
fn told(instance: &Instance) -> BTreeMap<String, f64> {
    let text = instance.context.metrics.show();
    let samples = text.lines().filter(|line| line.starts_with("footplate_scheduler_"));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite() && value >= 0.0, "{line}");
        (name.trim_start_matches("footplate_scheduler_").to_owned(), value)
    };
    samples.map(sample).collect()
}

async fn tells(instance: &Instance, samples: &[(&str, f64)]) {
    let what = format!("{samples:?} are told");
    eventually(SOON, &what, || async {
        let told = told(instance);
        samples.iter().all(|(name, value)| told.get(*name) == Some(value)).then_some(())
    })
    .await;
}

async fn set(stage: &Stage, request: v1::SetQueueRequest) {
    stage.scheduler.client.once(stage.scheduler.client.queues().set_queue(request)).await.unwrap();
}

fn named(name: &str) -> v1::SetQueueRequest {
    v1::SetQueueRequest { name: name.to_owned(), ..v1::SetQueueRequest::default() }
}

#[tokio::test]
async fn complaint_26_who_waits_and_what_lies_free_is_told_and_is_gone_when_it_is_gone() {
    let stage = stage().await;
    set(&stage, v1::SetQueueRequest { quota_slots: Some(4), ..named("night") }).await;
    set(&stage, v1::SetQueueRequest { parent: Some("night".to_owned()), guarantee_slots: None, ..named("birds") }).await;
    register(stage.broker.as_ref(), "n1", 2).await;
    register(stage.broker.as_ref(), "n2", 2).await;
    let of_birds = |spec: types::JobSpec| types::JobSpec { queue: "birds".to_owned(), ..spec };
    let small = stage.scheduler.submitted(of_birds(spec(1, 1))).await;
    stage.scheduler.reaches(&small, "placed").await;
    let wide = stage.scheduler.submitted(spec(2, 2)).await;
    let one = [
        (r#"jobs{queue="birds",state="active"}"#, 1.0),
        (r#"jobs{queue="birds",state="pending"}"#, 0.0),
        (r#"jobs{queue="default",state="pending"}"#, 1.0),
        (r#"queue_used{queue="birds",resource="slots"}"#, 1.0),
        (r#"queue_used{queue="night",resource="slots"}"#, 1.0),
        (r#"queue_quota{queue="night",resource="slots"}"#, 4.0),
        (r#"slots{pool="",state="allocated"}"#, 1.0),
        (r#"slots{pool="",state="free"}"#, 3.0),
        (r#"slots_fragmented{pool=""}"#, 1.0),
        (r#"nodes{pool="",state="idle"}"#, 1.0),
        (r#"nodes{pool="",state="used"}"#, 1.0),
        (r#"nodes{pool="",state="closed"}"#, 0.0),
    ];
    tells(&stage.scheduler, &one).await;
    let waits = eventually(SOON, "it has waited for a while", || async {
        let told = told(&stage.scheduler);
        let longest = *told.get(r#"wait_longest_seconds{queue="default"}"#)?;
        (longest > 0.0).then_some((longest, told))
    })
    .await;
    // Of one job the longest, the mean and the oldest are the same.
    let (longest, all) = waits;
    assert_eq!((all[r#"wait_mean_seconds{queue="default"}"#], all["oldest_pending_seconds"]), (longest, longest));
    assert!(told(&stage.scheduler)["oldest_pending_seconds"] >= longest, "it grows though nothing is written");
    for absent in [
        r#"queue_quota{queue="night",resource="gpus"}"#,
        r#"queue_quota{queue="birds",resource="slots"}"#,
        r#"queue_guarantee{queue="birds",resource="slots"}"#,
        r#"wait_longest_seconds{queue="birds"}"#,
        r#"wait_mean_seconds{queue="night"}"#,
    ] {
        assert!(!all.contains_key(absent), "{absent}: what is not limited and who does not wait is not there, and not 0");
    }
    // Held, it waits by somebody's will.
    let asked = v1::JobRequest { project: "vision".to_owned(), run_id: wide.clone(), wait: true, ..v1::JobRequest::default() };
    stage.scheduler.client.once(stage.scheduler.client.jobs().hold_job(asked)).await.unwrap();
    tells(&stage.scheduler, &[(r#"jobs{queue="default",state="held"}"#, 1.0), ("oldest_pending_seconds", 0.0)]).await;
    let hands = Hands::new(stage.broker.clone(), true);
    for run in [&small, &wide] {
        let _ = stage.scheduler.cancel(run, "").await;
        stage.scheduler.reaches(run, "ended").await;
    }
    let none = [
        (r#"jobs{queue="birds",state="active"}"#, 0.0),
        (r#"queue_used{queue="night",resource="slots"}"#, 0.0),
        (r#"slots{pool="",state="allocated"}"#, 0.0),
        (r#"slots_fragmented{pool=""}"#, 0.0),
        (r#"nodes{pool="",state="idle"}"#, 2.0),
        ("oldest_pending_seconds", 0.0),
    ];
    tells(&stage.scheduler, &none).await;
    let gone = told(&stage.scheduler);
    let of_default: Vec<f64> = gone.iter().filter(|(name, _)| name.contains("default")).map(|(_, value)| *value).collect();
    assert!(
        !of_default.is_empty() && of_default.iter().all(|value| *value == 0.0),
        "the queue that is there by itself has nothing: {gone:?}"
    );
    assert!(!gone.keys().any(|name| name.starts_with("wait_")), "{gone:?}");
    drop(hands);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn complaint_26_what_follows_from_leading_is_told_by_the_leader_alone() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "placed").await;
    let led = [
        ("leads", 1.0),
        ("placements_total", 1.0),
        ("members_placed_total", 1.0),
        (r#"decisions_total{type="footplate.job.placed.v1"}"#, 1.0),
    ];
    tells(&stage.scheduler, &led).await;
    let other = instance(stage.broker.clone(), "two").await;
    tells(&other, &[("leads", 0.0), (r#"jobs{queue="default",state="active"}"#, 1.0)]).await;
    let of_leading = ["decisions", "placements", "members_placed", "stops", "preemptions", "requeues", "cycle", "assignment"];
    let tells_of_leading = |instance: &Instance| told(instance).into_keys().find(|name| of_leading.iter().any(|of| name.starts_with(of)));
    assert_eq!(tells_of_leading(&other), None);
    stage.scheduler.stop().await;
    let next = other.submitted(spec(1, 1)).await;
    other.reaches(&next, "pending").await;
    tells(&other, &[("leads", 1.0), ("placements_total", 0.0)]).await;
    assert!(told(&other).contains_key("cycle_seconds_count"));
    other.stop().await;
}

#[tokio::test]
async fn preemptions_are_told_by_what_asks_them() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let _hands = Hands::new(stage.broker.clone(), false);
    let lent = types::JobSpec { preemptible: true, ..spec(1, 1) };
    let low = stage.scheduler.submitted(lent.clone()).await;
    stage.scheduler.reaches(&low, "launched").await;
    let high = stage.scheduler.submitted(types::JobSpec { priority: 9, ..lent }).await;
    stage.scheduler.reaches(&high, "launched").await;
    let by_priority = [(r#"preemptions_total{cause="priority"}"#, 1.0), (r#"stops_total{cause="preempted"}"#, 1.0)];
    tells(&stage.scheduler, &by_priority).await;
    assert!(!told(&stage.scheduler).contains_key(r#"preemptions_total{cause="reclaim"}"#));
    set(&stage, v1::SetQueueRequest { guarantee_slots: Some(1), ..named("own") }).await;
    let own = stage.scheduler.submitted(types::JobSpec { queue: "own".to_owned(), ..spec(1, 1) }).await;
    stage.scheduler.reaches(&own, "launched").await;
    let both = [
        (r#"preemptions_total{cause="priority"}"#, 1.0),
        (r#"preemptions_total{cause="reclaim"}"#, 1.0),
        (r#"stops_total{cause="preempted"}"#, 2.0),
        (r#"requeues_total{cause="preempted"}"#, 2.0),
    ];
    tells(&stage.scheduler, &both).await;
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_view_that_is_counted_in_pieces_is_counted_whole() {
    const JOBS: usize = 1_030;
    const NODES: usize = 260;
    let stage = stage().await;
    let submit = |_| stage.scheduler.submit(v1::SubmitJobRequest { queue_anyway: true, ..submission(spec(1, 1)) });
    let submitted = futures::future::join_all((0..JOBS).map(submit)).await;
    assert!(submitted.iter().all(Result::is_ok));
    tells(&stage.scheduler, &[(r#"jobs{queue="default",state="pending"}"#, JOBS as f64)]).await;
    for at in 0..NODES {
        register(stage.broker.as_ref(), &format!("n{at}"), 1).await;
    }
    let placed = [
        (r#"jobs{queue="default",state="active"}"#, NODES as f64),
        (r#"jobs{queue="default",state="pending"}"#, (JOBS - NODES) as f64),
        (r#"nodes{pool="",state="used"}"#, NODES as f64),
        (r#"slots{pool="",state="allocated"}"#, NODES as f64),
        (r#"slots{pool="",state="free"}"#, 0.0),
    ];
    tells(&stage.scheduler, &placed).await;
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn every_metric_has_its_row_and_every_row_its_metric() {
    let stage = stage().await;
    let text = std::fs::read_to_string(repository_root().join("docs/reference/scheduler-metrics.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `footplate_scheduler_")?.split(['`', '{']).next());
    let documented: BTreeSet<String> = rows.map(|row| row.trim_end_matches("_total").to_owned()).collect();
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "pending").await;
    tells(&stage.scheduler, &[("leads", 1.0), (r#"jobs{queue="default",state="pending"}"#, 1.0)]).await;
    let shown = stage.scheduler.context.metrics.show();
    let names = shown.lines().filter_map(|line| line.strip_prefix("# TYPE footplate_scheduler_")?.split(' ').next());
    let exported: BTreeSet<String> = names.map(str::to_owned).collect();
    let missing: Vec<&String> = exported.difference(&documented).collect();
    assert!(missing.is_empty(), "{missing:?} have no row");
    // Of what this stage does not have, or what did not happen here, there is no sample.
    let elsewhere = [
        "gpus",
        "gpus_fragmented",
        "slots",
        "slots_fragmented",
        "nodes",
        "queue_quota",
        "queue_guarantee",
        "stops",
        "preemptions",
        "requeues",
    ];
    let gone: Vec<&String> = documented.difference(&exported).filter(|name| !elsewhere.contains(&name.as_str())).collect();
    assert!(gone.is_empty(), "{gone:?} are told of and are not there");
    stage.scheduler.stop().await;
}
