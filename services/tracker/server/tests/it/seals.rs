//! Seals: when everything is stored, or at the deadline; and what comes after.

use crate::world::*;
use footplate_api::v1;
use footplate_events::facts::*;
use footplate_events::messages::TrackerReport;
use footplate_types::*;

fn offsets(spool: SpoolId, batches: u64) -> FinalOffsets {
    let session = SessionId::from_bytes([1; 16]);
    FinalOffsets {
        spool: Some(spool),
        tracker: 1,
        logs: 3,
        sessions: vec![SessionEnd { rank: Rank(0), session, batches }],
        incomplete: Vec::new(),
    }
}

/// What a worker's agent publishes: the node's own subject.
async fn publish(world: &World, run: RunId, n: u64) {
    publish_value(world, run, n, "loss", 0.5).await;
}

async fn publish_value(world: &World, run: RunId, n: u64, name: &str, value: f64) {
    use prost::Message as _;
    let point = footplate_series::Point { step: n as i64, time_ms: 1_700_000_000_000, value };
    let block = footplate_api::metrics::Block { name: name.into(), points: footplate_series::codec::encode(&[point]) };
    let batch = footplate_api::metrics::Batch {
        project: PROJECT.into(),
        run: run.to_string(),
        attempt: 1,
        rank: 0,
        session: session(1),
        n,
        series: vec![block],
    };
    let message = footplate_eventlog::Message {
        subject: footplate_events::messages::metrics_subject(run, "n1"),
        headers: footplate_eventlog::Headers::default(),
        payload: batch.encode_to_vec().into(),
    };
    world.broker.publish(footplate_eventlog::StreamName::Metrics, message, footplate_eventlog::Expect::Any).await.unwrap();
}

fn tags(run: RunId) -> TrackerReport {
    let set = [(ParamKey::parse("from").unwrap(), "worker".to_owned())].into();
    TrackerReport::Tags { of: member(run), tags: RunTagsSet { set, removed: Vec::new() } }
}

#[tokio::test]
async fn a_job_is_sealed_complete_when_its_last_batch_report_and_log_are_there() {
    let world = World::new().await;
    let run = world.running_job().await;
    let spool = footplate_clock::spool_id();
    for n in 1..=3 {
        publish(&world, run, n).await;
    }
    world.attempt(run, 1, exited(offsets(spool, 4))).await;
    world.job(run, ended(1)).await;
    world.attempt(run, 1, archived()).await;
    world.report("n1", spool, 1, tags(run)).await;
    assert_eq!(world.get(&run.to_string()).await.state(), footplate_api::types::RunState::Ending);
    publish(&world, run, 4).await;
    let sealed = world.sealed(&run.to_string()).await;
    assert!(sealed.seal_complete, "{:?}", sealed.seal_missing);
    assert_eq!((sealed.points, sealed.tags["from"].as_str(), sealed.late), (4, "worker", 0));
}

#[tokio::test]
async fn a_seal_carries_the_objectives_that_its_job_declared_and_no_other_metric() {
    let world = World::new().await;
    let objectives = ["loss", "acc", "never"].map(|name| MetricName::parse(name).unwrap());
    let run = world.running(JobSpec { objectives: objectives.to_vec(), ..spec("trial") }).await;
    let logged = [("loss", 0.5), ("loss", 0.1), ("loss", 0.3), ("acc", 0.9), ("acc", f64::NAN), ("other", 1.0)];
    for (n, (name, value)) in (1..).zip(logged) {
        publish_value(&world, run, n, name, value).await;
    }
    let spool = footplate_clock::spool_id();
    world.attempt(run, 1, exited(FinalOffsets { tracker: 0, ..offsets(spool, 6) })).await;
    world.job(run, ended(1)).await;
    world.attempt(run, 1, archived()).await;
    let sealed = world.sealed(&run.to_string()).await;
    assert!(sealed.seal_complete, "{:?}", sealed.seal_missing);
    let items = world.ledger.aggregate(&footplate_events::Subject::run(&project(), run)).await.unwrap();
    let seal = items.into_iter().find_map(|item| match item {
        footplate_eventlog::LedgerItem::Fact(recorded) => match recorded.envelope.event {
            footplate_events::Event::RunSealed(fact) => Some(fact),
            _ => None,
        },
        _ => None,
    });
    let told: Vec<_> = seal.unwrap().objectives.into_iter().map(|(name, figure)| (name.to_string(), figure)).collect();
    let acc = SealedFigure { step: 5, last: None, min: Some(0.9), max: Some(0.9) };
    let loss = SealedFigure { step: 3, last: Some(0.3), min: Some(0.1), max: Some(0.5) };
    assert_eq!(told, [("acc".to_owned(), acc), ("loss".to_owned(), loss)]);
}

