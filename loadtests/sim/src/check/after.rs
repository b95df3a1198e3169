//! Jobs that come after others, in the book: none is placed before its turn, and none is ended for it while its turn may come.

use super::book::{Book, JobBook};
use footplate_events::facts::{AfterJob, AfterWhen, Outcome};
use footplate_types::RunId;

impl Book {
    /// Whether the end that is waited for has come, or never will; `None` while it may.
    fn has_come(&self, run: RunId, after: &AfterJob) -> Option<bool> {
        if after.run == run {
            return Some(false);
        }
        let Some(named) = self.jobs.get(&after.run) else { return Some(false) };
        named.outcome.map(|outcome| match after.when {
            AfterWhen::Success => outcome == Outcome::Succeeded,
            AfterWhen::Failure => outcome == Outcome::Failed,
            AfterWhen::Any => true,
        })
    }

    /// Whether a job still waits for the ends of others.
    pub(super) fn waits(&self, run: RunId, job: &JobBook) -> bool {
        job.spec.after.iter().any(|after| self.has_come(run, after) != Some(true))
    }

    /// Whether a job's turn can never come.
    pub(super) fn never_comes(&self, run: RunId, job: &JobBook) -> bool {
        job.spec.after.iter().any(|after| self.has_come(run, after) == Some(false))
    }
}
