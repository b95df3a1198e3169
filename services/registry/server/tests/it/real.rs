//! The same on a real nats-server, with the credentials of the registry, and the broker killed in the middle.

use crate::stage::*;
use footplate_api::v1;
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, StreamBytes, service_inbox_prefix};
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
        config.inbox_prefix = Some(service_inbox_prefix(&ServiceName::parse("registry").unwrap()));
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
    // Both have looked at the same moment.
    let looked = v1::GetModelRequest { project: "vision".to_owned(), name: "digits".to_owned(), at_least: 0 };
    let seen = ada.client.once(ada.client.registry().get_model(looked)).await.unwrap().view_sequence;
    let as_seen = |person: &Person, version| v1::VersionRequest { seen, ..person.about(version) };
    let (first, second) = tokio::join!(async { ada.client.once(ada.client.registry().promote_version(as_seen(&ada, 1))).await }, async {
        bob.client.once(bob.client.registry().promote_version(as_seen(&bob, 2))).await
    });
    let (before, sequence, lost) = match (first, second) {
        (Ok(won), Err(lost)) => (1, won.sequence, lost),
        (Err(lost), Ok(won)) => (2, won.sequence, lost),
        both => panic!("exactly one wins: {both:?}"),
    };
    assert_eq!(lost.reason, "OVERTAKEN", "{lost:?}");
    for reader in [&ada, &bob] {
        assert_eq!(reader.in_stage("Production", sequence).await, [before], "exactly one stands in Production");
    }

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
