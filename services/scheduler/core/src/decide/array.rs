//! Jobs of arrays of which only so many are placed at a time: those that stand behind the others are told so ([`crate::state::ArrayKey`]).

use super::pass::Pass;
use super::place::Round;
use crate::state::{ArrayKey, Behind, Index, Job};
use footplate_events::facts::WaitReason;
use std::collections::BTreeMap;

/// What the array of a job lets start, in words; empty for a job of none.
fn limit(job: &Job) -> String {
    let told = |array: &footplate_events::facts::ArrayMember| {
        format!("at most {} of the {} jobs of array {} are placed at a time", array.at_once, array.count, array.id)
    };
    job.spec.array.as_ref().map_or_else(String::new, told)
}

/// The same of a job that stands behind others, with the numbers of the moment.
pub(crate) fn stands(job: &Job, behind: Behind) -> String {
    format!("{}: {} are, {} stand in line, {} wait before it", limit(job), behind.placed, behind.in_line, behind.before)
}

/// Jobs that are considered alone and may be placed beside those that stand in line: how many of each array.
#[derive(Debug, Default)]
pub(super) struct Beside(BTreeMap<ArrayKey, usize>);

impl Beside {
    /// Why such a job is not considered in this look: it gets in line with the others of its array first.
    pub(super) fn kept_back(&mut self, index: &Index, job: &Job) -> Option<WaitReason> {
        let key = ArrayKey::of(job)?;
        let free = self.0.entry(key).or_insert_with_key(|key| index.arrays.free(key));
        match free.checked_sub(1) {
            Some(left) => {
                *free = left;
                None
            }
            None => Some(WaitReason::Array { detail: limit(job) }),
        }
    }
}

impl<'a> Round<'a> {
    /// Tells the jobs that stand behind others of their array.
    pub(super) fn tell_behind(&self, pass: &mut Pass<'a>) {
        let state = pass.state;
        for job in state.index().arrays.untold.iter().filter_map(|turn| state.jobs().get(&turn.2)) {
            if pass.is_full() {
                return;
            }
            self.tell(pass, job, WaitReason::Array { detail: limit(job) });
        }
    }
}
