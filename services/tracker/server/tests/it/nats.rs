//! The same on a real nats-server, through its death.

use crate::world::*;
use footplate_api::metrics::{Batch, Block};
use footplate_api::v1;
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, StreamBytes, service_inbox_prefix};
use footplate_eventlog::{Broker as _, Expect, Message, StreamName};
use footplate_events::messages::metrics_subject;
use footplate_series::{Point, codec};
use footplate_testkit::{NatsServer, eventually, nats};
use footplate_types::ServiceName;
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::Arc;

async fn connected_as(server: &NatsServer, user: &str) -> JetStreamBroker {
    let mut config = JetStreamConfig::single(server.url(), "tracker tests");
    config.bytes = StreamBytes::of_disk(4 << 30);
    config.credentials = Credentials::User { name: user.to_owned(), password: "p".to_owned() };
    config.inbox_prefix = Some(service_inbox_prefix(&ServiceName::parse("tracker").unwrap()));
    JetStreamBroker::connect(config).await.unwrap()
}

async fn connected(server: &NatsServer) -> JetStreamBroker {
    connected_as(server, "operator").await
}

/// A tracker that may do at the broker what a tracker needs, and nothing else.
async fn world() -> (NatsServer, World) {
    let permissions = Permissions::of_service(&ServiceName::parse("tracker").unwrap()).to_server_config();
    let users = format!("{{ user: operator, password: p }}, {{ user: tracker, password: p, permissions: {permissions} }}");
    let server = nats().config(&format!("authorization {{ users: [ {users} ] }}")).start().await;
    let world = World::on(Arc::new(connected_as(&server, "tracker").await)).await;
    (server, world)
}

/// Removes METRICS with all that is in it, as an operator might to free a full disk; who connects next makes it anew.
async fn wipe_metrics(server: &NatsServer) {
    let broker = connected(server).await;
    let answer = broker.client().request("$JS.API.STREAM.DELETE.METRICS", "".into()).await.unwrap();
    assert!(String::from_utf8_lossy(&answer.payload).contains("\"success\":true"));
    assert_eq!(connected(server).await.bounds(StreamName::Metrics).await.unwrap().last, 0);
}

/// Logs the batches `numbers` of session 1, one point each, each until it is acknowledged.
async fn log(world: &World, run: &str, numbers: std::ops::RangeInclusive<u64>) {
    for n in numbers {
        eventually(SOON, "an acknowledgement", || async {
            let batch = batch(run, &session(1), n, "loss", &[(n as i64, n as f64)]);
            world.client().once(world.client().metrics().log_batch(batch)).await.ok()
        })
        .await;
    }
}

/// Waits until all that METRICS holds is in the store: what is only in the stream goes with it.
async fn stored(world: &World) {
    let bounds = world.broker.bounds(StreamName::Metrics).await.unwrap();
    let mut stored = world.tracker().handle.stored();
    tokio::time::timeout(SOON, stored.wait_for(|at| at.covers(&bounds))).await.expect("stored in time").unwrap();
}

async fn steps(world: &World, run: &str) -> Vec<i64> {
    world.history(run, "loss").await.points.iter().map(|point| point.step).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_that_come_after_metrics_was_wiped_are_stored_though_their_sequences_were_there_before() {
    let (server, mut world) = world().await;
    let run = world.create("busy").await;
    log(&world, &run, 1..=20).await;
    assert_eq!(steps(&world, &run).await, (1..=20).collect::<Vec<_>>());
    // Under a running tracker, then under none, each time with fewer messages than before it.
    stored(&world).await;
    wipe_metrics(&server).await;
    log(&world, &run, 21..=30).await;
    assert_eq!(steps(&world, &run).await, (1..=30).collect::<Vec<_>>());
    stored(&world).await;
    world.tracker.take().unwrap().stop().await;
    wipe_metrics(&server).await;
    world.restart_after_stop().await;
    log(&world, &run, 31..=33).await;
    assert_eq!(steps(&world, &run).await, (1..=33).collect::<Vec<_>>());
    // Nothing is read or counted again by the next tracker, and the record is whole.
    world.restart().await;
    log(&world, &run, 34..=35).await;
    world.finish(&run, vec![v1::SessionEnd { session: session(1), batches: 35 }]).await;
    let sealed = world.sealed(&run).await;
    assert!(sealed.seal_complete, "{:?}", sealed.seal_missing);
    assert_eq!((sealed.points, steps(&world, &run).await), (35, (1..=35).collect::<Vec<_>>()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_metrics_that_has_grown_longer_than_the_one_before_is_stored_from_its_first_message() {
    let (server, mut world) = world().await;
    let run = world.create("busy").await;
    log(&world, &run, 1..=5).await;
    assert_eq!(steps(&world, &run).await, (1..=5).collect::<Vec<_>>());
    stored(&world).await;
    world.tracker.take().unwrap().stop().await;
    wipe_metrics(&server).await;
    // Another tracker's door took these in meanwhile: the stream ends beyond every floor of the store.
    for n in 6..=30 {
        let points = codec::encode(&[Point { step: n, time_ms: 0, value: 0.0 }]);
        let series = vec![Block { name: "loss".to_owned(), points }];
        let (project, session) = (PROJECT.to_owned(), session(1));
        let batch = Batch { project, run: run.clone(), session, n: n as u64, series, ..Batch::default() };
        let subject = metrics_subject(run.parse().unwrap(), "_other");
        let message = Message { subject, headers: footplate_eventlog::Headers::default(), payload: batch.encode_to_vec().into() };
        world.broker.publish(StreamName::Metrics, message, Expect::Any).await.unwrap();
    }
    world.restart_after_stop().await;
    assert_eq!(steps(&world, &run).await, (1..=30).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_metrics_goes_on_where_it_was() {
    let (server, mut world) = world().await;
    let run = world.create("busy").await;
    for (numbers, running) in [(1..=20, true), (21..=22, false), (23..=24, true)] {
        log(&world, &run, numbers).await;
        let end = steps(&world, &run).await.len() as i64;
        assert_eq!(steps(&world, &run).await, (1..=end).collect::<Vec<_>>());
        stored(&world).await;
        if !running {
            world.tracker.take().unwrap().stop().await;
        }
        let answer = connected(&server).await.client().request("$JS.API.STREAM.PURGE.METRICS", "".into()).await.unwrap();
        assert!(String::from_utf8_lossy(&answer.payload).contains("\"success\":true"));
        if !running {
            world.restart_after_stop().await;
        }
    }
    log(&world, &run, 25..=25).await;
    assert_eq!(steps(&world, &run).await, (1..=25).collect::<Vec<_>>());
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
