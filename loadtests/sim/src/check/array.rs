//! Arrays, in the book: never more of one are placed at a time than may be, and who stands behind others of it waits for those alone.

use super::book::{Book, JobBook};
use footplate_events::facts::ArrayMember;
use footplate_types::RunId;
use std::cmp::Reverse;

impl Book {
    /// The other jobs of an array with a limit, which is told with them.
    fn others(&self, run: RunId, job: &JobBook) -> Option<(ArrayMember, impl Iterator<Item = (&RunId, &JobBook)>)> {
        let array = job.spec.array.filter(|array| array.at_once > 0)?;
        let is_same = move |other: ArrayMember| (other.id, other.at_once) == (array.id, array.at_once);
        Some((array, self.jobs.iter().filter(move |(other, job)| **other != run && job.spec.array.is_some_and(is_same))))
    }

    /// How many of its array hold something, when those are as many as may be.
    pub(super) fn crowd(&self, run: RunId, job: &JobBook) -> Option<usize> {
        let (array, others) = self.others(run, job)?;
        let holds = |job: &JobBook| job.attempt.as_ref().is_some_and(|attempt| !attempt.closed && !attempt.is_released());
        let placed = others.filter(|(_, job)| holds(job)).count();
        (placed >= array.at_once as usize).then_some(placed)
    }

    /// Whether as many of its array as may be are placed or stand before it.
    pub(super) fn stands_behind(&self, run: RunId, job: &JobBook) -> bool {
        let Some((array, others)) = self.others(run, job) else { return false };
        let turn = |job: &JobBook| (Reverse(job.priority), job.submitted);
        let is_before = |(other, known): &(&RunId, &JobBook)| {
            let waits = known.is_pending() && !known.held && !self.waits(**other, known) && turn(known) < turn(job);
            known.outcome.is_none() && (!known.is_pending() || waits)
        };
        others.filter(is_before).count() >= array.at_once as usize
    }
}
