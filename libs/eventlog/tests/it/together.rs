//! Events that stand in the ledger together or not at all.

use crate::facts::{experiment, note};
use footplate_clock::event_id;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{AppendError, Broker, Ledger, StreamName};
use footplate_events::Envelope;
use footplate_types::ServiceName;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

fn ledger() -> (MemoryBroker, Ledger) {
    let broker = MemoryBroker::new();
    (broker.clone(), Ledger::new(Arc::new(broker)))
}

fn events(names: &[&str]) -> Vec<(Envelope, u64)> {
    names.iter().map(|name| (note(&experiment(name), event_id(), name), 0)).collect()
}

async fn stored(broker: &MemoryBroker) -> u64 {
    broker.bounds(StreamName::Ledger).await.unwrap().last
}

#[tokio::test]
async fn they_stand_in_their_order_and_the_same_again_are_the_same() {
    for deduplicate in [true, false] {
        let (broker, ledger) = ledger();
        broker.faults().deduplicate(deduplicate);
        ledger.append(note(&experiment("other"), event_id(), "x"), 0).await.unwrap();
        let events = events(&["b", "a", "c"]);
        assert_eq!(ledger.append_together(events.clone(), SOON).await, Ok(vec![2, 3, 4]));
        assert_eq!(ledger.append_together(events, SOON).await, Ok(vec![2, 3, 4]), "with the broker's help or without");
        assert_eq!(stored(&broker).await, 4);
    }
}

#[tokio::test]
async fn one_that_is_not_as_expected_keeps_all_out() {
    let (broker, ledger) = ledger();
    ledger.append(note(&experiment("b"), event_id(), "x"), 0).await.unwrap();
    let refused = ledger.append_together(events(&["a", "b", "c"]), SOON).await;
    assert_eq!(refused, Err(AppendError::Conflict { expected: 0 }));
    assert_eq!(stored(&broker).await, 1);
    let mut mended = events(&["a", "b", "c"]);
    mended[1].1 = 1;
    assert_eq!(ledger.append_together(mended, SOON).await, Ok(vec![2, 3, 4]));
}

#[tokio::test]
async fn a_lost_answer_or_request_leaves_them_there_once() {
    for lost_request in [false, true] {
        let (broker, ledger) = ledger();
        if lost_request {
            broker.faults().lose_next_request(StreamName::Ledger)
        } else {
            broker.faults().lose_next_ack(StreamName::Ledger)
        }
        broker.faults().deduplicate(false);
        assert_eq!(ledger.append_together(events(&["a", "b"]), SOON).await, Ok(vec![1, 2]), "lost request {lost_request}");
        assert_eq!(stored(&broker).await, 2);
    }
}

#[tokio::test]
async fn of_two_that_overlap_one_is_there_whole() {
    let (broker, ledger) = ledger();
    let (one, two) =
        tokio::join!(ledger.append_together(events(&["a", "b", "c"]), SOON), ledger.append_together(events(&["c", "d"]), SOON));
    assert_eq!([&one, &two].iter().filter(|outcome| outcome.is_ok()).count(), 1, "{one:?} {two:?}");
    assert_eq!(stored(&broker).await, if one.is_ok() { 3 } else { 2 });
}

#[tokio::test]
async fn while_the_broker_is_away_or_full_nothing_is_stored_and_that_is_told() {
    let (broker, ledger) = ledger();
    broker.faults().full(true);
    assert!(matches!(ledger.append_together(events(&["a", "b"]), SOON).await, Err(AppendError::Full(_))));
    broker.faults().full(false);
    broker.faults().unavailable(true);
    let Err(AppendError::Unavailable(why)) = ledger.append_together(events(&["a", "b"]), Duration::from_millis(80)).await else { panic!() };
    assert!(why.ends_with("nothing was stored"), "{why}");
    broker.faults().unavailable(false);
    assert_eq!(stored(&broker).await, 0);
}

#[tokio::test]
async fn what_cannot_be_one_batch_or_is_anothers_is_refused() {
    let (broker, ledger) = ledger();
    let of = |outcome| match outcome {
        Err(AppendError::Invalid(invalid)) => invalid.field,
        other => panic!("{other:?}"),
    };
    assert_eq!(of(ledger.append_together(Vec::new(), SOON).await), "events (count)");
    let many: Vec<String> = (0..1_001).map(|n| format!("e{n}")).collect();
    assert_eq!(of(ledger.append_together(events(&many.iter().map(String::as_str).collect::<Vec<_>>()), SOON).await), "events (count)");
    assert_eq!(of(ledger.append_together(events(&["a", "a"]), SOON).await), "events");
    let scheduler = ledger.of(&ServiceName::parse("scheduler").unwrap());
    assert!(matches!(scheduler.append_together(events(&["a"]), SOON).await, Err(AppendError::NotOwned { .. })));
    assert_eq!(stored(&broker).await, 0);
}
