//! Two instances: one leads, both answer; the other takes over; the old one's word does not count.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::types;
use footplate_eventlog::StreamName;
use footplate_events::Event;
use footplate_events::facts::JobPlaced;

#[tokio::test]
async fn when_the_leader_stops_the_other_instance_goes_on_where_it_stood() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let hands = Hands::new(stage.broker.clone(), false);
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "launched").await;
    let other = instance(stage.broker.clone(), "two").await;
    stage.scheduler.stop().await;
    let waiting = other.submitted(spec(1, 1)).await;
    hands.finish();
    assert_eq!(other.reaches(&run, "ended").await.outcome(), types::Outcome::Succeeded);
    assert_eq!(other.reaches(&waiting, "ended").await.outcome(), types::Outcome::Succeeded);
    assert_eq!(other.job(&run).await.attempt, 1);
    assert!(other.verified().await.equal);
    other.stop().await;
}

#[tokio::test]
async fn a_leader_stalled_in_the_middle_of_a_placement_places_nothing_once_another_leads() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let first = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&first, "placed").await;
    stage.scheduler.cancel(&first, "").await.unwrap();
    let hands = Hands::new(stage.broker.clone(), false);
    stage.scheduler.reaches(&first, "ended").await;
    // The next placement of the leader hangs before it is stored, while its lease runs out.
    let is_placement = |stream: StreamName, messages: &[(footplate_eventlog::Message, footplate_eventlog::Expect)]| {
        let placed = |(name, value): &(std::borrow::Cow<str>, String)| name == "ce-type" && value == "footplate.job.placed.v1";
        stream == StreamName::Ledger && messages.iter().any(|(message, _)| message.headers.iter().any(placed))
    };
    let mut stall = stage.broker.faults().stall_next(is_placement);
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stall.reached().await;
    // The whole process stands still: its lease is not renewed either.
    let mut lease = stage.broker.faults().stall_next(|stream, _| stream == StreamName::Beats);
    lease.reached().await;
    let other = instance(stage.broker.clone(), "two").await;
    other.reaches(&run, "launched").await;
    stall.release();
    lease.release();
    hands.finish();
    let job = other.reaches(&run, "ended").await;
    assert_eq!((job.outcome(), job.attempt), (types::Outcome::Succeeded, 1));
    let placements: Vec<JobPlaced> = other
        .events(&run)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::JobPlaced(placed) => Some(placed),
            _ => None,
        })
        .collect();
    assert_eq!(placements.len(), 1, "the stalled placement was refused: {placements:?}");
    assert!(other.verified().await.equal);
    // Who was deposed tells nothing any more of what follows from leading, and never counted what was refused.
    let deposed = stage.scheduler.context.metrics.show();
    assert!(deposed.contains("footplate_scheduler_leads 0") && !deposed.contains("placements_total"), "{deposed}");
    stage.scheduler.stop().await;
    other.stop().await;
}
