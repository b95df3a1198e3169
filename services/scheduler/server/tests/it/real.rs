//! The same on a real nats-server: a gang's whole life with the broker killed in the middle, and one key from many clients.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{types, v1};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_testkit::{eventually, nats};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_a_gang_survives_the_brokers_death_and_one_key_is_one_run() {
    let server = nats().start().await;
    let mut config = JetStreamConfig::single(server.url(), "scheduler tests");
    config.bytes = StreamBytes::of_disk(4 << 30);
    let broker = Arc::new(JetStreamBroker::connect(config).await.unwrap());
    let scheduler = instance(broker.clone(), "one").await;
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
