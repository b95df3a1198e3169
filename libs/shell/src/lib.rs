//! What the shell of every service does the same way: it has a view and the ledger, waits until the view stands where a caller needs it, reads an
//! aggregate, appends what a client's call begins, and tells what went wrong as a refusal. It knows no service.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod gate;
mod named;
mod verify;

pub use gate::AccessGate;
pub use named::{Named, resolve};
pub use verify::verified;

use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_es::Evolve;
use footplate_eventlog::{APPEND_WITHIN, AppendError, Ledger, LedgerItem, Live, ReadError};
use footplate_events::{Envelope, Event, Recorded, Subject, Trace};
use footplate_types::{EventId, PrincipalId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often an append that lost a race is decided again.
pub const TRIES: u32 = 16;
/// Events that are read from the broker at a time, and held at once: one may have 256 KiB.
const PAGE: usize = 100;

/// The view `S` and the ledger of one service's instance. Cheap to clone.
pub struct Shell<S> {
    /// The ledger, as this service may write it.
    pub ledger: Ledger,
    /// The view.
    pub live: Live<S>,
    /// What time it is.
    pub clock: SharedClock,
    /// The longest a call waits: for "at least N", for its turn, for an answer.
    pub wait: Duration,
    source: Arc<str>,
}

impl<S> fmt::Debug for Shell<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("source", &self.source).finish_non_exhaustive()
    }
}

impl<S> Clone for Shell<S> {
    fn clone(&self) -> Self {
        Self {
            ledger: self.ledger.clone(),
            live: self.live.clone(),
            clock: self.clock.clone(),
            wait: self.wait,
            source: self.source.clone(),
        }
    }
}

impl<S: Evolve> Shell<S> {
    /// The shell of an instance (such as `host-1/4711`) of a service.
    pub fn new(service: &str, instance: &str, ledger: Ledger, live: Live<S>, clock: SharedClock, wait: Duration) -> Self {
        Self { ledger, live, clock, wait, source: format!("{service}/{instance}").into() }
    }

    /// Waits until the view stands at `wanted` or later.
    ///
    /// # Errors
    /// `VIEW_BEHIND` when it does not in time.
    pub async fn at_least(&self, wanted: u64) -> Result<(), Refusal> {
        self.live.at_least(wanted, self.wait).await.map_err(|behind| Refusal::new(&reason::VIEW_BEHIND, behind.to_string()))
    }

    /// Waits until the view holds everything that stands in the ledger now.
    ///
    /// # Errors
    /// `BROKER_AWAY`, or `VIEW_BEHIND` when it does not in time.
    pub async fn caught_up(&self) -> Result<(), Refusal> {
        let end = self.ledger.end().await.map_err(away)?;
        self.at_least(end).await
    }

    /// Gives away each event of an aggregate in order, read from the broker page by page; ends with the last sequence, 0 where there is none.
    ///
    /// # Errors
    /// `BROKER_AWAY`; `UNREADABLE_HISTORY` for an event that this build cannot read.
    pub async fn each_fact(&self, subject: &Subject, mut take: impl FnMut(Recorded) + Send) -> Result<u64, Refusal> {
        let filter = subject.to_string();
        let (mut from, mut last) = (Some(1), 0);
        while let Some(next) = from {
            let (page, more) = self.ledger.read(&filter, next, PAGE).await.map_err(away)?;
            for item in page {
                match item {
                    LedgerItem::Fact(recorded) => {
                        last = recorded.sequence;
                        take(*recorded);
                    }
                    LedgerItem::Unknown { sequence, subject, .. } => return Err(unreadable(sequence, &subject, "its type is unknown")),
                    LedgerItem::Poison { sequence, subject, reason } => return Err(unreadable(sequence, &subject, &reason)),
                    LedgerItem::Position(_) => {}
                }
            }
            from = more;
        }
        Ok(last)
    }

