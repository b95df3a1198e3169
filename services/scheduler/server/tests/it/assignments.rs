//! The assignments' stream: rewritten when wiped, never written over what is newer.

use crate::hands::Hands;
use crate::stage::*;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Broker, Expect, Headers, Message, StreamName};
use footplate_events::messages::{Assignment, Order, assign_subject};
use footplate_testkit::eventually;
use std::sync::Arc;

#[tokio::test]
async fn a_wiped_stream_is_rewritten_at_the_reconnect_and_says_what_it_said() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    register(stage.broker.as_ref(), "n2", 1).await;
    let _hands = Hands::new(stage.broker.clone(), false);
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "launched").await;
    let before = eventually(SOON, "it is told to run", || async {
        let (_, said) = assigned(stage.broker.as_ref(), "n1").await?;
        said.tasks.first().is_some_and(|task| matches!(task.order, Order::Run { .. })).then_some(said)
    })
    .await;
    stage.broker.faults().unavailable(true);
    stage.broker.wipe(StreamName::Assignments);
    stage.broker.faults().unavailable(false);
    let (sequence, after) = eventually(SOON, "it stands again", || assigned(stage.broker.as_ref(), "n1")).await;
    assert_eq!(after, before, "a function of the ledger: the same bytes, the same as_of");
    assert!(sequence <= 2);
    eventually(SOON, "the idle node's too", || assigned(stage.broker.as_ref(), "n2")).await;
    assert_eq!(stage.scheduler.job(&run).await.state, "launched", "and nobody was stopped by it");
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_newer_assignment_of_another_leader_is_left_alone() {
    let broker = Arc::new(MemoryBroker::new());
    let newer = Assignment { node: node("n1"), as_of: 1 << 40, tasks: Vec::new() };
    let message =
        Message { subject: assign_subject(&node("n1")), headers: Headers::default(), payload: serde_json::to_vec(&newer).unwrap().into() };
    broker.publish(StreamName::Assignments, message, Expect::Any).await.unwrap();
    let scheduler = instance(broker.clone(), "one").await;
    register(broker.as_ref(), "n1", 1).await;
    register(broker.as_ref(), "n2", 1).await;
    let run = scheduler.submitted(spec(2, 1)).await;
    scheduler.reaches(&run, "placed").await;
    eventually(SOON, "the other node is told", || async {
        assigned(broker.as_ref(), "n2").await.filter(|(_, said)| said.tasks.len() == 1)
    })
    .await;
    assert_eq!(assigned(broker.as_ref(), "n1").await, Some((1, newer)));
    let shown = scheduler.context.metrics.show();
    assert!(shown.contains("scheduler_assignment_conflicts_total"), "{shown}");
    scheduler.stop().await;
}

#[tokio::test]
async fn an_assignment_whose_answer_was_lost_is_looked_up_and_not_doubled_in_meaning() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    eventually(SOON, "the empty assignment stands", || assigned(stage.broker.as_ref(), "n1")).await;
    stage.broker.faults().lose_next_ack(StreamName::Assignments);
    let _hands = Hands::new(stage.broker.clone(), true);
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "ended").await;
    eventually(SOON, "it is empty again", || async {
        assigned(stage.broker.as_ref(), "n1").await.filter(|(_, said)| said.tasks.is_empty())
    })
    .await;
    stage.scheduler.stop().await;
}
