//! What is asked at once, at two instances.

use crate::stage::*;
use footplate_api::v1;
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_registered_at_once_are_numbered_without_a_gap() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    let (ada, bob) = (stage.registry.of("ada"), other.of("bob"));
    ada.create("digits").await.unwrap();
    let run = trained(stage.broker.as_ref(), "vision", 1).await;
    let asked = (0..20).map(|n| {
        let person = if n % 2 == 0 { &ada } else { &bob };
        person.register(person.registration(run, "model.bin"))
    });
    let numbers: BTreeSet<u32> = futures::future::join_all(asked).await.into_iter().map(|answer| answer.unwrap().version).collect();
    assert_eq!(numbers, (1..=20).collect());
    other.stop().await;
    stage.registry.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_promotions_at_once_one_wins_and_the_other_is_told_by_whom() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    approved_versions(&stage, 3).await;
    let (ada, bob) = (stage.registry.of("ada"), other.of("bob"));
    ada.promote(3).await.unwrap();
    for _ in 0..10 {
        let seen = ada.resolve("models:/digits/Production").await.unwrap();
        let serving = seen.version.unwrap().version;
        let (one, two) = if serving == 1 { (2, 3) } else { (1, if serving == 2 { 3 } else { 2 }) };
        let as_seen = |person: &Person, version| v1::VersionRequest { seen: seen.view_sequence, ..person.about(version) };
        let (first, second) =
            tokio::join!(async { ada.client.once(ada.client.registry().promote_version(as_seen(&ada, one))).await }, async {
                bob.client.once(bob.client.registry().promote_version(as_seen(&bob, two))).await
            },);
        let (winner, sequence, loser, by) = match (&first, &second) {
            (Ok(won), Err(lost)) => (one, won.sequence, lost, "ada"),
            (Err(lost), Ok(won)) => (two, won.sequence, lost, "bob"),
            both => panic!("exactly one wins: {both:?}"),
        };
        assert_eq!((loser.reason.as_str(), loser.exit().code()), ("OVERTAKEN", 4));
        assert!(loser.message.contains(by) && loser.message.contains(&format!("version {winner}")), "{loser:?}");
        for reader in [&ada, &bob] {
            assert_eq!(reader.in_stage("Production", sequence).await, [winner], "exactly one stands in Production");
        }
        assert_eq!(ada.model().await.serving, winner);
    }
    assert!(stage.registry.verified().await.equal && other.verified().await.equal);
    other.stop().await;
    stage.registry.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_always_finds_exactly_one_in_production() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    approved_versions(&stage, 2).await;
    let (ada, bob, reader) = (stage.registry.of("ada"), other.of("bob"), other.of("eve"));
    let began = ada.promote(1).await.unwrap();
    other.handle.live().at_least(began.sequence, SOON).await.unwrap();
    let swapping = async {
        for n in 0..25u32 {
            let (one, two) = (n % 2 + 1, (n + 1) % 2 + 1);
            let (first, second) = tokio::join!(ada.promote(one), bob.promote(two));
            assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
        }
    };
    let reading = async {
        let mut position = 0;
        loop {
            let answer = reader.resolve("models:/digits/Production").await.expect("one serves at any moment");
            assert!(answer.view_sequence >= position, "a reader never goes back");
            position = answer.view_sequence;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = swapping => {}
        () = reading => {}
    }
    other.stop().await;
    stage.registry.stop().await;
}
