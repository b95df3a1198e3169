//! What every method needs: the view, the ledger, and appends that end definitely.

use crate::Config;
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{AppendError, Ledger, LedgerItem, Live, ReadError};
use footplate_events::{Envelope, Event, Recorded, Subject, Trace};
use footplate_scheduler_core::State;
use footplate_types::{EventId, PrincipalId, ProjectName, RunId};
use std::time::Duration;

/// How often an append that lost a race is decided again.
pub(crate) const TRIES: u32 = 16;
/// The fewest characters of a run id's prefix.
const PREFIX_MIN: usize = 4;

/// What every method needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shell {
    pub(crate) ledger: Ledger,
    pub(crate) live: Live<State>,
    pub(crate) clock: SharedClock,
    pub(crate) wait: Duration,
    source: String,
}

impl Shell {
    pub(crate) fn new(ledger: Ledger, live: Live<State>, clock: SharedClock, config: &Config) -> Self {
        Self { ledger, live, clock, wait: config.wait, source: format!("scheduler/{}", config.instance) }
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

    /// The run that a full id or a unique prefix of one of the project's jobs names.
    pub(crate) fn resolve(&self, project: &ProjectName, text: &str) -> Result<RunId, Refusal> {
        let state = self.live.read();
        let of_project = |run: &RunId| {
            state.jobs().get(run).is_some_and(|job| job.project == *project)
                || state.ended().get(run).is_some_and(|job| job.project == *project)
        };
        let unknown = || Refusal::new(&reason::JOB_NOT_FOUND, format!("no job {text} in project {project}")).field("run_id");
        if let Ok(run) = RunId::parse(text) {
            return if of_project(&run) { Ok(run) } else { Err(unknown()) };
        }
        let hex =
            text.len() >= PREFIX_MIN && text.len() < 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if !hex {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("{text:?} is no run id")).field("run_id");
            return Err(refusal.allowed("32 lower-case hex digits, or the first 4 or more of them"));
        }
        let starts = |run: &&RunId| run.to_string().starts_with(text) && of_project(run);
        let mut found = state.jobs().keys().chain(state.ended().keys()).filter(starts);
        match (found.next(), found.next()) {
            (None, _) => Err(unknown()),
            (Some(run), None) => Ok(*run),
            (Some(one), Some(other)) => Err(Refusal::new(&reason::AMBIGUOUS_ID, format!("{text} fits {one} and {other}")).field("run_id")),
        }
    }
}

/// A read that the broker did not answer.
pub(crate) fn away(error: ReadError) -> Refusal {
    Refusal::new(&reason::BROKER_AWAY, error.to_string())
}
