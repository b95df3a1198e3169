//! Client-written appends: group commit, unknown outcomes, refusals.

use crate::facts::{Seen, experiment, note};
use footplate_clock::event_id;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{AppendError, Broker, Expect, Ledger, LedgerItem, Live, Message, StreamName, follow};
use footplate_events::header;
use footplate_testkit::eventually;
use futures::future::join_all;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);

/// Publishes a message of the ledger as another build, or a broken one, might.
pub(crate) async fn raw(broker: &dyn Broker, subject: &str, event_type: &str, payload: &str) -> u64 {
    let headers = vec![(header::TYPE.to_owned(), event_type.to_owned())];
    let message = Message { subject: subject.to_owned(), headers: headers.into(), payload: payload.to_owned().into() };
    broker.publish(StreamName::Ledger, message, Expect::Any).await.unwrap()
}

fn ledger() -> (MemoryBroker, Ledger) {
    let broker = MemoryBroker::new();
    (broker.clone(), Ledger::new(Arc::new(broker)))
}

async fn all(ledger: &Ledger) -> Vec<LedgerItem> {
    ledger.read("fp.ledger.>", 1, 10_000).await.unwrap().0
}

/// Rule 4: after a lost answer the same event is sent again until the answer is definite, and stands in the ledger once.
#[tokio::test]
async fn an_append_whose_answer_was_lost_is_there_once() {
    for lost_request in [false, true] {
        let (broker, ledger) = ledger();
        if lost_request {
            broker.faults().lose_next_request(StreamName::Ledger)
        } else {
            broker.faults().lose_next_ack(StreamName::Ledger)
        }
        let sequence = ledger.append(note(&experiment("a"), event_id(), "x"), 0).await;
        assert_eq!(sequence, Ok(1), "lost request {lost_request}");
        assert_eq!(all(&ledger).await.len(), 1);
    }
}

/// Rule 4: a conflict after a lost answer is one only when no later event of the aggregate is the lost one; looking at the last is not
/// enough.
#[tokio::test]
async fn a_lost_answer_is_found_behind_later_events() {
    let (broker, ledger) = ledger();
    broker.faults().lose_next_ack(StreamName::Ledger);
    let subject = experiment("a");
    let lost = tokio::spawn({
        let (ledger, envelope) = (ledger.clone(), note(&subject, event_id(), "lost"));
        async move { ledger.append(envelope, 0).await }
    });
    let stored = || async { (broker.bounds(StreamName::Ledger).await.unwrap().last == 1).then_some(()) };
    eventually(SOON, "the event is stored", stored).await;
    // Others append behind it before its writer can ask again.
    for n in 1..=3 {
        let message = note(&subject, event_id(), &format!("later {n}"));
        let (headers, payload) = footplate_events::encode(&message).unwrap();
        let message = Message { subject: subject.to_string(), headers: headers.into(), payload: payload.into() };
        broker.publish(StreamName::Ledger, message, Expect::Subject(n)).await.unwrap();
    }
    assert_eq!(lost.await.unwrap(), Ok(1));
    assert_eq!(all(&ledger).await.len(), 4);
}

#[tokio::test]
async fn a_lost_answer_of_a_batch_leaves_every_event_once() {
    for deduplicate in [false, true] {
        a_lost_answer_of_a_batch(deduplicate).await;
    }
}

async fn a_lost_answer_of_a_batch(deduplicate: bool) {
    let (broker, ledger) = ledger();
    broker.faults().deduplicate(deduplicate);
    broker.faults().delay(Duration::from_millis(20));
    let lost = Arc::new(Mutex::new(0));
    // The first publication of more than one message is a batch: that answer is lost.
    let observed = lost.clone();
    let faulty = broker.clone();
    let _watch = broker.faults().stall_next(move |_, messages| {
        if messages.len() > 1 && *observed.lock().unwrap() == 0 {
            *observed.lock().unwrap() = messages.len();
        }
        false
    });
    let appends: Vec<_> = (0..60)
        .map(|n| {
            let (ledger, envelope) = (ledger.clone(), note(&experiment(&format!("e{n}")), event_id(), "x"));
            tokio::spawn(async move { ledger.append(envelope, 0).await })
        })
        .collect();
    let batched = || async { (*lost.lock().unwrap() > 0).then_some(()) };
    eventually(SOON, "a batch is sent", batched).await;
    faulty.faults().lose_next_ack(StreamName::Ledger);
    let sequences: Vec<u64> = join_all(appends).await.into_iter().map(|done| done.unwrap().unwrap()).collect();
    let mut sorted = sequences.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=60).collect::<Vec<_>>());
    assert_eq!(all(&ledger).await.len(), 60);
}

