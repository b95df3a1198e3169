//! The pending jobs of one queue in the order of their turns, group by group.

use crate::state::{Group, Job, State, Turn};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A job whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(super) job: &'a Job,
    pub(super) turn: Turn,
    /// The group it was taken from; none for one that is considered alone.
    group: Option<usize>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Line<'a> {
    groups: Vec<&'a Group>,
    heads: BinaryHeap<Reverse<(Turn, Option<usize>)>>,
    /// The first of all.
    front: Option<&'a Job>,
}

impl<'a> Line<'a> {
    /// The jobs of these groups. [`Line::settle`] comes before anything is asked of it.
    pub(super) fn of(groups: Vec<&'a Group>) -> Self {
        let heads = groups.iter().enumerate().filter_map(|(at, group)| Some(Reverse((group.next(None)?, Some(at))))).collect();
        Self { groups, heads, front: None }
    }

    /// One more job, of no group.
    pub(super) fn add(&mut self, job: &Job) {
        self.heads.push(Reverse((job.turn(), None)));
    }

    /// Finds the first job anew.
    pub(super) fn settle(&mut self, state: &'a State) {
        self.front = self.heads.peek().and_then(|Reverse((turn, _))| state.jobs().get(&turn.2));
    }

    pub(super) fn front(&self) -> Option<&'a Job> {
        self.front
    }

    /// The first job, taken out. Those behind it in its group follow when [`Line::go_on`] says so.
    pub(super) fn pop(&mut self, state: &'a State) -> Option<Head<'a>> {
        let job = self.front?;
        let Reverse((turn, group)) = self.heads.pop()?;
        self.settle(state);
        Some(Head { job, turn, group })
    }

    /// The next of the group that a job was taken from may have its turn.
    pub(super) fn go_on(&mut self, head: &Head<'a>, state: &'a State) {
        if let Some(next) = head.group.and_then(|at| Some(Reverse((self.groups[at].next(Some(&head.turn))?, Some(at))))) {
            self.heads.push(next);
            self.settle(state);
        }
    }
}

impl Head<'_> {
    /// Whether it stands for its group.
    pub(super) fn is_of_group(&self) -> bool {
        self.group.is_some()
    }
}
