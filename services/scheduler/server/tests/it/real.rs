//! The same on a real nats-server: a gang's whole life with the broker killed in the middle, and one key from many clients.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{types, v1};
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, StreamBytes, service_inbox_prefix};
use footplate_testkit::{NatsServer, eventually, nats};
use footplate_types::ServiceName;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A real server, a scheduler that may do at the broker what a scheduler needs and nothing else, and a connection of its own for the others' facts.
async fn real() -> (NatsServer, Instance, Arc<JetStreamBroker>) {
    let permissions = Permissions::of_service(&ServiceName::parse("scheduler").unwrap()).to_server_config();
    let users = format!("{{ user: others, password: p }}, {{ user: scheduler, password: p, permissions: {permissions} }}");
    let server = nats().config(&format!("authorization {{ users: [ {users} ] }}")).start().await;
    let connected = |user: &str| {
        let mut config = JetStreamConfig::single(server.url(), "scheduler tests");
        config.bytes = StreamBytes::of_disk(4 << 30);
        config.credentials = Credentials::User { name: user.to_owned(), password: "p".to_owned() };
        config.inbox_prefix = Some(service_inbox_prefix(&ServiceName::parse("scheduler").unwrap()));
        JetStreamBroker::connect(config)
    };
    let scheduler = instance(Arc::new(connected("scheduler").await.unwrap()), "one").await;
    let broker = Arc::new(connected("others").await.unwrap());
    (server, scheduler, broker)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_that_dies_under_it_a_pipeline_of_one_key_is_there_whole_and_once() {
    let (server, scheduler, broker) = real().await;
    let part = |n: usize| v1::PipelineJob {
        name: format!("j{n}"),
        spec: Some(spec(1, 1)),
        after: (0..n.min(3)).map(|before| v1::PipelineAfter { name: format!("j{before}"), when: 0 }).collect(),
        ..v1::PipelineJob::default()
    };
    let asked = || v1::SubmitPipelineRequest {
        project: "vision".to_owned(),
        jobs: (0..60).map(part).collect(),
        request_id: "nightly".to_owned(),
        ..v1::SubmitPipelineRequest::default()
    };
    let calls: Vec<_> = (0..12)
        .map(|n| {
            let (client, asked) = (scheduler.client.clone(), asked());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(4 * n)).await;
                client.once(client.jobs().submit_pipeline(asked)).await
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    for call in calls {
        // Told yes, or that it is to be asked again.
        if let Err(error) = call.await.unwrap() {
            assert!(["BROKER_AWAY", "VIEW_BEHIND"].contains(&error.reason.as_str()), "{error:?}");
        }
    }
    let answer = eventually(SOON, "the same key is answered", || async {
        scheduler.client.once(scheduler.client.jobs().submit_pipeline(asked())).await.ok()
    })
    .await;
    let runs: BTreeSet<String> = answer.jobs.iter().map(|job| job.run_id.clone()).collect();
    assert_eq!(runs.len(), 60);
    scheduler.handle.live().at_least(answer.sequence, SOON).await.unwrap();
    let known: BTreeSet<String> = scheduler.handle.live().read().jobs().keys().map(ToString::to_string).collect();
    assert_eq!(known, runs);
    let first = answer.jobs[0].sequence;
    assert!(answer.jobs.iter().map(|job| job.sequence).eq(first..first + 60), "one batch");
    register(broker.as_ref(), "n1", 1).await;
    scheduler.reaches(&answer.jobs[0].run_id, "placed").await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_the_largest_array_is_one_batch_and_is_cancelled_whole() {
    let (_server, scheduler, broker) = real().await;
    let asked = || v1::SubmitArrayRequest {
        project: "vision".to_owned(),
        spec: Some(spec(1, 1)),
        indices: "0-999".to_owned(),
        at_once: 2,
        request_id: "all".to_owned(),
        ..v1::SubmitArrayRequest::default()
    };
    let answer = scheduler.client.once(scheduler.client.jobs().submit_array(asked())).await.unwrap();
    let first = answer.jobs[0].sequence;
    assert!(answer.jobs.iter().map(|job| job.sequence).eq(first..first + 1_000), "one batch");
    assert_eq!(scheduler.client.once(scheduler.client.jobs().submit_array(asked())).await.unwrap(), answer);
    register(broker.as_ref(), "n1", 8).await;
    let _hands = Hands::new(broker.clone(), false);
    scheduler.reaches(&answer.jobs[1].run_id, "launched").await;
    let all = v1::JobRequest { project: "vision".to_owned(), run_id: answer.array_id.clone(), wait: true, ..v1::JobRequest::default() };
    let cancelled = scheduler.client.once(scheduler.client.jobs().cancel_array(all)).await.unwrap();
    assert_eq!((cancelled.asked, cancelled.answered), (1_000, 1_000));
    eventually(SOON, "all have ended", || async { scheduler.handle.live().read().jobs().is_empty().then_some(()) }).await;
    let verified = scheduler.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_a_gang_survives_the_brokers_death_and_one_key_is_one_run() {
    let (server, scheduler, broker) = real().await;
    register(broker.as_ref(), "n1", 1).await;
    register(broker.as_ref(), "n2", 1).await;
    let hands = Hands::new(broker.clone(), false);
    let keyed = || v1::SubmitJobRequest { request_id: "nightly".to_owned(), ..submission(spec(2, 1)) };
    let answers = futures::future::join_all((0..10).map(|_| scheduler.submit(keyed()))).await;
    let run = answers[0].as_ref().unwrap().run_id.clone();
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().run_id == run), "{answers:?}");
    scheduler.reaches(&run, "launched").await;
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    hands.finish();
    let job = scheduler.reaches(&run, "ended").await;
    assert_eq!((job.outcome(), job.attempt), (types::Outcome::Succeeded, 1));
    eventually(SOON, "the nodes are told to hold nothing", || async {
        let (_, one) = assigned(broker.as_ref(), "n1").await?;
        one.tasks.is_empty().then_some(())
    })
    .await;
    let verified = scheduler.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    scheduler.stop().await;
}
