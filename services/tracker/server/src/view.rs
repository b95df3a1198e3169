//! The tracker's view: every run and experiment, folded from the ledger, in memory for answers and in a file for the next start.
//!
//! The file holds the rows and the position they stand at, written in one transaction; it is never an authority: absent, damaged, of an
//! older shape or of another ledger it is thrown away and built again. Memory grows with a few KiB a run.

mod file;
mod follow;
mod state;
mod verify;

pub(crate) use file::{File, Rows};
pub use file::{FileError, SCHEMA};
pub(crate) use follow::follow;
pub(crate) use state::{Row, State, Table};
pub(crate) use verify::{ViewReport, verify};

use crate::error::behind;
use footplate_api::{Refusal, reason};
use footplate_eventlog::{Ledger, Live, StreamName};
use footplate_events::messages::Settled;
use footplate_events::{Aggregate, Subject};
use footplate_shell::away;
use footplate_tracker_core::{Experiment, Run};
use footplate_types::{ExperimentId, ProjectName, RunId};
use std::sync::Arc;
use std::time::Duration;

/// The filters of the ledger that the view folds.
pub(crate) fn filters() -> Vec<String> {
    [Aggregate::Experiment, Aggregate::Run, Aggregate::Job, Aggregate::Attempt].map(|kind| Subject::filter(None, Some(kind))).to_vec()
}

/// The view with what its readers need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct View {
    ledger: Ledger,
    live: Live<State>,
    file: Arc<File>,
    /// Held while items are folded and written, so that whoever holds it sees memory and file at one position.
    folding: Arc<tokio::sync::Mutex<()>>,
    wait: Duration,
}

/// The most ids that an ambiguous prefix is answered with.
const AMBIGUOUS_SHOWN: usize = 5;

impl View {
    /// A view over an opened file and what was read from it.
    pub(crate) fn new(ledger: Ledger, live: Live<State>, file: Arc<File>, wait: Duration) -> Self {
        Self { ledger, live, file, folding: Arc::default(), wait }
    }

    /// The folded state.
    pub(crate) fn live(&self) -> &Live<State> {
        &self.live
    }

    /// The ledger below.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The longest a read waits.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Waits until the view stands at `wanted` or later; 0 waits for nothing.
    pub(crate) async fn at_least(&self, wanted: u64) -> Result<(), Refusal> {
        if self.live.position() >= wanted {
            return Ok(());
        }
        self.ledger.broker().nudge(StreamName::Ledger);
        self.live.at_least(wanted, self.wait).await.map_err(behind)
    }

    /// Waits until the view stands at the end that the ledger has now.
    pub(crate) async fn catch_up(&self) -> Result<(), Refusal> {
        let end = self.ledger.end().await.map_err(away)?;
        self.at_least(end).await
    }

    /// What the file remembers of spools; nothing when it cannot be read.
    pub(crate) fn file_settled(&self) -> Vec<Settled> {
        self.file.settled().unwrap_or_else(|error| {
            tracing::warn!(%error, "settled positions of former spools are not remembered");
            Vec::new()
        })
    }

    /// Remembers a settled position in the file. A failure costs only the memory of spools that their node leaves behind.
    pub(crate) fn settle_in_file(&self, settled: &Settled) {
        if let Err(error) = self.file.settle(settled) {
            tracing::warn!(%error, "a settled position is not remembered");
        }
    }

    /// A run, also one that is not visible yet.
    pub(crate) fn known(&self, project: &ProjectName, run: RunId) -> Option<Arc<Run>> {
        self.live.read().run(project, run)
    }

    /// A visible run.
    pub(crate) fn run(&self, project: &ProjectName, run: RunId) -> Option<Arc<Run>> {
        self.known(project, run).filter(|run| run.is_visible())
    }

    /// An experiment.
    pub(crate) fn experiment(&self, project: &ProjectName, id: ExperimentId) -> Option<Arc<Experiment>> {
        self.live.read().experiment(project, id)
    }

    /// The run that an id or a unique prefix of one names. A run that is not there is looked for once more at the ledger's end: its
    /// creator may ask before this view has read on.
    pub(crate) async fn resolve(&self, project: &ProjectName, text: &str) -> Result<Arc<Run>, Refusal> {
        if let Some(run) = self.look_up(project, text)? {
            return Ok(run);
        }
        self.catch_up().await?;
        self.look_up(project, text)?
            .ok_or_else(|| Refusal::new(&reason::RUN_NOT_FOUND, format!("project {project} has no run {text}")).field("run_id").value(text))
    }

    fn look_up(&self, project: &ProjectName, text: &str) -> Result<Option<Arc<Run>>, Refusal> {
        let is_hex = !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("run_id: {text:?} is no id"));
            return Err(refusal.field("run_id").value(text).allowed("32 lower-case hex digits, or the first few of them"));
        }
        let found = self.live.read().runs_with_prefix(project, text, AMBIGUOUS_SHOWN + 1);
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => {
                let mut shown: Vec<String> = several.iter().take(AMBIGUOUS_SHOWN).map(|run| run.id.to_string()).collect();
                if several.len() > AMBIGUOUS_SHOWN {
                    shown.push("...".to_owned());
                }
                let message = format!("run_id: {text} is the beginning of {} or more runs: {}", several.len(), shown.join(", "));
                Err(Refusal::new(&reason::AMBIGUOUS_ID, message).field("run_id").value(text))
            }
        }
    }
}
