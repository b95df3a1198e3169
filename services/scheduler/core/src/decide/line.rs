//! The pending jobs of one queue in the order of their turns, group by group.

use crate::state::{Group, GroupKey, Job, State, Turn};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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
    /// Groups of which no more is looked at.
    dropped: Vec<bool>,
    heads: BinaryHeap<Reverse<(Turn, Option<usize>)>>,
    /// The first of all.
    front: Option<&'a Job>,
}

impl<'a> Line<'a> {
    /// The jobs of these groups. [`Line::settle`] comes before anything is asked of it.
    pub(super) fn of(groups: &'a BTreeMap<GroupKey, Group>) -> Self {
        let groups: Vec<&Group> = groups.values().collect();
        let heads = groups.iter().enumerate().filter_map(|(at, group)| Some(Reverse((group.next(None)?, Some(at))))).collect();
        Self { dropped: vec![false; groups.len()], groups, heads, front: None }
    }

    /// One more job, of no group.
    pub(super) fn add(&mut self, job: &Job) {
        self.heads.push(Reverse((job.turn(), None)));
    }

    /// Finds the first job anew.
    pub(super) fn settle(&mut self, state: &'a State) {
        while let Some(Reverse((turn, group))) = self.heads.peek() {
            let dropped = group.is_some_and(|at| self.dropped[at]);
            let job = state.jobs().get(&turn.2).filter(|_| !dropped);
            if job.is_some() {
                self.front = job;
                return;
            }
            self.heads.pop();
        }
        self.front = None;
    }

    pub(super) fn front(&self) -> Option<&'a Job> {
        self.front
    }

    /// The first job, taken out.
    pub(super) fn pop(&mut self, state: &'a State) -> Option<Head<'a>> {
        let job = self.front?;
        let Reverse((turn, group)) = self.heads.pop()?;
        if let Some(next) = group.and_then(|at| Some(Reverse((self.groups[at].next(Some(&turn))?, Some(at))))) {
            self.heads.push(next);
        }
        self.settle(state);
        Some(Head { job, turn, group })
    }

    /// Nothing more of the group that a job was taken from.
    pub(super) fn drop_group(&mut self, head: &Head<'a>, state: &'a State) {
        if let Some(at) = head.group {
            self.dropped[at] = true;
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