/// Rule 3: a batch holds at most one event an aggregate, sorted by expected sequence.
#[tokio::test]
async fn a_batch_holds_one_event_an_aggregate_in_the_order_of_expectations() {
    let (broker, ledger) = ledger();
    // A broker that takes its time: where singles are answered at once nothing is batched.
    broker.faults().delay(Duration::from_millis(20));
    let mut lasts = Vec::new();
    for n in 0..40 {
        lasts.push(ledger.append(note(&experiment(&format!("e{n}")), event_id(), "first"), 0).await.unwrap());
    }
    let batches = Arc::new(Mutex::new(Vec::new()));
    let seen = batches.clone();
    let _watch = broker.faults().stall_next(move |_, messages| {
        if messages.len() > 1 {
            seen.lock().unwrap().push(messages.to_vec());
        }
        false
    });
    // In reverse, and each aggregate twice: the second of each conflicts with the first.
    let appends = (0..40).rev().flat_map(|n| [n, n]).map(|n| {
        let (ledger, envelope) = (ledger.clone(), note(&experiment(&format!("e{n}")), event_id(), "second"));
        let expected = lasts[n];
        tokio::spawn(async move { ledger.append(envelope, expected).await })
    });
    let outcomes: Vec<_> = join_all(appends.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 40);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(AppendError::Conflict { .. }))));
    let batches = batches.lock().unwrap();
    assert!(!batches.is_empty(), "nothing was batched");
    for batch in batches.iter() {
        let subjects: std::collections::BTreeSet<_> = batch.iter().map(|(message, _)| &message.subject).collect();
        assert_eq!(subjects.len(), batch.len());
        let expected: Vec<u64> = batch.iter().map(|(_, expect)| if let Expect::Subject(at) = expect { *at } else { 0 }).collect();
        assert!(expected.is_sorted(), "{expected:?}");
    }
}

#[tokio::test]
async fn no_room_is_told_and_nothing_is_stored() {
    let (broker, ledger) = ledger();
    broker.faults().full(true);
    let refused = ledger.append(note(&experiment("a"), event_id(), "x"), 0).await;
    assert!(matches!(refused, Err(AppendError::Full(_))), "{refused:?}");
    broker.faults().full(false);
    assert_eq!(ledger.append(note(&experiment("a"), event_id(), "y"), 0).await, Ok(1));
}

#[tokio::test]
async fn a_broker_that_is_away_is_waited_for_until_the_deadline() {
    let (broker, ledger) = ledger();
    broker.faults().unavailable(true);
    let envelope = note(&experiment("a"), event_id(), "x");
    let away = ledger.append_within(envelope.clone(), 0, Duration::from_millis(100)).await;
    assert!(matches!(away, Err(AppendError::Unavailable(_))), "{away:?}");
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.append(envelope, 0).await }
    });
    broker.faults().unavailable(false);
    assert_eq!(waiting.await.unwrap(), Ok(1));
}

#[tokio::test]
async fn more_appends_than_can_wait_are_refused_at_their_deadline_and_the_others_go_through() {
    const MANY: usize = 6_000;
    let (broker, ledger) = ledger();
    broker.faults().unavailable(true);
    let start = |name: String, within: Duration| {
        let (ledger, envelope) = (ledger.clone(), note(&experiment(&name), event_id(), "x"));
        tokio::spawn(async move { ledger.append_within(envelope, 0, within).await })
    };
    let patient: Vec<_> = (0..MANY).map(|n| start(format!("patient {n}"), SOON * 3)).collect();
    tokio::task::yield_now().await;
    let hasty: Vec<_> = (0..50).map(|n| start(format!("hasty {n}"), Duration::from_millis(200))).collect();
    for answer in join_all(hasty).await {
        let refused = answer.unwrap().unwrap_err().to_string();
        assert!(refused.contains("too many appends wait; nothing was stored"), "{refused}");
    }
    broker.faults().unavailable(false);
    let mut sequences: Vec<u64> = join_all(patient).await.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=MANY as u64).collect::<Vec<_>>());
}

/// The broker's memory for ids is short: the guard against a late repeat is the expectation and the look-up.
#[tokio::test]
async fn a_repeat_without_the_brokers_help_is_the_same_event() {
    let (_broker, ledger) = ledger();
    let subject = experiment("a");
    let envelope = note(&subject, event_id(), "x");
    assert_eq!(ledger.append(envelope.clone(), 0).await, Ok(1));
    assert_eq!(ledger.append(note(&subject, event_id(), "y"), 1).await, Ok(2));
    assert_eq!(ledger.append(envelope, 0).await, Ok(1));
    assert_eq!(ledger.aggregate(&subject).await.unwrap().len(), 2);
}

/// Rule 11: no write may build on an aggregate that is not understood.
#[tokio::test]
async fn an_aggregate_that_is_not_understood_takes_no_write() {
    let (broker, ledger) = ledger();
    let subject = experiment("a");
    raw(&broker, &subject.to_string(), "footplate.experiment.flown.v9", "{}").await;
    let live = Live::new(Seen::default(), 0);
    let shutdown = CancellationToken::new();
    tokio::spawn(follow(ledger.clone(), Vec::new(), live.clone(), shutdown.clone()));
    live.at_least(1, SOON).await.unwrap();
    let closed = || async { ledger.closed(&subject.to_string()) };
    eventually(SOON, "the aggregate is closed", closed).await;
    let refused = ledger.append(note(&subject, event_id(), "x"), 1).await;
    assert!(matches!(&refused, Err(AppendError::Invalid(why)) if why.to_string().contains("upgrade")), "{refused:?}");
    assert_eq!(ledger.append(note(&experiment("b"), event_id(), "x"), 0).await, Ok(2));
    shutdown.cancel();
}
