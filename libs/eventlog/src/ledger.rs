//! The ledger: client-written appends, and reading.

use crate::commit::{self, Append};
use crate::port::{Broker, Message, ReadError, Stored, StreamName, TailItem};
use footplate_events::{Decoded, Envelope, Recorded, Subject};
use footplate_types::{Invalid, ServiceName};
use futures::{StreamExt, stream::BoxStream};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// How long an append may take when its caller names no deadline.
pub const APPEND_WITHIN: Duration = Duration::from_secs(10);
/// Messages that one read of an aggregate asks for at a time.
const PAGE: usize = 500;

/// The ledger behind a broker. Cheap to clone; appends of all clones share one group commit.
#[derive(Clone)]
pub struct Ledger {
    shared: Arc<Shared>,
    /// In whose hands it is; in nobody's for tools, which write no facts of their own.
    service: Option<ServiceName>,
}

struct Shared {
    broker: Arc<dyn Broker>,
    appends: mpsc::Sender<Append>,
    /// Aggregates with an event that this build cannot understand; no write may build on them (rule 11).
    closed: RwLock<BTreeMap<String, NotUnderstood>>,
}

/// An event that this build cannot understand (an unknown type, a message that cannot be read, one that breaks the view).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood {
    /// Where it stands.
    pub sequence: u64,
    /// On which subject.
    pub subject: String,
    /// Why.
    pub reason: String,
}

/// Why an append did not happen. The answer is always definite: an unknown outcome is resolved before it is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another event came first on the aggregate: read on, decide again.
    #[error("another event came first (expected sequence {expected})")]
    Conflict {
        /// What was expected.
        expected: u64,
    },
    /// There is no room: nothing was stored, unless the broker fell silent over it; then the event may yet be, and the caller tells its client
    /// to ask again with the same idempotency key.
    #[error("the ledger has no room: {0}")]
    Full(String),
    /// The broker stayed away for longer than the deadline, and the event is known not to be stored or may yet be: the caller tells its
    /// client to ask again with the same idempotency key.
    #[error("the ledger is away: {0}")]
    Unavailable(String),
    /// The aggregate is another service's: nothing was sent.
    #[error("{service} may not write {subject}, which the {owner} owns")]
    NotOwned {
        /// Who would have written.
        service: ServiceName,
        /// The subject.
        subject: String,
        /// Who writes it.
        owner: &'static str,
    },
    /// The event is not fit for the ledger.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// What a reader of the ledger meets.
#[derive(Clone, Debug, PartialEq)]
pub enum LedgerItem {
    /// A fact.
    Fact(Box<Recorded>),
    /// A type that this build does not know.
    Unknown {
        /// Where it stands.
        sequence: u64,
        /// On which subject.
        subject: String,
        /// The type text.
        event_type: String,
    },
    /// A message that cannot be read.
    Poison {
        /// Where it stands.
        sequence: u64,
        /// On which subject.
        subject: String,
        /// Why.
        reason: String,
    },
    /// Everything that matches up to and including this sequence has been yielded.
    Position(u64),
}

impl LedgerItem {
    /// What a stored message turned out to be.
    pub fn of(stored: &Stored) -> Self {
        let Stored { sequence, subject, headers, payload, recorded_at } = stored;
        match footplate_events::decode(*sequence, *recorded_at, subject, headers, payload) {
            Decoded::Known(recorded) => Self::Fact(recorded),
            Decoded::Unknown { event_type } => Self::Unknown { sequence: *sequence, subject: subject.clone(), event_type },
            Decoded::Poison { reason } => Self::Poison { sequence: *sequence, subject: subject.clone(), reason },
        }
    }

    /// Where it stands; for a position, the position.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Fact(recorded) => recorded.sequence,
            Self::Unknown { sequence, .. } | Self::Poison { sequence, .. } | Self::Position(sequence) => *sequence,
        }
    }

    /// What of it this build cannot understand, if it is such an item.
    pub fn not_understood(&self) -> Option<NotUnderstood> {
        match self {
            Self::Fact(_) | Self::Position(_) => None,
            Self::Unknown { sequence, subject, event_type } => {
                Some(NotUnderstood { sequence: *sequence, subject: subject.clone(), reason: format!("unknown type {event_type}") })
            }
            Self::Poison { sequence, subject, reason } => {
                Some(NotUnderstood { sequence: *sequence, subject: subject.clone(), reason: reason.clone() })
            }
        }
    }
}

impl From<TailItem> for LedgerItem {
    fn from(item: TailItem) -> Self {
        match item {
            TailItem::Message(stored) => Self::of(&stored),
            TailItem::Position(position) => Self::Position(position),
        }
    }
}

