//! Client-written events of several aggregates that stand in the ledger together or not at all: one atomic batch of their own, beside the group
//! commit.
//!
//! The rules are those of a single append (rule 4): the same bytes, ids and expectations are sent again for as long as the outcome is unknown, and a
//! refusal is told only after every aggregate has been looked through. Since a batch is whole, the events stand all or none.

use crate::ledger::{AppendError, Ledger, LedgerItem};
use crate::port::{BATCH_MAX, Expect, Message, PublishError, ReadError, StreamName};
use footplate_events::{Envelope, Subject};
use footplate_types::{EventId, Invalid};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The first pause before a batch is sent again; doubled up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(20);
/// The longest pause before a batch is sent again.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// One of the events: where it goes, who it is, what it expects.
struct Member {
    subject: Subject,
    id: EventId,
    expected: u64,
    message: Message,
}

/// What became of one try.
enum Tried {
    Answer(Result<Vec<u64>, AppendError>),
    Again { unknown: bool, why: String },
}

impl Ledger {
    /// Appends client-written events of different aggregates, each with the aggregate's last sequence that it expects (0 = new): all of them, in this
    /// order, or none. Answers with their sequences; events of the same ids that stand already count as these.
    ///
    /// # Errors
    /// As [`Ledger::append`]; nothing was stored where that says so of one event. More than [`BATCH_MAX`] events, or two of one aggregate, are invalid.
    pub async fn append_together(&self, events: Vec<(Envelope, u64)>, within: Duration) -> Result<Vec<u64>, AppendError> {
        let deadline = Instant::now() + within;
        let members = self.members(events)?;
        let (mut unknown, mut pause) = (false, AGAIN);
        loop {
            let why = match self.try_together(&members, unknown).await {
                Tried::Answer(answer) => return answer,
                Tried::Again { unknown: maybe, why } => {
                    unknown |= maybe;
                    why
                }
            };
            let next = Instant::now() + pause;
            if next >= deadline {
                let stored = if unknown { "the events may yet be stored" } else { "nothing was stored" };
                return Err(AppendError::Unavailable(format!("no definite answer in time ({why}); {stored}")));
            }
            sleep_until(next).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }

    fn members(&self, events: Vec<(Envelope, u64)>) -> Result<Vec<Member>, AppendError> {
        if events.is_empty() || events.len() > BATCH_MAX {
            return Err(Invalid::new("events (count)", events.len(), format!("1 to {BATCH_MAX}")).into());
        }
        let mut subjects = BTreeSet::new();
        let mut members = Vec::with_capacity(events.len());
        for (envelope, expected) in events {
            let message = self.message(&envelope)?;
            if !subjects.insert(message.subject.clone()) {
                return Err(Invalid::new("events", message.subject, "one event of each aggregate").into());
            }
            members.push(Member { subject: envelope.subject, id: envelope.id, expected, message });
        }
        Ok(members)
    }

    async fn try_together(&self, members: &[Member], unknown: bool) -> Tried {
        let messages = members.iter().map(|member| (member.message.clone(), Expect::Subject(member.expected))).collect();
        let error = match self.broker().publish_batch(StreamName::Ledger, messages).await {
            Ok(last) => return Tried::Answer(Ok((last + 1 - members.len() as u64..=last).collect())),
            Err(error) => error,
        };
        let why = error.to_string();
        match error {
            PublishError::Unknown(_) => Tried::Again { unknown: true, why },
            PublishError::Unavailable(_) => Tried::Again { unknown: false, why },
            PublishError::Stuck(why) => Tried::Answer(Err(AppendError::Full(format!("{why}; it may be stored once there is room")))),
            PublishError::Full(_) if unknown => Tried::Again { unknown, why },
            PublishError::Full(why) => Tried::Answer(Err(AppendError::Full(why))),
            // A copy that stands spoils the batch too: the look tells.
            PublishError::Conflict | PublishError::Refused(_) => match self.standing(members).await {
                Err(error) => Tried::Again { unknown, why: error.to_string() },
                Ok(Some(sequences)) => Tried::Answer(Ok(sequences)),
                Ok(None) if error == PublishError::Conflict => {
                    Tried::Answer(Err(AppendError::Conflict { expected: members.iter().map(|member| member.expected).max().unwrap_or(0) }))
                }
                Ok(None) if unknown => Tried::Again { unknown, why },
                Ok(None) => Tried::Answer(Err(AppendError::Unavailable(format!("{why}; nothing was stored")))),
            },
        }
    }

    /// Where the events stand; `None` when one of them does not.
    async fn standing(&self, members: &[Member]) -> Result<Option<Vec<u64>>, ReadError> {
        let mut sequences = Vec::with_capacity(members.len());
        for member in members {
            let is_it = |item: &LedgerItem| match item {
                LedgerItem::Fact(recorded) => (recorded.envelope.id == member.id).then_some(recorded.sequence),
                LedgerItem::Unknown { .. } | LedgerItem::Poison { .. } | LedgerItem::Position(_) => None,
            };
            match self.aggregate(&member.subject).await?.iter().find_map(is_it) {
                Some(sequence) => sequences.push(sequence),
                None => return Ok(None),
            }
        }
        Ok(Some(sequences))
    }
}
