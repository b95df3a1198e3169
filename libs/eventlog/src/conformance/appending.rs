//! The ledger above a broker: group commit under contention, conflicts, repeats, replay.

use super::{SOON, Tested};
use crate::ledger::{AppendError, Ledger, LedgerItem};
use footplate_clock::event_id;
use footplate_events::facts::ExperimentNoted;
use footplate_events::{Envelope, Subject};
use footplate_types::{DisplayName, EventId, ExperimentId, PrincipalId, ProjectName};
use futures::StreamExt;
use futures::future::join_all;
use std::collections::BTreeMap;
use tokio::time::timeout;

/// Writers at once in the contention test.
const WRITERS: usize = 200;
/// Aggregates that all of them want.
const HOT: usize = 5;

fn experiment(name: &str) -> Subject {
    let project = ProjectName::parse("vision").unwrap();
    let id = ExperimentId::of(&project, &DisplayName::parse(name).unwrap());
    Subject::experiment(&project, id)
}

fn note(subject: &Subject, id: EventId) -> Envelope {
    Envelope {
        id,
        subject: subject.clone(),
        event: ExperimentNoted { note: id.to_string() }.into(),
        source: "tracker/conformance".to_owned(),
        time: footplate_clock::now(),
        actor: PrincipalId::parse("conformance").unwrap(),
        correlation: id,
        causation: None,
        trace: None,
    }
}

/// Appends a note wherever the aggregate's end is, as a client would that decides again after each conflict.
async fn append_somewhere(ledger: &Ledger, subject: &Subject) -> (EventId, u64) {
    loop {
        let last = ledger.broker().last(crate::StreamName::Ledger, &subject.to_string()).await.unwrap();
        let id = event_id();
        match ledger.append_within(note(subject, id), last.map_or(0, |stored| stored.sequence), SOON * 3).await {
            Ok(sequence) => return (id, sequence),
            Err(AppendError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

pub async fn an_append_is_told_of_a_conflict_and_a_repeat_is_the_same_event(broker: Tested) {
    let ledger = Ledger::new(broker);
    let subject = experiment("a");
    let first = note(&subject, event_id());
    assert_eq!(ledger.append(first.clone(), 0).await, Ok(1));
    assert_eq!(ledger.append(note(&subject, event_id()), 0).await, Err(AppendError::Conflict { expected: 0 }));
    assert_eq!(ledger.append(note(&subject, event_id()), 7).await, Err(AppendError::Conflict { expected: 7 }));
    assert_eq!(ledger.append(note(&subject, event_id()), 1).await, Ok(2));
    assert_eq!(ledger.append(first, 0).await, Ok(1));
    assert_eq!(ledger.end().await, Ok(2));
}

/// Rule 3: whoever is acknowledged is in the ledger, once, at the sequence that was told; nobody else is.
pub async fn many_writers_are_each_acknowledged_exactly_once(broker: Tested) {
    let ledger = Ledger::new(broker);
    let writers = (0..WRITERS).map(|writer| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            let hot = append_somewhere(&ledger, &experiment(&format!("hot {}", writer % HOT))).await;
            let cold = append_somewhere(&ledger, &experiment(&format!("cold {writer}"))).await;
            [hot, cold]
        })
    });
    let acknowledged: BTreeMap<EventId, u64> = join_all(writers.collect::<Vec<_>>()).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(acknowledged.len(), 2 * WRITERS);
    let mut stored = BTreeMap::new();
    let mut items = ledger.tail(Vec::new(), 1);
    while stored.len() < acknowledged.len() {
        if let LedgerItem::Fact(recorded) = timeout(SOON, items.next()).await.unwrap().unwrap() {
            assert_eq!(stored.insert(recorded.envelope.id, recorded.sequence), None, "an event stands twice");
        }
    }
    assert_eq!(stored, acknowledged);
    assert_eq!(ledger.end().await, Ok(2 * WRITERS as u64));
}

pub async fn replaying_one_aggregate_or_all_gives_the_same_facts(broker: Tested) {
    let ledger = Ledger::new(broker);
    for n in 0..12 {
        append_somewhere(&ledger, &experiment(&format!("e{}", n % 3))).await;
    }
    let (all, next) = ledger.read("fp.ledger.>", 1, 100).await.unwrap();
    assert_eq!((all.len(), next), (12, None));
    for n in 0..3 {
        let subject = experiment(&format!("e{n}"));
        let one = ledger.aggregate(&subject).await.unwrap();
        let of_all: Vec<_> =
            all.iter().filter(|item| matches!(item, LedgerItem::Fact(recorded) if recorded.envelope.subject == subject)).cloned().collect();
        assert_eq!((one.len(), &one), (4, &of_all));
    }
}
