//! The scheduler's part: the real state and decisions, and the desk from which assignments are written.

use super::mind::{Acted, Look, Mind, Verdict};
use crate::broker::{Answer, Done, Op, Trouble};
use crate::planted::{Planted, bend, misread};
use crate::settings::{PATIENCE_MS, READY_WITHIN_MS};
use footplate_es::{Evolve, Project};
use footplate_events::Recorded;
use footplate_events::messages::Assignment;
use footplate_scheduler_core::{Facts, Policy, Settled, State, Timeline, assignment, assignments, decide};
use footplate_types::{Millis, NodeName};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often every assignment is compared with what stands in the stream.
const COMPARE_EVERY_MS: u64 = 60_000;

/// The scheduler's leading part.
pub(super) struct Scheduling {
    state: State,
    planted: Option<Planted>,
    policy: Policy,
    timeline: Option<Timeline>,
    settled: Option<Settled>,
    /// What stands in the stream for each node, as far as this leader knows: (sequence, as_of).
    standing: BTreeMap<NodeName, (u64, u64)>,
    compare_at: Option<u64>,
    /// When the effects of the last look began.
    acted_at: u64,
}

impl Scheduling {
    pub(super) fn new(planted: Option<Planted>) -> Self {
        let policy = Policy { ready_within: Millis(READY_WITHIN_MS), patience: Millis(PATIENCE_MS), ..Policy::default() };
        Self {
            state: State::default(),
            planted,
            policy,
            timeline: None,
            settled: None,
            standing: BTreeMap::new(),
            compare_at: None,
            acted_at: 0,
        }
    }

    fn write(&self, assignment: Assignment) -> Op {
        match self.standing.get(&assignment.node) {
            Some((sequence, _)) => Op::WriteAssignment { expect: *sequence, assignment: Rc::new(assignment) },
            None => Op::ReadAssignment(assignment.node),
        }
    }

    /// What stands there is known now: writes over it unless it is newer.
    fn write_over(&mut self, node: &NodeName, stands: Option<&(u64, Rc<Assignment>)>) -> Option<Op> {
        let (sequence, as_of) = stands.map_or((0, 0), |(sequence, theirs)| (*sequence, theirs.as_of));
        self.standing.insert(node.clone(), (sequence, as_of));
        let ours = assignment(&self.state, node)?;
        (as_of <= ours.as_of).then(|| self.write(ours))
    }

    /// The whole stream was read: what differs is written again, unless it is newer.
    fn compare(&mut self, all: &[(u64, Rc<Assignment>)]) -> Vec<Op> {
        let by_node = |(sequence, theirs): &(u64, Rc<Assignment>)| (theirs.node.clone(), (*sequence, theirs.clone()));
        let stands: BTreeMap<NodeName, (u64, Rc<Assignment>)> = all.iter().map(by_node).collect();
        self.standing = stands.iter().map(|(node, (sequence, theirs))| (node.clone(), (*sequence, theirs.as_of))).collect();
        self.compare_at = Some(self.acted_at + COMPARE_EVERY_MS);
        let differs = |ours: &Assignment| stands.get(&ours.node).is_none_or(|(_, theirs)| theirs.as_of <= ours.as_of && **theirs != *ours);
        assignments(&self.state).into_values().filter(differs).map(|ours| self.write(ours)).collect()
    }
}

impl Mind for Scheduling {
    fn fold(&mut self, recorded: &Recorded) {
        match misread(self.planted, recorded) {
            Some(told) => self.state.evolve(&told),
            None => self.state.evolve(recorded),
        }
    }

    fn fingerprint(&self) -> String {
        self.state.fingerprint()
    }

    fn term_began(&mut self, _look: &Look) {
        self.timeline = None;
        self.settled = None;
        self.compare_at = None;
        self.standing.clear();
    }

    fn decide(&mut self, look: &Look) -> Verdict {
        let elapsed = Millis(look.elapsed);
        let begin = || self.state.term().map_or_else(Timeline::default, |term| Timeline::begin(term, elapsed));
        let timeline = self.timeline.get_or_insert_with(begin);
        timeline.observe(look.view, elapsed);
        let facts =
            Facts { view: look.view, now: look.now, elapsed, seed: look.view, policy: &self.policy, timeline, settled: self.settled };
        let mut ruling = decide(&self.state, &facts);
        // What the last look of the term found out saves work and must change nothing; once another leads, its words are not our own.
        let leads = self.state.term().is_some_and(|term| term.sequence == look.term);
        let anew = facts.settled.filter(|_| leads).map(|_| decide(&self.state, &Facts { settled: None, ..facts.clone() }));
        let differs = anew.filter(|anew| anew.decisions != ruling.decisions);
        let odd = differs.map(|anew| format!("looked at anew: {:?}; with what was settled: {:?}", anew.decisions, ruling.decisions));
        self.settled = ruling.settled;
        bend(self.planted, &self.state, &mut ruling.decisions);
        Verdict { decisions: ruling.decisions, wake_in: ruling.wake_in.map(|wait| wait.0), odd }
    }

    fn act(&mut self, look: &Look) -> Result<Vec<Op>, ()> {
        self.acted_at = look.elapsed;
        if self.compare_at.is_none_or(|at| look.elapsed >= at) {
            self.compare_at = None;
            return Ok(vec![Op::ReadAssignments]);
        }
        let is_behind = |name: &NodeName, at: u64| self.standing.get(name).is_none_or(|(_, as_of)| *as_of < at);
        let behind = self.state.nodes().iter().filter(|(name, node)| is_behind(name, node.assigned_at));
        Ok(behind.filter_map(|(name, _)| assignment(&self.state, name)).map(|ours| self.write(ours)).collect())
    }

    fn acted(&mut self, op: &Op, answer: &Answer) -> Acted {
        match (op, answer) {
            (Op::ReadAssignments, Ok(Done::Assignments(all))) => Acted::Then(self.compare(all)),
            (Op::ReadAssignment(node), Ok(Done::Assignment(stands))) => {
                let next = self.write_over(node, stands.as_ref());
                Acted::Then(next.into_iter().collect())
            }
            (Op::WriteAssignment { assignment, .. }, Ok(Done::Sequence(sequence))) => {
                self.standing.insert(assignment.node.clone(), (*sequence, assignment.as_of));
                Acted::Done
            }
            (Op::WriteAssignment { assignment, .. }, Err(trouble)) => {
                self.standing.remove(&assignment.node);
                if *trouble == Trouble::Conflict { Acted::Then(vec![Op::ReadAssignment(assignment.node.clone())]) } else { Acted::Failed }
            }
            _ => Acted::Failed,
        }
    }

    fn reconnected(&mut self, _elapsed: u64) {
        self.compare_at = None;
    }

    fn scheduler(&self) -> Option<&State> {
        Some(&self.state)
    }
}
