//! What every method needs: the view, the ledger, what requests name.

use crate::{Config, Membership};
use footplate_api::server::{Lines, Turn};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{Ledger, Live};
use footplate_registry_core::{Registry, SERVICE};
use footplate_types::{ModelId, ModelName, ProjectName, VersionNumber};
use std::ops::Deref;
use std::sync::Arc;

/// The most writes that wait behind one of the same model.
const WAITING_MAX: usize = 512;

/// What every method needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shell {
    base: footplate_shell::Shell<Registry>,
    pub(crate) membership: Membership,
    lines: Arc<Lines>,
}

impl Deref for Shell {
    type Target = footplate_shell::Shell<Registry>;

    fn deref(&self) -> &Self::Target {
        &self.base
    }
}

impl Shell {
    pub(crate) fn new(ledger: Ledger, live: Live<Registry>, clock: SharedClock, config: &Config) -> Self {
        let base = footplate_shell::Shell::new(SERVICE, &config.instance, ledger, live, clock, config.wait);
        let lines = Arc::new(Lines::new(WAITING_MAX, config.wait));
        Self { base, membership: config.membership.clone(), lines }
    }

    /// A write's turn: of one instance, those of one model are made one after the other, so that they do not refuse each other.
    pub(crate) async fn turn(&self, project: &ProjectName, model: &ModelName) -> Result<Turn<'_>, Refusal> {
        self.lines.turn(ModelId::of(project, model).as_bytes()[0], "model", model).await
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