impl Ledger {
    /// The ledger behind `broker`. Must be called inside a tokio runtime (it starts the group-commit writer).
    pub fn new(broker: Arc<dyn Broker>) -> Self {
        let appends = commit::start(broker.clone());
        Self { shared: Arc::new(Shared { broker, appends, closed: RwLock::default() }), service: None }
    }

    /// The same ledger in the hands of one service: through it only what that service owns can be written (rule 1).
    #[must_use]
    pub fn of(&self, service: &ServiceName) -> Self {
        Self { shared: self.shared.clone(), service: Some(service.clone()) }
    }

    /// The broker below.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.shared.broker
    }

    /// Appends a client-written event, expecting `expected` to be the aggregate's last sequence (0 = new). Answers with its sequence;
    /// an event of the same id that already stands after `expected` counts as this one.
    pub async fn append(&self, envelope: Envelope, expected: u64) -> Result<u64, AppendError> {
        self.append_within(envelope, expected, APPEND_WITHIN).await
    }

    /// [`Ledger::append`] with a deadline of its own.
    pub async fn append_within(&self, envelope: Envelope, expected: u64, within: Duration) -> Result<u64, AppendError> {
        let message = self.message(&envelope)?;
        let deadline = Instant::now() + within;
        let (answer, answered) = oneshot::channel();
        let append = Append::new(message, envelope.id, expected, deadline, answer);
        match timeout_at(deadline, self.shared.appends.send(append)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(AppendError::Unavailable("this instance is ending".to_owned())),
            Err(_) => return Err(AppendError::Unavailable("too many appends wait; nothing was stored".to_owned())),
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(AppendError::Unavailable("this instance is ending; the event may yet be stored".to_owned())),
            Err(_) => Err(AppendError::Unavailable("no answer in time; the event may yet be stored".to_owned())),
        }
    }

    /// The message of a client-written event, when this hand may write it.
    pub(crate) fn message(&self, envelope: &Envelope) -> Result<Message, AppendError> {
        let subject = envelope.subject.to_string();
        if let Some(service) = self.service.as_ref().filter(|service| !envelope.subject.is_owned_by(service)) {
            return Err(AppendError::NotOwned { service: service.clone(), subject, owner: envelope.subject.aggregate.owner() });
        }
        if let Some(event) = self.closed(&subject) {
            let found = format!("event {} cannot be understood: {}", event.sequence, event.reason);
            return Err(
                Invalid::new(subject, found, "a write by an instance that understands the aggregate's events; upgrade this one").into()
            );
        }
        let (headers, payload) = footplate_events::encode(envelope)?;
        Ok(Message { subject, headers: headers.into(), payload: payload.into() })
    }

    /// From now on refuses appends to the aggregate of an event that this build cannot understand.
    pub fn close(&self, event: NotUnderstood) {
        self.shared.closed.write().unwrap_or_else(PoisonError::into_inner).entry(event.subject.clone()).or_insert(event);
    }

    /// The event that closed an aggregate, if one did.
    pub fn closed(&self, subject: &str) -> Option<NotUnderstood> {
        self.shared.closed.read().unwrap_or_else(PoisonError::into_inner).get(subject).cloned()
    }

    /// Every event of one aggregate, in order.
    pub async fn aggregate(&self, subject: &Subject) -> Result<Vec<LedgerItem>, ReadError> {
        let filter = subject.to_string();
        let mut items = Vec::new();
        let mut from = Some(1);
        while let Some(next) = from {
            let (page, more) = self.read(&filter, next, PAGE).await?;
            items.extend(page);
            from = more;
        }
        Ok(items)
    }

    /// A bounded piece of the ledger: at most `most` items from `from` on, and where to read on.
    pub async fn read(&self, filter: &str, from: u64, most: usize) -> Result<(Vec<LedgerItem>, Option<u64>), ReadError> {
        let page = self.shared.broker.read(StreamName::Ledger, filter, from, most).await?;
        Ok((page.messages.iter().map(LedgerItem::of).collect(), page.next))
    }

    /// Follows the ledger from `from` on.
    pub fn tail(&self, filters: Vec<String>, from: u64) -> BoxStream<'static, LedgerItem> {
        self.shared.broker.tail(StreamName::Ledger, filters, from).map(LedgerItem::from).boxed()
    }

    /// The last sequence of the stream.
    pub async fn end(&self) -> Result<u64, ReadError> {
        Ok(self.shared.broker.bounds(StreamName::Ledger).await?.last)
    }
}
