//! Reports: folded once, in spool order, settled when durable.

use crate::stage::{RUN, SOON, node, stage};
use footplate_eventlog::{Broker, StreamName};
use footplate_events::Event;
use footplate_events::messages::{Settled, settled_subject};
use footplate_testkit::eventually;
use footplate_types::MemberIndex;

async fn settled(broker: &dyn Broker, name: &str) -> Option<u64> {
    let stored = broker.last(StreamName::Settled, &settled_subject(&node(name), "executor")).await.unwrap()?;
    Some(serde_json::from_slice::<Settled>(&stored.payload).unwrap().up_to.offset)
}

#[tokio::test]
async fn a_report_becomes_an_event_that_answers_the_placement_and_is_settled() {
    let stage = stage().await;
    stage.placed().await;
    stage.ready("n1", 0, 1).await;
    stage.event("attempt.ready", |event| matches!(event, Event::AttemptReady(_)).then_some(())).await;
    let ready = stage.events().await.remove(0);
    assert!(ready.envelope.causation.is_some());
    assert_eq!(ready.envelope.subject.run_id(), Some(RUN));
    eventually(SOON, "settled", || async { (settled(stage.broker.as_ref(), "n1").await == Some(1)).then_some(()) }).await;
    stage.stop().await;
}

#[tokio::test]
async fn a_repeated_report_writes_nothing_and_a_gap_waits_for_what_is_missing() {
    let stage = stage().await;
    stage.placed().await;
    stage.ready("n1", 0, 1).await;
    stage.ready("n1", 0, 1).await;
    stage.exited("n1", 0, 3, 0).await;
    stage.ready("n2", 1, 1).await;
    stage
        .event("n2 ready", |event| match event {
            Event::AttemptReady(fact) => fact.members.iter().any(|member| member.member == MemberIndex(1)).then_some(()),
            _ => None,
        })
        .await;
    let exits = stage.events().await.iter().filter(|recorded| matches!(recorded.envelope.event, Event::AttemptExited(_))).count();
    assert_eq!(exits, 0, "offset 3 came before offset 2");
    stage.ready("n1", 0, 2).await;
    stage.exited("n1", 0, 3, 0).await;
    stage.event("attempt.exited", |event| matches!(event, Event::AttemptExited(_)).then_some(())).await;
    let ready: usize = stage
        .events()
        .await
        .iter()
        .map(|recorded| match &recorded.envelope.event {
            Event::AttemptReady(fact) => fact.members.iter().filter(|member| member.member == MemberIndex(0)).count(),
            _ => 0,
        })
        .sum();
    assert_eq!(ready, 1);
    stage.stop().await;
}

#[tokio::test]
async fn a_report_that_outruns_its_placement_in_the_view_is_not_refused() {
    let stage = stage().await;
    // The leader leads and has seen an empty ledger; then placement and report arrive at once.
    eventually(SOON, "the leader's term", || async { (stage.ledger.end().await.unwrap() > 0).then_some(()) }).await;
    stage.placed().await;
    stage.ready("n1", 0, 1).await;
    stage.event("attempt.ready", |event| matches!(event, Event::AttemptReady(_)).then_some(())).await;
    stage.stop().await;
}
