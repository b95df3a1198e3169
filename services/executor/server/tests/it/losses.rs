//! Losses: silence, fence, loss; and the view that can be rebuilt.

use crate::stage::{SOON, Stage, node, stage};
use bytes::Bytes;
use footplate_eventlog::verify::verify_view;
use footplate_eventlog::{Expect, Headers, Message, PublishError, StreamName};
use footplate_events::Event;
use footplate_events::facts::LossEvidence;
use footplate_events::messages::{Beat, BeatMessage, beat_subject};
use footplate_testkit::eventually;
use footplate_types::{Epoch, Timestamp};

async fn beat(stage: &Stage, name: &str, epoch: u64, lease_ms: u64, expected: u64) -> Result<u64, PublishError> {
    let beat = BeatMessage::Beat(Beat {
        node: node(name),
        epoch: Epoch(epoch),
        boot_id: "boot-a".to_owned(),
        number: 1,
        lease_ms,
        kill_ms: 50,
        as_of: 0,
        held: Vec::new(),
        sent_at: Timestamp::default(),
        agent: String::new(),
    });
    let message = Message {
        subject: beat_subject(&node(name)),
        headers: Headers::default(),
        payload: Bytes::from(serde_json::to_vec(&beat).unwrap()),
    };
    stage.broker.publish(StreamName::Beats, message, Expect::Subject(expected)).await
}

#[tokio::test]
async fn a_silent_node_is_fenced_first_and_its_members_are_lost_after_it() {
    let stage = stage().await;
    stage.placed().await;
    let last = beat(&stage, "n1", 1, 300, 0).await.unwrap();
    beat(&stage, "n2", 1, 0, 0).await.unwrap();
    let lost = stage
        .event("attempt.lost", |event| match event {
            Event::AttemptLost(fact) => Some(fact.clone()),
            _ => None,
        })
        .await;
    assert_eq!(lost.members.len(), 1);
    assert_eq!((lost.members[0].node.clone(), lost.members[0].evidence.clone()), (node("n1"), LossEvidence::LeaseExpired));
    assert_eq!(beat(&stage, "n1", 1, 300, last).await, Err(PublishError::Conflict), "the fence stands in the way of the old generation");
    let fence = stage.broker.last(StreamName::Beats, &beat_subject(&node("n1"))).await.unwrap().unwrap();
    assert!(matches!(serde_json::from_slice(&fence.payload).unwrap(), BeatMessage::Fence(fence) if fence.epoch == Epoch(2)));
    // What the fenced agent still reports about the lost member changes nothing.
    stage.exited("n1", 0, 1, 0).await;
    stage.ready("n2", 1, 1).await;
    stage.event("n2 ready", |event| matches!(event, Event::AttemptReady(_)).then_some(())).await;
    assert!(!stage.events().await.iter().any(|recorded| matches!(recorded.envelope.event, Event::AttemptExited(_))));
    stage.stop().await;
}

#[tokio::test]
async fn the_view_rebuilt_from_the_ledger_equals_the_living_one() {
    let stage = stage().await;
    stage.placed().await;
    stage.ready("n1", 0, 1).await;
    stage.exited("n2", 1, 1, 0).await;
    eventually(SOON, "both reports folded", || async { (stage.events().await.len() >= 2).then_some(()) }).await;
    let live = stage.handle.live();
    let verified = verify_view(&stage.ledger, &footplate_executor_server::filters(), live, 0, SOON).await.unwrap();
    assert!(verified.is_equal(), "{verified:?}");
    assert!(verified.events >= 5, "{verified:?}");
    stage.stop().await;
}
