//! The same on a real nats-server, through its death.

use crate::world::*;
use footplate_api::v1;
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_testkit::{NatsServer, eventually, nats};
use std::collections::BTreeSet;
use std::sync::Arc;

async fn world() -> (NatsServer, World) {
    let server = nats().start().await;
    let mut config = JetStreamConfig::single(server.url(), "tracker tests");
    config.bytes = StreamBytes::of_disk(4 << 30);
    let broker = JetStreamBroker::connect(config).await.unwrap();
    let world = World::on(Arc::new(broker)).await;
    (server, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_point_is_lost_or_doubled_when_the_broker_is_killed_in_the_middle() {
    let (server, world) = world().await;
    let run = world.create("busy").await;
    let client = world.client().clone();
    let run_id = run.clone();
    let (half, reached) = tokio::sync::oneshot::channel();
    let logging = tokio::spawn(async move {
        let mut half = Some(half);
        for n in 1..=300u64 {
            // Sent until it is acknowledged, as every client does.
            eventually(SOON * 3, "an acknowledgement", || async {
                let batch = batch(&run_id, &session(1), n, "loss", &[(n as i64, n as f64)]);
                client.once(client.metrics().log_batch(batch)).await.ok()
            })
            .await;
            if n == 100
                && let Some(half) = half.take()
            {
                half.send(()).unwrap();
            }
        }
    });
    reached.await.unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    logging.await.unwrap();
    let answer = world.history(&run, "loss").await;
    let steps: Vec<i64> = answer.points.iter().map(|point| point.step).collect();
    let unique: BTreeSet<i64> = steps.iter().copied().collect();
    assert_eq!((steps.len(), unique.len(), unique.first(), unique.last()), (300, 300, Some(&1), Some(&300)));
    world.finish(&run, vec![v1::SessionEnd { session: session(1), batches: 300 }]).await;
    let sealed = world.sealed(&run).await;
    assert!(sealed.seal_complete, "{:?}", sealed.seal_missing);
    assert_eq!(sealed.points, 300);
    let views = world.client().once(world.client().tracker_views().verify_views(v1::VerifyViewsRequest { at_least: 0 })).await;
    assert!(views.unwrap().views.iter().all(|view| view.equal));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_at_twenty_clients_is_one_run() {
    let (_server, world) = world().await;
    let calls = (0..20).map(|_| {
        let client = world.client().clone();
        async move {
            let request =
                v1::CreateRunRequest { project: PROJECT.into(), name: "nightly".into(), request_id: "k".into(), ..Default::default() };
            client.once(client.runs().create_run(request)).await.unwrap().run_id
        }
    });
    let ids: BTreeSet<String> = futures::future::join_all(calls).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_goes_on_after_the_brokers_death_without_a_gap_or_a_repeat() {
    let (server, world) = world().await;
    for n in 0..10 {
        world.create(&format!("before {n}")).await;
    }
    let filter = v1::EventFilter { project: PROJECT.into(), aggregate: "run".into(), ..Default::default() };
    let request = v1::WatchEventsRequest { filter: Some(filter), from_sequence: 1, until_sequence: 0 };
    let mut events = world.client().events().watch_events(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        seen.push(events.message().await.unwrap().unwrap().sequence);
    }
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let mut made = 0;
    while made < 50 {
        let name = format!("after {made}");
        let request = v1::CreateRunRequest { project: PROJECT.into(), name: name.clone(), request_id: name, ..Default::default() };
        eventually(SOON, "the broker is back", || async {
            world.client().once(world.client().runs().create_run(request.clone())).await.ok()
        })
        .await;
        made += 1;
    }
    while seen.len() < 60 {
        let next = tokio::time::timeout(SOON, events.message()).await.expect("events go on within seconds");
        seen.push(next.unwrap().unwrap().sequence);
    }
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
}
