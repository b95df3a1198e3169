//! A job from its submission to its end, over the wire.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::types;
use footplate_events::Event;

#[tokio::test]
async fn a_gang_is_submitted_placed_launched_ended_and_the_view_rebuilds_equal() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 2).await;
    register(stage.broker.as_ref(), "n2", 2).await;
    let hands = Hands::new(stage.broker.clone(), false);
    let run = stage.scheduler.submitted(spec(2, 2)).await;
    let job = stage.scheduler.reaches(&run, "launched").await;
    let nodes: Vec<&str> = job.members.iter().map(|member| member.node.as_str()).collect();
    assert_eq!((nodes, job.attempt, job.submitted_by.as_str()), (vec!["n1", "n2"], 1, "tester"));
    hands.finish();
    let job = stage.scheduler.reaches(&run, "ended").await;
    assert_eq!((job.outcome(), job.cause.as_str()), (types::Outcome::Succeeded, "success"));
    assert_eq!(job.spec.unwrap().resources, spec(2, 2).resources, "an ended job still tells what it asked");
    footplate_testkit::eventually(SOON, "both nodes are told to hold nothing", || async {
        let (_, one) = assigned(stage.broker.as_ref(), "n1").await?;
        let (_, two) = assigned(stage.broker.as_ref(), "n2").await?;
        (one.tasks.is_empty() && two.tasks.is_empty()).then_some(())
    })
    .await;
    let verified = stage.scheduler.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    let shown = stage.scheduler.context.metrics.show();
    assert!(shown.contains("footplate_scheduler_placements_total 1"), "{shown}");
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_more_urgent_job_preempts_and_the_victim_comes_back_and_ends() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let hands = Hands::new(stage.broker.clone(), false);
    let low = stage.scheduler.submitted(types::JobSpec { preemptible: true, ..spec(1, 1) }).await;
    stage.scheduler.reaches(&low, "launched").await;
    let high = stage.scheduler.submitted(types::JobSpec { priority: 9, ..spec(1, 1) }).await;
    stage.scheduler.reaches(&high, "launched").await;
    assert_eq!(stage.scheduler.job(&low).await.state, "pending");
    hands.finish();
    assert_eq!(stage.scheduler.reaches(&high, "ended").await.outcome(), types::Outcome::Succeeded);
    let low_job = stage.scheduler.reaches(&low, "ended").await;
    assert_eq!((low_job.outcome(), low_job.attempt), (types::Outcome::Succeeded, 2));
    let events = stage.scheduler.events(&low).await;
    assert_eq!(events.iter().filter(|event| matches!(event, Event::JobPlaced(_))).count(), 2);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn one_submit_is_one_chain_all_events_carry_its_correlation_and_actor() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let _hands = Hands::new(stage.broker.clone(), true);
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "ended").await;
    let subject = footplate_events::Subject::job(&project(), footplate_types::RunId::parse(&run).unwrap());
    let items = stage.scheduler.ledger.aggregate(&subject).await.unwrap();
    let envelopes: Vec<_> = items
        .into_iter()
        .filter_map(|item| match item {
            footplate_eventlog::LedgerItem::Fact(recorded) => Some(recorded.envelope),
            _ => None,
        })
        .collect();
    let first = &envelopes[0];
    assert!(envelopes.len() >= 4);
    assert!(envelopes.iter().all(|envelope| envelope.correlation == first.id && envelope.actor == first.actor));
    assert!(envelopes[1..].iter().all(|envelope| envelope.causation.is_some()));
    stage.scheduler.stop().await;
}
