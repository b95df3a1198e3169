//! What surrounds every event: who, when, why, and the trace it belongs to (CloudEvents 1.0, binary mode).

use crate::{Event, Subject};
use footplate_types::{EventId, PrincipalId, Timestamp};

/// Who acted: an opaque principal.
pub type Actor = PrincipalId;

/// A W3C `traceparent`, checked only for its shape (55 ASCII characters).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Trace(String);

impl Trace {
    /// Takes a `traceparent` header value; `None` when it has not the shape `00-<32 hex>-<16 hex>-<2 hex>`.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts: Vec<&str> = text.split('-').collect();
        let shaped = parts.len() == 4 && hex(parts[0], 2) && hex(parts[1], 32) && hex(parts[2], 16) && hex(parts[3], 2);
        shaped.then(|| Self(text.to_owned()))
    }

    /// The header value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trace id, 32 hex digits.
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }
}

impl TryFrom<String> for Trace {
    type Error = footplate_types::Invalid;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| footplate_types::Invalid::new("traceparent", text, "00-<32 hex>-<16 hex>-<2 hex>"))
    }
}

impl From<Trace> for String {
    fn from(trace: Trace) -> Self {
        trace.0
    }
}

/// One event before it has a place in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The event's id; the same decision repeated has the same id.
    pub id: EventId,
    /// The aggregate it belongs to.
    pub subject: Subject,
    /// The fact.
    pub event: Event,
    /// Service and instance that wrote it, such as `scheduler/host-1`.
    pub source: String,
    /// When the writer's clock said it happened; shown, never decided upon.
    pub time: Timestamp,
    /// Who asked for it.
    pub actor: Actor,
    /// What belongs together: the id of the first event of the chain (a run's submission, a request).
    pub correlation: EventId,
    /// The event that this one answers; absent for what a client began.
    pub causation: Option<EventId>,
    /// The trace of the submit or request that led here.
    pub trace: Option<Trace>,
}

/// One event with its place in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its place in the one total order, from 1.
    pub sequence: u64,
    /// When the broker stored it (the only clock that history is asked by).
    pub recorded_at: Timestamp,
    /// The event.
    pub envelope: Envelope,
}