    /// The events of an aggregate that has few, and its last sequence.
    ///
    /// # Errors
    /// As [`Shell::each_fact`].
    pub async fn aggregate(&self, subject: &Subject) -> Result<(Vec<Recorded>, u64), Refusal> {
        let mut facts = Vec::new();
        let last = self.each_fact(subject, |recorded| facts.push(recorded)).await?;
        Ok((facts, last))
    }

    /// The envelope of an event that a client's call begins.
    pub fn envelope(&self, id: EventId, subject: Subject, event: impl Into<Event>, actor: PrincipalId) -> Envelope {
        Envelope {
            id,
            subject,
            event: event.into(),
            source: self.source.to_string(),
            time: self.clock.now(),
            actor,
            correlation: id,
            causation: None,
            trace: footplate_service::current_traceparent().and_then(|text| Trace::parse(&text)),
        }
    }

    /// Appends one event of a client, expecting `expected`; `None` when another event came first.
    ///
    /// # Errors
    /// As [`not_appended`].
    pub async fn append(&self, envelope: Envelope, expected: u64) -> Result<Option<u64>, Refusal> {
        let subject = envelope.subject.to_string();
        match self.ledger.append(envelope, expected).await {
            Ok(sequence) => Ok(Some(sequence)),
            Err(AppendError::Conflict { .. }) => Ok(None),
            Err(error) => Err(not_appended(&self.ledger, &subject, error)),
        }
    }

    /// Appends the first events of several new aggregates, all or none; `None` when one of them is not new.
    ///
    /// # Errors
    /// As [`not_appended`].
    pub async fn append_new(&self, envelopes: Vec<Envelope>) -> Result<Option<Vec<u64>>, Refusal> {
        let subject = envelopes.first().map(|envelope| envelope.subject.to_string()).unwrap_or_default();
        let events = envelopes.into_iter().map(|envelope| (envelope, 0)).collect();
        match self.ledger.append_together(events, APPEND_WITHIN).await {
            Ok(sequences) => Ok(Some(sequences)),
            Err(AppendError::Conflict { .. }) => Ok(None),
            Err(error) => Err(not_appended(&self.ledger, &subject, error)),
        }
    }
}

/// The sequence at which a request stands already: of these facts the one with its event's id, which its key fixed. `None` when there is none.
///
/// # Errors
/// `IDEMPOTENCY_KEY_REUSED` when the key brought another event: to answer as if this one were written would be to lose it.
pub fn repeated(facts: &[Recorded], id: EventId, event: &Event, request_id: &str) -> Result<Option<u64>, Refusal> {
    match facts.iter().find(|recorded| recorded.envelope.id == id) {
        None => Ok(None),
        Some(known) if known.envelope.event == *event => Ok(Some(known.sequence)),
        Some(known) => {
            let told = format!("request id {request_id:?} was used on {} with another request", known.envelope.subject);
            let refusal = Refusal::new(&reason::IDEMPOTENCY_KEY_REUSED, told).field("request_id").value(request_id);
            Err(refusal.allowed("an id of its own for each request"))
        }
    }
}

/// What an append that failed tells its client. An aggregate with an event that this build cannot read is told as such: it takes no write.
pub fn not_appended(ledger: &Ledger, subject: &str, error: AppendError) -> Refusal {
    if let Some(event) = ledger.closed(subject) {
        return unreadable(event.sequence, subject, &event.reason);
    }
    match error {
        AppendError::Conflict { .. } => Refusal::new(&reason::CHANGED_MEANWHILE, error.to_string()),
        AppendError::Full(why) => Refusal::new(&reason::DISK_FULL, why),
        AppendError::Unavailable(why) => Refusal::new(&reason::BROKER_AWAY, why)
            .next("repeat the request with the same request id; when it was written after all, you get the same answer"),
        AppendError::NotOwned { .. } => Refusal::internal(error),
        AppendError::Invalid(invalid) => invalid.into(),
    }
}

