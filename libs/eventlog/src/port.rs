//! The port: what the platform asks of a broker.

use bytes::Bytes;
use footplate_types::Timestamp;
use futures::{future::BoxFuture, stream::BoxStream};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::watch;

/// The platform's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamName {
    /// Every domain event: one total order. `fp.ledger.>`.
    Ledger,
    /// Packed metric batches. `fp.metrics.>`.
    Metrics,
    /// What agents tell services. `fp.report.>`.
    Reports,
    /// Log chunks. `fp.logs.>`.
    Logs,
    /// Up to where services have folded reports; the last message a subject. `fp.settled.>`.
    Settled,
    /// What nodes should run; the last message a subject, republished as `fp.assigned.<node>`. `fp.assign.>`.
    Assignments,
    /// Leases; the last message a subject. `fp.beat.>`, `fp.lease.>`.
    Beats,
}

impl StreamName {
    /// All streams.
    pub const ALL: [Self; 7] = [Self::Ledger, Self::Metrics, Self::Reports, Self::Logs, Self::Settled, Self::Assignments, Self::Beats];

    /// The stream's name at the broker.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ledger => "LEDGER",
            Self::Metrics => "METRICS",
            Self::Reports => "REPORTS",
            Self::Logs => "LOGS",
            Self::Settled => "SETTLED",
            Self::Assignments => "ASSIGNMENTS",
            Self::Beats => "BEATS",
        }
    }

    /// What the stream stores.
    pub const fn subjects(self) -> &'static [&'static str] {
        match self {
            Self::Ledger => &["fp.ledger.>"],
            Self::Metrics => &["fp.metrics.>"],
            Self::Reports => &["fp.report.>"],
            Self::Logs => &["fp.logs.>"],
            Self::Settled => &["fp.settled.>"],
            Self::Assignments => &["fp.assign.>"],
            Self::Beats => &["fp.beat.>", "fp.lease.>"],
        }
    }

    /// Whether only the last message of a subject is kept.
    pub const fn keeps_last_only(self) -> bool {
        match self {
            Self::Settled | Self::Assignments | Self::Beats => true,
            Self::Ledger | Self::Metrics | Self::Reports | Self::Logs => false,
        }
    }
}

/// The headers of a message to be published, each name once. Cheap to clone: what is sent may have to be sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Arc<[(Cow<'static, str>, String)]>);

impl Deref for Headers {
    type Target = [(Cow<'static, str>, String)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<Vec<(&'static str, String)>> for Headers {
    fn from(headers: Vec<(&'static str, String)>) -> Self {
        Self(headers.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect())
    }
}

impl From<Vec<(String, String)>> for Headers {
    fn from(headers: Vec<(String, String)>) -> Self {
        Self(headers.into_iter().map(|(name, value)| (Cow::Owned(name), value)).collect())
    }
}

/// A message to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its subject.
    pub subject: String,
    /// Its headers.
    pub headers: Headers,
    /// Its payload.
    pub payload: Bytes,
}

/// A message that the broker has stored (or, from [`Broker::listen`], has republished).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the stream, from 1.
    pub sequence: u64,
    /// Its subject.
    pub subject: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Bytes,
    /// When the broker stored it.
    pub recorded_at: Timestamp,
}

/// What must hold at the broker for a message to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// The last message on the same subject has this sequence; 0 = there is none.
    Subject(u64),
    /// The last message on another subject (a term's) has this sequence.
    Other {
        /// The subject that is looked at.
        subject: String,
        /// Its expected last sequence; 0 = there is none.
        sequence: u64,
    },
}

/// Why nothing definite, or nothing at all, was stored. Told apart by what the caller may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// An expectation did not hold: nothing was stored.
    #[error("the expected sequence is not the last one")]
    Conflict,
    /// Nobody knows whether it was stored (time-out, broken connection).
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The broker has no room to write on and gives no answer: nobody knows whether it was stored, and nobody will before there is room.
    #[error("the broker has no room and does not answer: {0}")]
    Stuck(String),
    /// The stream or the disk is full: nothing was stored; it may succeed when there is room again.
    #[error("the broker has no room: {0}")]
    Full(String),
    /// The broker could not be asked: nothing was stored.
    #[error("the broker is away: {0}")]
    Unavailable(String),
    /// The broker refused for a reason that does not go away (too large, not permitted, no such stream): nothing was stored.
    #[error("the broker refused: {0}")]
    Refused(String),
}