#[tokio::test]
async fn at_the_deadline_it_is_sealed_incomplete_and_what_comes_late_is_stored_and_shown_as_late() {
    let world = World::new().await;
    let run = world.running_job().await;
    let spool = footplate_clock::spool_id();
    publish(&world, run, 1).await;
    world.attempt(run, 1, exited(offsets(spool, 2))).await;
    world.job(run, ended(1)).await;
    let sealed = world.sealed(&run.to_string()).await;
    assert!(!sealed.seal_complete);
    assert_eq!(sealed.seal_missing.len(), 3, "{:?}", sealed.seal_missing);
    assert!(sealed.seal_missing[0].contains("1 of 2 batches"), "{:?}", sealed.seal_missing);
    publish(&world, run, 2).await;
    let late = footplate_testkit::eventually(SOON, "the late point", || async {
        let run = world.get(&run.to_string()).await;
        (run.late == 1).then_some(run)
    })
    .await;
    assert_eq!((late.points, late.seal_complete, late.sealed_at.as_str()), (2, false, sealed.sealed_at.as_str()));
    assert_eq!(late.seal_missing, sealed.seal_missing, "the seal never changes");
}

#[tokio::test]
async fn a_run_without_a_job_is_sealed_when_the_sessions_it_named_are_stored_and_takes_what_comes_after() {
    let world = World::new().await;
    let run = world.create("notebook").await;
    let log = async |n: u64| {
        let batch = batch(&run, &session(1), n, "loss", &[(n as i64, 1.0)]);
        world.client().metrics().log_batch(batch).await.unwrap();
    };
    log(1).await;
    world.finish(&run, vec![v1::SessionEnd { session: session(1), batches: 2 }]).await;
    assert_eq!(world.get(&run).await.state(), footplate_api::types::RunState::Ending);
    log(2).await;
    let sealed = world.sealed(&run).await;
    assert!(sealed.seal_complete, "{:?}", sealed.seal_missing);
    log(3).await;
    assert_eq!(world.get(&run).await.late, 1, "data after the finish is taken while the process lives");
    let params = [("post/score".to_owned(), "0.5".to_owned())].into();
    let request = v1::LogParamsRequest { project: PROJECT.into(), run_id: run.clone(), params, ..Default::default() };
    world.client().once(world.client().runs().log_params(request)).await.unwrap();
    let after = world.get(&run).await;
    assert_eq!((after.late, after.params["post/score"].json.as_str()), (2, "0.5"));
    assert_eq!(after.sealed_at, sealed.sealed_at);
}

#[tokio::test]
async fn a_seal_answers_the_end_of_its_run_and_carries_its_chain() {
    let world = World::new().await;
    let run = world.create("notebook").await;
    world.finish(&run, Vec::new()).await;
    world.sealed(&run).await;
    let id = RunId::parse(&run).unwrap();
    let items = world.ledger.aggregate(&footplate_events::Subject::run(&project(), id)).await.unwrap();
    let envelopes: Vec<_> = items
        .into_iter()
        .filter_map(|item| if let footplate_eventlog::LedgerItem::Fact(recorded) = item { Some(recorded.envelope) } else { None })
        .collect();
    let [created, finished, sealed] = envelopes.as_slice() else { panic!("{} events", envelopes.len()) };
    assert_eq!(sealed.causation, Some(finished.id));
    assert_eq!(sealed.correlation, created.correlation);
}
