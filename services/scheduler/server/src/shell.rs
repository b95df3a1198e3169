//! What every method needs: the view, the ledger, and the job that a request names.

use footplate_api::{Refusal, reason};
use footplate_scheduler_core::State;
use footplate_shell::{Named, resolve};
use footplate_types::{ProjectName, RunId};

/// What every method needs. Cheap to clone.
pub(crate) type Shell = footplate_shell::Shell<State>;

/// The run of one of the project's jobs, by its id or a unique prefix of it.
pub(crate) fn run_of(shell: &Shell, project: &ProjectName, text: &str) -> Result<RunId, Refusal> {
    let state = shell.live.read();
    let live = state.jobs().iter().filter(|(_, job)| job.project == *project).map(|(run, _)| *run);
    let ended = state.ended().iter().filter(|(_, job)| job.project == *project).map(|(run, _)| *run);
    let named = Named { what: "job", field: "run_id", unknown: &reason::JOB_NOT_FOUND, project: Some(project) };
    resolve(&named, text, live.chain(ended))
}