/// Why nothing could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The broker could not be asked, or did not answer in time; ask again.
    #[error("the broker is away: {0}")]
    Unavailable(String),
    /// The broker refused for a reason that does not go away.
    #[error("the broker refused: {0}")]
    Refused(String),
}

/// A bounded piece of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The matching messages, in order.
    pub messages: Vec<Stored>,
    /// Where to read on; `None` when nothing more matched when this was read.
    pub next: Option<u64>,
}

/// The ends of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first sequence that is still there (last + 1 when empty).
    pub first: u64,
    /// The last sequence ever given; 0 for a new stream.
    pub last: u64,
    /// How many messages there are.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the stream was made. Another time is another stream, whose sequences began anew.
    pub created: Timestamp,
}

/// What a tail yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailItem {
    /// The next matching message.
    Message(Stored),
    /// Everything that matches up to and including this sequence has been yielded; comes whenever nothing is pending.
    Position(u64),
}

/// A broker with the platform's streams. Cheap to share (`Arc<dyn Broker>`).
pub trait Broker: Send + Sync + 'static {
    /// Publishes one message; `Ok` with its sequence only when it is durable as its stream promises.
    fn publish(&self, stream: StreamName, message: Message, expect: Expect) -> BoxFuture<'_, Result<u64, PublishError>>;

    /// Publishes messages as one atomic batch: all are stored, in order and with consecutive sequences, or none. `Ok` with the last
    /// sequence. At most [`BATCH_MAX`] messages.
    fn publish_batch(&self, stream: StreamName, messages: Vec<(Message, Expect)>) -> BoxFuture<'_, Result<u64, PublishError>>;

    /// Reads at most `most` messages that match `filter`, from sequence `from` on. Never waits for new ones.
    fn read<'a>(&'a self, stream: StreamName, filter: &'a str, from: u64, most: usize) -> BoxFuture<'a, Result<Page, ReadError>>;

    /// The last message on a subject, read from the leader.
    fn last<'a>(&'a self, stream: StreamName, subject: &'a str) -> BoxFuture<'a, Result<Option<Stored>, ReadError>>;

    /// The ends of a stream.
    fn bounds(&self, stream: StreamName) -> BoxFuture<'_, Result<Bounds, ReadError>>;

    /// Follows a stream from sequence `from` on: every message that matches one of `filters` (all when empty), in order, each once,
    /// without gaps across reconnects; never ends by itself.
    fn tail(&self, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem>;

    /// Removes every message below `below` (that matches `filter`, when there is one).
    fn purge(&self, stream: StreamName, filter: Option<String>, below: u64) -> BoxFuture<'_, Result<(), ReadError>>;

    /// Listens to a plain subject (`fp.assigned.<node>`); messages published while away are missed.
    fn listen(&self, subject: &str) -> BoxFuture<'_, Result<BoxStream<'static, Stored>, ReadError>>;

    /// A reader waits for a position: open tails of the stream look whether they have one to tell, now rather than at their next turn.
    fn nudge(&self, _stream: StreamName) {}

    /// Counts (re)connections; a change means that the broker is there again after it was away.
    fn connections(&self) -> watch::Receiver<u64>;
}

/// The most messages of one atomic batch.
pub const BATCH_MAX: usize = 1_000;

/// Whether a subject is matched by a filter (`*` for one token, `>` for the rest).
pub fn subject_matches(filter: &str, subject: &str) -> bool {
    let mut wanted = filter.split('.');
    let mut tokens = subject.split('.');
    loop {
        match (wanted.next(), tokens.next()) {
            (Some(">"), Some(_)) => return true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Whether a subject is matched by one of `filters`; no filter matches everything.
pub fn any_matches(filters: &[String], subject: &str) -> bool {
    filters.is_empty() || filters.iter().any(|filter| subject_matches(filter, subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_whole_tokens_only() {
        assert!(subject_matches("fp.ledger.>", "fp.ledger.a.run.1"));
        assert!(subject_matches("fp.*.a", "fp.ledger.a"));
        assert!(!subject_matches("fp.ledger.>", "fp.ledger"));
        assert!(!subject_matches("fp.ledger", "fp.ledger.a"));
        assert!(!subject_matches("fp.led*", "fp.ledger"));
        assert!(any_matches(&[], "x") && !any_matches(&["y".to_owned()], "x"));
    }
}
