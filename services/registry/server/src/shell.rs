//! What every method needs: the view, the ledger, what requests name.

use crate::{Config, Membership};
use footplate_api::server::{Lines, Turn};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{Ledger, LedgerItem, Live, ReadError};
use footplate_events::{Recorded, Subject};
use footplate_registry_core::Registry;
use footplate_types::{ModelId, ModelName, ProjectName, VersionNumber};
use std::sync::Arc;
use std::time::Duration;

/// The most writes that wait behind one of the same model.
const WAITING_MAX: usize = 512;
/// Events that are read from the broker at a time, and held at once: one may have 256 KiB.
const PAGE: usize = 100;

/// What every method needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shell {
    pub(crate) ledger: Ledger,
    pub(crate) live: Live<Registry>,
    pub(crate) clock: SharedClock,
    pub(crate) membership: Membership,
    pub(crate) source: Arc<str>,
    wait: Duration,
    lines: Arc<Lines>,
}

impl Shell {
    pub(crate) fn new(ledger: Ledger, live: Live<Registry>, clock: SharedClock, config: &Config) -> Self {
        let source = format!("{}/{}", footplate_registry_core::SERVICE, config.instance).into();
        let lines = Arc::new(Lines::new(WAITING_MAX, config.wait));
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
    pub(crate) async fn turn(&self, project: &ProjectName, model: &ModelName) -> Result<Turn<'_>, Refusal> {
        self.lines.turn(ModelId::of(project, model).as_bytes()[0], "model", model).await
    }

    /// Gives away each event of an aggregate in order, read from the broker page by page.
    pub(crate) async fn each_fact(&self, subject: &Subject, mut take: impl FnMut(Recorded) + Send) -> Result<(), Refusal> {
        let filter = subject.to_string();
        let mut from = Some(1);
        while let Some(next) = from {
            let (page, more) = self.ledger.read(&filter, next, PAGE).await.map_err(away)?;
            for item in page {
                match item {
                    LedgerItem::Fact(recorded) => take(*recorded),
                    LedgerItem::Unknown { sequence, subject, .. } | LedgerItem::Poison { sequence, subject, .. } => {
                        let told = format!("event {sequence} on {subject} cannot be read by this build");
                        return Err(Refusal::new(&reason::UNREADABLE_HISTORY, told));
                    }
                    LedgerItem::Position(_) => {}
                }
            }
            from = more;
        }
        Ok(())
    }

    /// The events of an aggregate that has few.
    pub(crate) async fn facts(&self, subject: &Subject) -> Result<Vec<Recorded>, Refusal> {
        let mut facts = Vec::new();
        self.each_fact(subject, |recorded| facts.push(recorded)).await?;
        Ok(facts)
    }
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
