//! What every method needs: the view, the ledger, and the sweep that a request names.

use footplate_api::{Refusal, reason};
use footplate_shell::{Named, resolve};
use footplate_sweep_core::Sweeps;
use footplate_types::{ProjectName, SweepId};

/// What every method needs. Cheap to clone.
pub(crate) type Shell = footplate_shell::Shell<Sweeps>;

/// One of the project's sweeps, by its id or a unique prefix of it.
pub(crate) fn sweep_of(shell: &Shell, project: &ProjectName, text: &str) -> Result<SweepId, Refusal> {
    let state = shell.live.read();
    let known = state.sweeps().iter().filter(|(_, sweep)| sweep.project == *project).map(|(id, _)| *id);
    resolve(&Named { what: "sweep", field: "sweep_id", unknown: &reason::SWEEP_NOT_FOUND, project: Some(project) }, text, known)
}
