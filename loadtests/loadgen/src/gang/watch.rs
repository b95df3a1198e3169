//! What the streams say of one launch: when assignments, reports and events were stored, by the broker's clock.

use anyhow::{Context as _, Result};
use footplate_eventlog::{Broker, Ledger, LedgerItem, StreamName, TailItem};
use footplate_events::{Event, Subject};
use footplate_types::{AttemptId, AttemptNumber, ProjectName, RunId, Timestamp};
use futures::StreamExt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// When one gang passed what.
pub(super) struct Launch {
    placed: Timestamp,
    assigned: Timestamp,
    reported: Timestamp,
    ready: Timestamp,
    launched: Timestamp,
    /// How many events the ready reports were folded into.
    pub(super) ready_events: usize,
}

fn between(from: Timestamp, to: Timestamp) -> f64 {
    (to.as_nanos() - from.as_nanos()) as f64 / 1e6
}

impl Launch {
    /// Placed to launched, in milliseconds; the others are its parts.
    pub(super) fn took(&self) -> f64 {
        between(self.placed, self.launched)
    }

    pub(super) fn assigned(&self) -> f64 {
        between(self.placed, self.assigned)
    }

    pub(super) fn reported(&self) -> f64 {
        between(self.assigned, self.reported)
    }

    pub(super) fn ready(&self) -> f64 {
        between(self.reported, self.ready)
    }

    pub(super) fn launched(&self) -> f64 {
        between(self.ready, self.launched)
    }
}

/// Notes when messages of two streams were stored, while a gang is launched.
pub(super) struct Watch {
    assignments: Noted,
    reports: Noted,
}

struct Noted {
    at: Arc<Mutex<Vec<Timestamp>>>,
    task: JoinHandle<()>,
}

impl Noted {
    async fn begin(broker: &Arc<dyn Broker>, stream: StreamName) -> Result<Self> {
        let from = broker.bounds(stream).await?.last + 1;
        let mut items = broker.tail(stream, Vec::new(), from);
        let at: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
        let noted = at.clone();
        let task = tokio::spawn(async move {
            while let Some(item) = items.next().await {
                if let TailItem::Message(stored) = item {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(stored.recorded_at);
                }
            }
        });
        Ok(Self { at, task })
    }

    /// The last one that was stored by `until`.
    fn last_by(&self, until: Timestamp) -> Option<Timestamp> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().filter(|at| *at <= until).max()
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Begins to note.
    pub(super) async fn begin(broker: Arc<dyn Broker>) -> Result<Self> {
        let assignments = Noted::begin(&broker, StreamName::Assignments).await?;
        let reports = Noted::begin(&broker, StreamName::Reports).await?;
        Ok(Self { assignments, reports })
    }

    /// Puts what was noted together with the ledger's events of the run, which has ended.
    pub(super) async fn end(self, ledger: &Ledger, project: &ProjectName, run: RunId) -> Result<Launch> {
        let of_job = facts(ledger, &Subject::job(project, run)).await?;
        let attempt = AttemptId { run, attempt: AttemptNumber(1) };
        let of_attempt = facts(ledger, &Subject::attempt(project, attempt)).await?;
        let when = |wanted: fn(&Event) -> bool| of_job.iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at);
        let placed = when(|event| matches!(event, Event::JobPlaced(_))).context("no job.placed")?;
        let launched = when(|event| matches!(event, Event::JobLaunched(_))).context("no job.launched")?;
        let readies: Vec<Timestamp> =
            of_attempt.iter().filter(|(_, event)| matches!(event, Event::AttemptReady(_))).map(|(at, _)| *at).collect();
        let ready = readies.last().copied().context("no attempt.ready")?;
        let reported = self.reports.last_by(ready).context("no report was seen")?;
        let assigned = self.assignments.last_by(reported).context("no assignment was seen")?;
        Ok(Launch { placed, assigned, reported, ready, launched, ready_events: readies.len() })
    }
}

async fn facts(ledger: &Ledger, subject: &Subject) -> Result<Vec<(Timestamp, Event)>> {
    let items = ledger.aggregate(subject).await?;
    let fact = |item| match item {
        LedgerItem::Fact(recorded) => Some((recorded.recorded_at, recorded.envelope.event)),
        _ => None,
    };
    Ok(items.into_iter().filter_map(fact).collect())
}
