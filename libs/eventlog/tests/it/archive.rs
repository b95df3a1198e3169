//! The archive on a real broker: what has left it reads the same, views rebuilt from segments are equal, and the broker's memory of it is gone.

use crate::facts::{Seen, experiment, note};
use crate::servers;
use footplate_es::{Evolve, Project};
use footplate_eventlog::archive::{ArchiveConfig, Progress};
use footplate_eventlog::memory::MemorySegments;
use footplate_eventlog::verify::verify_view;
use footplate_eventlog::{Archive, Archived, Archiver, Broker, Expect, Ledger, LedgerItem, Live, Message, StreamName, follow};
use footplate_events::Recorded;
use footplate_types::EventId;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(60);

/// Every sequence and id, in ledger order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Order(Vec<(u64, String)>);

impl Evolve for Order {
    fn evolve(&mut self, recorded: &Recorded) {
        self.0.push((recorded.sequence, recorded.envelope.id.to_string()));
    }
}

impl Project for Order {
    fn fingerprint(&self) -> String {
        self.0.iter().map(|(sequence, id)| format!("{sequence} {id}\n")).collect()
    }
}

/// A sealed run of three events whose content matters to nobody here.
fn sealed_run(number: u8) -> Vec<Message> {
    let run = format!("fp.ledger.vision.run.{}", hex(number));
    let mut messages = Vec::new();
    for kind in ["created", "noted", "sealed"] {
        let envelope = note(&experiment("digits"), EventId::from_bytes(footplate_clock::entropy()), &format!("{kind} {number}"));
        let (headers, payload) = footplate_events::encode(&envelope).unwrap();
        let headers = headers.into_iter().map(|(name, value)| match name {
            "ce-type" => (name, format!("footplate.run.{kind}.v1")),
            _ => (name, value),
        });
        messages.push(Message { subject: run.clone(), headers: headers.collect::<Vec<_>>().into(), payload: payload.into() });
    }
    messages
}

fn hex(number: u8) -> String {
    format!("{number:032x}")
}

async fn filled(ledger: &Ledger) {
    for number in 0..60 {
        for message in sealed_run(number) {
            ledger.broker().publish(StreamName::Ledger, message, Expect::Any).await.unwrap();
        }
        let subject = experiment(&format!("e{}", number % 7));
        let last = ledger.aggregate(&subject).await.unwrap().last().map_or(0, LedgerItem::sequence);
        ledger.append(note(&subject, EventId::from_bytes(footplate_clock::entropy()), &format!("note {number}")), last).await.unwrap();
    }
}

fn archiver(archive: &Archive, keep_ended: Option<Duration>) -> Archiver {
    let config =
        ArchiveConfig { keep_events: 30, segment_bytes: 8_000, keep_ended, announced_for: Duration::ZERO, ..ArchiveConfig::default() };
    Archiver::new(archive.clone(), config)
}

/// A view that has followed the ledger to its end, and its proof.
async fn proven<S: Project + Clone + PartialEq + Send + Sync + 'static>(ledger: &Ledger) -> S {
    let live = Live::new(S::default(), 0);
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follow(ledger.clone(), Vec::new(), live.clone(), shutdown.clone()));
    live.at_least(ledger.end().await.unwrap(), SOON).await.unwrap();
    let verified = verify_view(ledger, &[], &live, 0, SOON).await.unwrap();
    assert!(verified.is_equal(), "{:?}", verified.difference);
    shutdown.cancel();
    following.await.unwrap();
    live.read().clone()
}

#[tokio::test]
async fn a_real_ledger_reads_the_same_once_its_ended_runs_have_left_even_when_killed() {
    let (server, broker) = servers::jetstream().await;
    let broker: Arc<dyn Broker> = Arc::new(broker);
    let store = Arc::new(MemorySegments::new());
    let plain = Ledger::new(broker.clone());
    filled(&plain).await;
    let before: Order = proven(&plain).await;
    let count = broker.bounds(StreamName::Ledger).await.unwrap().messages;

    let archive = Archive::new(broker.clone(), store.clone());
    let written = archiver(&archive, None).step().await.unwrap();
    assert!(written.segments > 3, "{written:?}");
    let progress: Progress = archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    assert!(progress.gone_aggregates > 20 && progress.gone_events == progress.gone_aggregates * 3, "{progress:?}");
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let left = loop {
        match broker.bounds(StreamName::Ledger).await {
            Ok(bounds) => break bounds.messages,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(left + progress.gone_events, count);

    // A process that starts now: everything from the first event on, as it was.
    let ledger = Ledger::new(Arc::new(Archived::new(Archive::new(broker.clone(), store.clone()))));
    assert_eq!(proven::<Order>(&ledger).await, before);
    let run = format!("fp.ledger.vision.run.{}", hex(3));
    assert!(broker.last(StreamName::Ledger, &run).await.unwrap().is_none());
    let (items, _) = ledger.read(&run, 1, 10).await.unwrap();
    assert_eq!(items.len(), 3);
    // One that lacks the archive would not see it.
    assert_ne!(plain.read("fp.ledger.>", 1, 1).await.unwrap().0, ledger.read("fp.ledger.>", 1, 1).await.unwrap().0);

    // An aggregate that stayed takes writes as before.
    let subject = experiment("e1");
    let last = ledger.aggregate(&subject).await.unwrap().last().map_or(0, LedgerItem::sequence);
    ledger.append(note(&subject, EventId::from_bytes([9; 16]), "after"), last).await.unwrap();
    let seen: SeenNotes = proven(&ledger).await;
    assert_eq!(seen.0.last[&subject.to_string()], "after");
    assert_eq!(seen.0.texts().len(), 61);
}

/// The notes, as a view that proves itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct SeenNotes(Seen);

impl Evolve for SeenNotes {
    fn evolve(&mut self, recorded: &Recorded) {
        self.0.evolve(recorded);
    }
}

impl Project for SeenNotes {
    fn fingerprint(&self) -> String {
        format!("{:?}", self.0)
    }
}