/// A read that the broker did not answer.
pub fn away(error: ReadError) -> Refusal {
    match error {
        ReadError::Unavailable(_) => Refusal::new(&reason::BROKER_AWAY, error.to_string()),
        ReadError::Refused(_) => Refusal::internal(error),
    }
}

fn unreadable(sequence: u64, subject: &str, why: &str) -> Refusal {
    Refusal::new(&reason::UNREADABLE_HISTORY, format!("event {sequence} of {subject} cannot be read by this build: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_eventlog::memory::MemoryBroker;
    use footplate_eventlog::{Broker, Expect, Message, StreamName};
    use footplate_events::facts::TermBegan;
    use footplate_types::ServiceName;

    #[derive(Default)]
    struct Counted(u64);

    impl Evolve for Counted {
        fn evolve(&mut self, _: &Recorded) {
            self.0 += 1;
        }
    }

    fn shell(broker: &Arc<MemoryBroker>) -> Shell<Counted> {
        let clock = footplate_clock::SystemClock::shared();
        let live = Live::new(Counted::default(), 0);
        Shell::new("scheduler", "here", Ledger::new(broker.clone()), live, clock, Duration::from_secs(1))
    }

    fn began(shell: &Shell<Counted>, number: u8) -> Envelope {
        let service = ServiceName::parse("scheduler").unwrap();
        let subject = Subject::term(&service);
        let fact = TermBegan { service, instance: "i".to_owned() };
        shell.envelope(EventId::from_bytes([number; 16]), subject, fact, PrincipalId::parse("user:ada").unwrap())
    }

    #[tokio::test]
    async fn an_append_that_expects_what_is_not_there_any_more_is_to_be_decided_again() {
        let shell = shell(&Arc::new(MemoryBroker::new()));
        let first = began(&shell, 1);
        let subject = first.subject.clone();
        assert_eq!(shell.append(first, 0).await.unwrap(), Some(1));
        assert_eq!(shell.append(began(&shell, 2), 0).await.unwrap(), None);
        assert_eq!(shell.append(began(&shell, 3), 1).await.unwrap(), Some(2));
        let (facts, last) = shell.aggregate(&subject).await.unwrap();
        assert_eq!((facts.len(), last), (2, 2));
        let (known, id) = (facts[0].envelope.event.clone(), EventId::from_bytes([1; 16]));
        assert_eq!(repeated(&facts, id, &known, "k").unwrap(), Some(1));
        assert_eq!(repeated(&facts, EventId::from_bytes([2; 16]), &known, "k").unwrap(), None);
        let other = TermBegan { service: ServiceName::parse("scheduler").unwrap(), instance: "j".to_owned() }.into();
        let refusal = repeated(&facts, id, &other, "k").unwrap_err();
        assert_eq!((refusal.reason, refusal.value.as_deref()), ("IDEMPOTENCY_KEY_REUSED", Some("k")));
        assert_eq!(shell.at_least(2).await.unwrap_err().reason, "VIEW_BEHIND", "nobody follows here");
    }

    #[tokio::test]
    async fn an_aggregate_that_this_build_cannot_read_is_told_as_such_and_takes_no_write() {
        let broker = Arc::new(MemoryBroker::new());
        let shell = shell(&broker);
        let subject = began(&shell, 1).subject;
        let poison = Message { subject: subject.to_string(), headers: Default::default(), payload: "x".into() };
        broker.publish(StreamName::Ledger, poison, Expect::Any).await.unwrap();
        let refusal = shell.aggregate(&subject).await.unwrap_err();
        assert_eq!(refusal.reason, "UNREADABLE_HISTORY");
        assert!(refusal.message.contains("event 1 of"), "{refusal}");
        let item = shell.ledger.read(&subject.to_string(), 1, 1).await.unwrap().0.remove(0);
        shell.ledger.close(item.not_understood().unwrap());
        assert_eq!(shell.append(began(&shell, 2), 1).await.unwrap_err().reason, "UNREADABLE_HISTORY");
    }
}
