//! Two trackers over one series store in a real Cassandra, through its death.

use crate::world::*;
use footplate_api::v1;
use footplate_eventlog::StreamName;
use footplate_series::scylla::{Address, Scylla};
use footplate_testkit::{CassandraServer, eventually};
use std::sync::Arc;
use std::time::Duration;

/// How long a server that was killed may take until everything is stored; its start alone takes ten seconds.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_dies_under_two_trackers_costs_no_point_and_doubles_none() {
    let server = CassandraServer::start().await;
    let address = Address::parse(&server.keyspace().url()).unwrap();
    let world = World::new().await;
    let mut trackers = Vec::new();
    for name in ["one", "two"] {
        let folder = world.folder.path().join(name);
        let mut config = quick(&folder);
        config.instance = name.to_owned();
        config.seal_deadline = LONG;
        let store = Arc::new(Scylla::connect(&address, name).await.unwrap());
        trackers.push(Tracker::start_over(store, &config, &world.ledger, &folder).await);
    }
    let create = v1::CreateRunRequest { project: PROJECT.into(), name: "shared".into(), ..Default::default() };
    let run = trackers[0].client.once(trackers[0].client.runs().create_run(create)).await.unwrap().run_id;
    let log = async |numbers: std::ops::RangeInclusive<u64>| {
        for n in numbers {
            // In turns to both, each until it is acknowledged, as a client behind a proxy does.
            let client = &trackers[n as usize % 2].client;
            eventually(LONG, "an acknowledgement", || async {
                let batch = batch(&run, &session(1), n, "loss", &[(n as i64, n as f64)]);
                client.once(client.metrics().log_batch(batch)).await.ok()
            })
            .await;
        }
    };
    log(1..=40).await;
    let before = world.broker.bounds(StreamName::Metrics).await.unwrap();
    for tracker in &trackers {
        let mut stored = tracker.handle.stored();
        tokio::time::timeout(LONG, stored.wait_for(|at| at.covers(&before))).await.expect("stored in time").unwrap();
    }
    server.kill9().await.unwrap();
    log(41..=60).await;
    let kept = world.broker.bounds(StreamName::Metrics).await.unwrap();
    assert!(kept.last >= before.last + 20 && kept.first <= 1, "METRICS keeps what the store has not: {kept:?}");
    for tracker in &trackers {
        assert!(!tracker.handle.stored().borrow().covers(&kept), "nothing counts as stored while the store is away");
    }
    server.restart().await.unwrap();
    log(61..=80).await;
    let end = world.broker.bounds(StreamName::Metrics).await.unwrap();
    for tracker in &trackers {
        let mut stored = tracker.handle.stored();
        tokio::time::timeout(LONG, stored.wait_for(|at| at.covers(&end))).await.expect("stored in time").unwrap();
        let request = v1::GetHistoryRequest { project: PROJECT.into(), run_id: run.clone(), name: "loss".into(), ..Default::default() };
        let read = tracker.client.once(tracker.client.metrics().get_history(request)).await.unwrap();
        assert_eq!(read.points.iter().map(|point| point.step).collect::<Vec<_>>(), (1..=80).collect::<Vec<_>>());
    }
    let client = &trackers[1].client;
    let finish = v1::FinishRunRequest {
        project: PROJECT.into(),
        run_id: run.clone(),
        outcome: footplate_api::types::Outcome::Succeeded.into(),
        sessions: vec![v1::SessionEnd { session: session(1), batches: 80 }],
        ..Default::default()
    };
    client.once(client.runs().finish_run(finish)).await.unwrap();
    let wait = v1::WaitRunRequest { project: PROJECT.into(), run_id: run, timeout_ms: LONG.as_millis() as u64, ..Default::default() };
    let sealed = client.once(client.runs().wait_run(wait)).await.unwrap().run.unwrap();
    assert!(sealed.seal_complete, "{:?}", sealed.seal_missing);
    assert_eq!(sealed.points, 80);
    for tracker in trackers {
        tracker.stop().await;
    }
}
