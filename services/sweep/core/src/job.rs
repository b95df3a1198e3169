//! The job of a trial.

use footplate_events::facts::{DocumentRef, JobSpec, SweepCreated};
use footplate_types::{DisplayName, SweepId, TrialId, TrialNumber};

/// The label (and so the run's tag) that names a trial's sweep.
pub const SWEEP_LABEL: &str = "footplate.sweep";
/// The label that names a trial's number.
pub const TRIAL_LABEL: &str = "footplate.trial";

/// The longest name of a sweep that still takes a trial's number.
const NAME_MAX: usize = 230;

/// What the trial's job asks: the sweep's job with the trial's config, name, labels and objective.
pub fn trial_job(sweep: &SweepCreated, id: TrialId, config: DocumentRef, document: Option<DocumentRef>) -> JobSpec {
    let mut job = sweep.job.clone();
    job.name = name_of(&sweep.name, id.trial);
    job.labels.insert(SWEEP_LABEL.to_owned(), id.sweep.to_string());
    job.labels.insert(TRIAL_LABEL.to_owned(), id.trial.to_string());
    job.config = Some(config);
    job.document = document;
    job.objectives = vec![sweep.objective.metric.clone()];
    job
}

fn name_of(sweep: &DisplayName, trial: TrialNumber) -> DisplayName {
    let head: String = sweep.as_str().chars().take(NAME_MAX).collect();
    DisplayName::parse(&format!("{} #{trial}", head.trim_end())).unwrap_or_else(|_| sweep.clone())
}

/// The job as the largest trial would have it, for the checks of its limits.
pub(crate) fn largest_job(sweep: &SweepCreated) -> JobSpec {
    let id = TrialId { sweep: SweepId::from_bytes([0xff; 16]), trial: TrialNumber(u32::MAX) };
    let config = DocumentRef { digest: sweep.body, bytes: 0 };
    trial_job(sweep, id, config, sweep.job.document)
}
