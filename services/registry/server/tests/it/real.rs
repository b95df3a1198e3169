//! The same on a real nats-server, with the credentials of the registry, and the broker killed in the middle.

use crate::stage::*;
use footplate_api::v1;
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, StreamBytes};
use footplate_testkit::{eventually, nats};
use footplate_types::ServiceName;
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_numbers_have_no_gap_and_one_promotion_wins_though_the_broker_dies() {
    let permissions = Permissions::of_service(&ServiceName::parse("registry").unwrap()).to_server_config();
    let users = format!("{{ user: others, password: p }}, {{ user: registry, password: p, permissions: {permissions} }}");
    let server = nats().config(&format!("authorization {{ users: [ {users} ] }}")).start().await;
    let connected = |user: &str| {
        let mut config = JetStreamConfig::single(server.url(), "registry tests");
        config.bytes = StreamBytes::of_disk(4 << 30);
        config.credentials = Credentials::User { name: user.to_owned(), password: "p".to_owned() };
        JetStreamBroker::connect(config)
    };
    let broker = connected("others").await.unwrap();
    let one = instance(Arc::new(connected("registry").await.unwrap()), "one").await;
    let two = instance(Arc::new(connected("registry").await.unwrap()), "two").await;
    let (ada, bob) = (one.of("ada"), two.of("bob"));
    ada.create("digits").await.unwrap();
    let run = trained(&broker, "vision", 1).await;
    let asked = (0..12).map(|n| {
        let person = if n % 2 == 0 { &ada } else { &bob };
        let keyed = v1::RegisterVersionRequest { request_id: format!("key-{}", n / 3), ..person.registration(run, "model.bin") };
        person.register(keyed)
    });
    let numbers: BTreeSet<u32> = futures::future::join_all(asked).await.into_iter().map(|answer| answer.unwrap().version).collect();
    assert_eq!(numbers, (1..=4).collect(), "four keys are four versions, whoever sends them how often");
    for version in 1..=4 {
        ada.propose(version).await.unwrap();
        bob.approve(version).await.unwrap();
    }
    let (first, second) = tokio::join!(ada.promote(1), bob.promote(2));
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    let last = [&first, &second].into_iter().flatten().map(|written| written.sequence).max().unwrap();
    one.handle.live().at_least(last, SOON).await.unwrap();
    let before = ada.model().await.serving;

    server.kill9().await.unwrap();
    // What is asked while the broker is away is either done or not; under its key it is asked again until it is known.
    let keyed = v1::VersionRequest { request_id: "through the night".to_owned(), ..ada.about(3) };
    let asking =
        eventually(SOON, "version 3 serves", || async { ada.client.once(ada.client.registry().promote_version(keyed.clone())).await.ok() });
    let (written, restarted) = tokio::join!(asking, async { server.restart().await });
    restarted.unwrap();
    let seen = v1::GetModelRequest { project: "vision".to_owned(), name: "digits".to_owned(), at_least: written.sequence };
    let model = bob.client.once(bob.client.registry().get_model(seen)).await.unwrap().model.unwrap();
    assert_eq!(model.serving, 3);
    assert_eq!(model.history.iter().rev().take(2).copied().collect::<Vec<_>>(), [3, before], "promoted once");
    for instance in [&one, &two] {
        let verified = instance.verified().await;
        assert!(verified.equal, "{}", verified.difference);
    }
    one.stop().await;
    two.stop().await;
}
