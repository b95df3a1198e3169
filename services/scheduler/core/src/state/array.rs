//! Arrays of which only so many jobs are placed at a time: who of each stands in line.
//!
//! Of the jobs of such an array that could start, only as many stand in line as may be placed now, the first by their turns; the others stand behind them and
//! are looked at by nobody. So an array costs a look no more than what of it may start, and none of its jobs hides another array's of its group.

use super::index::{Index, Turn};
use super::{Job, State, Wait};
use footplate_events::facts::JobSpec;
use footplate_types::{ProjectName, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The jobs that count together. One that was submitted with another limit counts apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ArrayKey {
    project: ProjectName,
    id: RunId,
    pub(crate) at_once: u32,
}

impl ArrayKey {
    /// The array of a job, when that has a limit.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let array = job.spec.array.as_ref()?;
        array.limit().map(|at_once| Self { project: job.project.clone(), id: array.id, at_once })
    }
}

/// A job that could start if its array let it.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) spec: Arc<JobSpec>,
    pub(super) class: footplate_types::Digest,
    pub(super) told: Option<Wait>,
    pub(super) since: super::Stamp,
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        (self.class, self.told, self.since) == (other.class, other.told, other.since)
    }
}

impl Eq for Ready {}

/// One array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// Jobs that are placed, or for which others are being stopped.
    placed: u32,
    /// Jobs that stand in line, in the groups of their queues.
    in_line: BTreeMap<Turn, Ready>,
    /// Jobs that stand behind them.
    behind: BTreeMap<Turn, Ready>,
}

impl Line {
    /// How many may stand in line.
    const fn allowed(&self, at_once: u32) -> usize {
        at_once.saturating_sub(self.placed) as usize
    }

    fn is_empty(&self) -> bool {
        self.placed == 0 && self.in_line.is_empty() && self.behind.is_empty()
    }

    /// The next job behind the line.
    pub(crate) fn next_behind(&self, last: Option<&Turn>) -> Option<&Turn> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.behind.range((last.map_or(Unbounded, Excluded), Unbounded)).next().map(|(turn, _)| turn)
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrays {
    lines: BTreeMap<ArrayKey, Line>,
    /// Jobs that stand behind and were not told so last.
    pub(crate) untold: BTreeSet<Turn>,
}

impl Arrays {
    pub(crate) fn line(&self, key: &ArrayKey) -> Option<&Line> {
        self.lines.get(key)
    }

    /// How many more of an array may be placed beside those in its line.
    pub(crate) fn free(&self, key: &ArrayKey) -> usize {
        self.lines.get(key).map_or(key.at_once as usize, |line| line.allowed(key.at_once).saturating_sub(line.in_line.len()))
    }

    fn stand_behind(&mut self, key: &ArrayKey, turn: Turn, ready: Ready) {
        if ready.told != Some(Wait::Array) {
            self.untold.insert(turn);
        }
        if let Some(line) = self.lines.get_mut(key) {
            line.behind.insert(turn, ready);
        }
    }
}

/// Why a job that stands behind waits: how many of its array are placed, stand in line, and stand behind before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) placed: u32,
    pub(crate) in_line: usize,
    pub(crate) before: usize,
}

impl State {
    /// How a pending job stands behind others of its array; `None` when it does not.
    pub(crate) fn stands_behind(&self, job: &Job) -> Option<Behind> {
        let line = self.index().arrays.line(&ArrayKey::of(job)?)?;
        let turn = job.turn();
        let is_behind = line.behind.contains_key(&turn);
        is_behind.then(|| Behind { placed: line.placed, in_line: line.in_line.len(), before: line.behind.range(..turn).count() })
    }
}

impl Index {
    /// A job of an array is placed, or is so no more.
    pub(super) fn count_placed(&mut self, key: &ArrayKey, more: bool) {
        let line = self.arrays.lines.entry(key.clone()).or_default();
        line.placed = if more { line.placed.saturating_add(1) } else { line.placed.saturating_sub(1) };
        self.dress(key);
    }

    /// A job of an array could start.
    pub(super) fn line_up(&mut self, key: &ArrayKey, turn: Turn, ready: Ready) {
        let line = self.arrays.lines.entry(key.clone()).or_default();
        if line.in_line.last_key_value().is_some_and(|(last, _)| turn < *last) {
            line.in_line.insert(turn, ready.clone());
            self.file_ready(turn, &ready);
        } else {
            self.arrays.stand_behind(key, turn, ready);
        }
        self.dress(key);
    }

    /// It could not any more.
    pub(super) fn fall_out(&mut self, key: &ArrayKey, turn: &Turn) {
        let Some(line) = self.arrays.lines.get_mut(key) else { return };
        line.behind.remove(turn);
        let in_line = line.in_line.remove(turn);
        self.arrays.untold.remove(turn);
        if let Some(ready) = in_line {
            self.unfile_ready(turn, &ready);
        }
        self.dress(key);
    }

    fn file_ready(&mut self, turn: Turn, ready: &Ready) {
        self.file_group(&ready.spec, ready.class, ready.told, turn, ready.since);
    }

    fn unfile_ready(&mut self, turn: &Turn, ready: &Ready) {
        self.unfile_group(&ready.spec, ready.class, ready.told, turn);
    }

    /// Has as many of an array stand in line as may, and they are the first.
    fn dress(&mut self, key: &ArrayKey) {
        while let Some(line) = self.arrays.lines.get_mut(key).filter(|line| line.in_line.len() > line.allowed(key.at_once)) {
            let Some((turn, ready)) = line.in_line.pop_last() else { break };
            self.unfile_ready(&turn, &ready);
            self.arrays.stand_behind(key, turn, ready);
        }
        while let Some(line) = self.arrays.lines.get_mut(key).filter(|line| line.in_line.len() < line.allowed(key.at_once)) {
            let Some((turn, ready)) = line.behind.pop_first() else { break };
            line.in_line.insert(turn, ready.clone());
            self.arrays.untold.remove(&turn);
            self.file_ready(turn, &ready);
        }
        if self.arrays.lines.get(key).is_some_and(Line::is_empty) {
            self.arrays.lines.remove(key);
        }
    }
}
