//! What every method needs: the view, the ledger, what requests name.

use crate::{Config, Membership};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{Ledger, LedgerItem, Live, ReadError};
use footplate_events::{Recorded, Subject};
use footplate_registry_core::Registry;
use footplate_service::Latch;
use footplate_types::{ModelId, ModelName, ProjectName, VersionNumber};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// The pause before the ledger's end is asked for again at the start.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Lines in which the writes of models wait; a model's is fixed by its id.
const LINES: usize = 64;

/// What every method needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shell {
    pub(crate) ledger: Ledger,
    pub(crate) live: Live<Registry>,
    pub(crate) clock: SharedClock,
    pub(crate) membership: Membership,
    pub(crate) source: Arc<str>,
    wait: Duration,
    lines: Arc<[Mutex<()>]>,
}

impl Shell {
    pub(crate) fn new(ledger: Ledger, live: Live<Registry>, clock: SharedClock, config: &Config) -> Self {
        let source = format!("{}/{}", footplate_registry_core::SERVICE, config.instance).into();
        let lines = (0..LINES).map(|_| Mutex::new(())).collect();
        Self { ledger, live, clock, membership: config.membership.clone(), source, wait: config.wait, lines }
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

    /// A write's turn: of one instance, those of one model are made one after the other, so that they do not refuse each other.
    pub(crate) async fn turn(&self, model: &ModelId) -> Result<MutexGuard<'_, ()>, Refusal> {
        let line = &self.lines[usize::from(model.as_bytes()[0]) % LINES];
        let late = |_| Refusal::new(&reason::TOO_MANY_REQUESTS, "more is written to this model at once than is taken");
        tokio::time::timeout(self.wait, line.lock()).await.map_err(late)
    }

    /// The events of an aggregate, read from the broker.
    pub(crate) async fn facts(&self, subject: &Subject) -> Result<Vec<Recorded>, Refusal> {
        let items = self.ledger.aggregate(subject).await.map_err(away)?;
        let mut facts = Vec::new();
        for item in items {
            match item {
                LedgerItem::Fact(recorded) => facts.push(*recorded),
                LedgerItem::Unknown { sequence, subject, .. } | LedgerItem::Poison { sequence, subject, .. } => {
                    let told = format!("event {sequence} on {subject} cannot be read by this build");
                    return Err(Refusal::new(&reason::UNREADABLE_HISTORY, told));
                }
                LedgerItem::Position(_) => {}
            }
        }
        Ok(facts)
    }
}

/// The project that a request names.
pub(crate) fn project_of(text: &str) -> Result<ProjectName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no project is named").field("project"));
    }
    let project = ProjectName::parse(text)?;
    if project.is_platform() {
        return Err(Refusal::new(&reason::INVALID_FIELD, "_ is the platform's own").field("project").value(text));
    }
    Ok(project)
}

/// The model that a request names.
pub(crate) fn model_of(text: &str, field: &str) -> Result<ModelName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no model is named").field(field));
    }
    Ok(ModelName::parse(text).map_err(|invalid| invalid.of(field))?)
}

/// The version that a request names.
pub(crate) fn version_of(number: u32) -> Result<VersionNumber, Refusal> {
    if number == 0 {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no version is named").field("version").allowed("a number from 1"));
    }
    Ok(VersionNumber(number))
}

/// A read that the broker did not answer.
pub(crate) fn away(error: ReadError) -> Refusal {
    Refusal::new(&reason::BROKER_AWAY, error.to_string())
}

/// Makes the process ready once the view holds what stood in the ledger at the start.
pub(crate) async fn caught_up(ledger: Ledger, live: Live<Registry>, latch: Latch, shutdown: CancellationToken) {
    let reading = async {
        let end = loop {
            match ledger.end().await {
                Ok(end) => break end,
                Err(error) => latch.pending(format!("the ledger cannot be read: {error}")),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        };
        while live.at_least(end, ASK_AGAIN).await.is_err() {
            latch.pending(format!("reads the ledger: {} of {end}", live.position()));
        }
        latch.ready();
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = reading => {}
    }
}
