//! What every method needs: the view, the ledger, and appends that end definitely.

use crate::Config;
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{AppendError, Ledger, LedgerItem, Live, ReadError};
use footplate_events::{Envelope, Event, Recorded, Subject, Trace};
use footplate_sweep_core::{SERVICE, Sweeps};
use footplate_types::{EventId, PrincipalId, ProjectName, SweepId};
use std::time::Duration;

/// How often an append that lost a race is decided again.
pub(crate) const TRIES: u32 = 16;
/// The fewest characters of a sweep id's prefix.
const PREFIX_MIN: usize = 4;

/// What every method needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shell {
    pub(crate) ledger: Ledger,
    pub(crate) live: Live<Sweeps>,
    pub(crate) clock: SharedClock,
    pub(crate) wait: Duration,
    source: String,
}

impl Shell {
    pub(crate) fn new(ledger: Ledger, live: Live<Sweeps>, clock: SharedClock, config: &Config) -> Self {
        Self { ledger, live, clock, wait: config.wait, source: format!("{SERVICE}/{}", config.instance) }
    }

    /// Waits until the view stands at `wanted` or later.
    pub(crate) async fn at_least(&self, wanted: u64) -> Result<(), Refusal> {
        let reached = self.live.at_least(wanted, self.wait).await;
        reached.map_err(|behind| Refusal::new(&reason::VIEW_BEHIND, behind.to_string()))
    }

    /// Waits until the view holds everything that stands in the ledger now.
    pub(crate) async fn caught_up(&self) -> Result<(), Refusal> {
        let end = self.ledger.end().await.map_err(away)?;
        self.at_least(end).await
    }

    /// The events of an aggregate and its last sequence, read from the broker.
    pub(crate) async fn aggregate(&self, subject: &Subject) -> Result<(Vec<Recorded>, u64), Refusal> {
        let items = self.ledger.aggregate(subject).await.map_err(away)?;
        let mut facts = Vec::new();
        let mut last = 0;
        for item in items {
            match item {
                LedgerItem::Fact(recorded) => {
                    last = recorded.sequence;
                    facts.push(*recorded);
                }
                LedgerItem::Unknown { sequence, subject, .. } | LedgerItem::Poison { sequence, subject, .. } => {
                    let told = format!("event {sequence} on {subject} cannot be read by this build");
                    return Err(Refusal::new(&reason::UNREADABLE_HISTORY, told));
                }
                LedgerItem::Position(_) => {}
            }
        }
        Ok((facts, last))
    }

    /// The envelope of an event that a client's call begins.
    pub(crate) fn envelope(&self, id: EventId, subject: Subject, event: impl Into<Event>, actor: PrincipalId) -> Envelope {
        Envelope {
            id,
            subject,
            event: event.into(),
            source: self.source.clone(),
            time: self.clock.now(),
            actor,
            correlation: id,
            causation: None,
            trace: footplate_service::current_traceparent().and_then(|text| Trace::parse(&text)),
        }
    }

    /// Appends one event of a client, expecting `expected`; `None` when another event came first.
    pub(crate) async fn append(&self, envelope: Envelope, expected: u64) -> Result<Option<u64>, Refusal> {
        match self.ledger.append(envelope, expected).await {
            Ok(sequence) => Ok(Some(sequence)),
            Err(AppendError::Conflict { .. }) => Ok(None),
            Err(AppendError::Full(why)) => Err(Refusal::new(&reason::DISK_FULL, why)),
            Err(AppendError::Unavailable(why)) => Err(Refusal::new(&reason::BROKER_AWAY, why)
                .next("repeat the request with the same request id; when it was written after all, you get the same answer")),
            Err(error @ AppendError::NotOwned { .. }) => Err(Refusal::internal(error)),
            Err(AppendError::Invalid(invalid)) => Err(Refusal::from(invalid)),
        }
    }

    /// The sweep that a full id or a unique prefix of one of the project's sweeps names.
    pub(crate) fn resolve(&self, project: &ProjectName, text: &str) -> Result<SweepId, Refusal> {
        let state = self.live.read();
        let unknown = || Refusal::new(&reason::SWEEP_NOT_FOUND, format!("no sweep {text} in project {project}")).field("sweep_id");
        if let Ok(id) = SweepId::parse(text) {
            let known = state.sweep(&id).is_some_and(|sweep| sweep.project == *project);
            return if known { Ok(id) } else { Err(unknown()) };
        }
        let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if text.len() < PREFIX_MIN || text.len() >= 32 || !is_hex {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("{text:?} is no sweep id")).field("sweep_id");
            return Err(refusal.allowed("32 lower-case hex digits, or the first 4 or more of them"));
        }
        let of_project = state.sweeps().iter().filter(|(_, sweep)| sweep.project == *project).map(|(id, _)| id);
        let mut found = of_project.filter(|id| id.to_string().starts_with(text));
        match (found.next(), found.next()) {
            (None, _) => Err(unknown()),
            (Some(id), None) => Ok(*id),
            (Some(one), Some(other)) => {
                Err(Refusal::new(&reason::AMBIGUOUS_ID, format!("{text} fits {one} and {other}")).field("sweep_id"))
            }
        }
    }
}

/// A read that the broker did not answer.
pub(crate) fn away(error: ReadError) -> Refusal {
    Refusal::new(&reason::BROKER_AWAY, error.to_string())
}
