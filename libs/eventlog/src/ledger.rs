//! The ledger: client-written appends, and reading.

use crate::port::{Broker, ReadError};
use footplate_events::{Envelope, Recorded, Subject};
use footplate_types::Invalid;
use futures::stream::BoxStream;
use std::sync::Arc;

/// The ledger behind a broker. Cheap to clone; appends of all clones share one group commit.
#[derive(Clone)]
pub struct Ledger {
    broker: Arc<dyn Broker>,
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
    /// There is no room: nothing was stored.
    #[error("the ledger has no room: {0}")]
    Full(String),
    /// The broker stayed away for longer than the deadline, and the event is known not to be stored or may yet be: the caller tells its
    /// client to ask again with the same idempotency key.
    #[error("the ledger is away: {0}")]
    Unavailable(String),
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

impl Ledger {
    /// The ledger behind `broker`. Must be called inside a tokio runtime (it starts the group-commit writer).
    pub fn new(broker: Arc<dyn Broker>) -> Self {
        Self { broker }
    }

    /// The broker below.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.broker
    }

    /// Appends a client-written event, expecting `expected` to be the aggregate's last sequence (0 = new). Answers with its sequence;
    /// an event of the same id that already stands after `expected` counts as this one.
    pub async fn append(&self, _envelope: Envelope, _expected: u64) -> Result<u64, AppendError> {
        unimplemented!()
    }

    /// Every event of one aggregate, in order.
    pub async fn aggregate(&self, _subject: &Subject) -> Result<Vec<LedgerItem>, ReadError> {
        unimplemented!()
    }

    /// A bounded piece of the ledger: at most `most` items from `from` on, and where to read on.
    pub async fn read(&self, _filter: &str, _from: u64, _most: usize) -> Result<(Vec<LedgerItem>, Option<u64>), ReadError> {
        unimplemented!()
    }

    /// Follows the ledger from `from` on.
    pub fn tail(&self, _filters: Vec<String>, _from: u64) -> BoxStream<'static, LedgerItem> {
        unimplemented!()
    }

    /// The last sequence of the stream.
    pub async fn end(&self) -> Result<u64, ReadError> {
        unimplemented!()
    }
}
