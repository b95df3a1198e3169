//! The same on a real nats-server: a gang's whole life with the broker killed in the middle, and one key from many clients.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{types, v1};
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, StreamBytes, service_inbox_prefix};
use footplate_testkit::{eventually, nats};
use footplate_types::ServiceName;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_a_gang_survives_the_brokers_death_and_one_key_is_one_run() {
    // The scheduler may do at the broker what a scheduler needs, and nothing else; the others' facts come over a connection of their own.
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
