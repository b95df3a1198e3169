//! Preemption: whole preemptible gangs of a lower priority leave, with notice and grace, for a job that then fits.
//!
//! Never useless: nobody is stopped unless the job fits afterwards, on nodes and under its quota. Least cost: the lowest priority first,
//! then the youngest; whoever turns out not to be needed is spared again, the dearest first.

use super::board::Room;
use super::pass::Pass;
use super::place::{Purse, Round};
use crate::state::{Attempt, Claim, Job, Queue, State};
use footplate_events::facts::{JobStopRequested, StopCause};
use std::collections::{BTreeMap, BTreeSet};

/// Attempts that may be preempted, in the order in which they would go. Found once a look, when first asked for.
#[derive(Default)]
pub(super) struct Victims<'a>(Option<Vec<(&'a Job, &'a Attempt)>>);

impl<'a> Victims<'a> {
    fn list(&mut self, state: &'a State) -> &[(&'a Job, &'a Attempt)] {
        self.0.get_or_insert_with(|| {
            let may_go = |(job, attempt): &(&Job, &Attempt)| job.spec.preemptible && attempt.stop.is_none() && !attempt.is_released();
            let mut list: Vec<(&Job, &Attempt)> = state.active().filter(may_go).collect();
            list.sort_by_key(|(job, attempt)| (job.priority, std::cmp::Reverse(attempt.placed.sequence)));
            list
        })
    }
}

/// What would be if some attempts left.
struct Trial<'b> {
    rooms: BTreeMap<usize, Room>,
    fitting: BTreeSet<usize>,
    purse: Purse,
    job: &'b Job,
    queue: &'b Queue,
    eligible: &'b BTreeSet<usize>,
}

impl Trial<'_> {
    fn fits(&self) -> bool {
        let quota = Queue { holding: self.purse.coming, ..self.queue.clone() };
        self.fitting.len() >= self.job.spec.resources.nodes as usize && quota.quota_lacks(self.job.gpus(), self.job.slots()).is_none()
    }

    /// An attempt leaves (or stays after all).
    fn shift(&mut self, round: &Round<'_>, victim: &Job, attempt: &Attempt, leaves: bool) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            let claim = Claim::of(&member.placement);
            if victim.spec.queue == self.job.spec.queue {
                if leaves { self.purse.coming.remove(&claim) } else { self.purse.coming.add(&claim) }
            }
            let Some(at) = round.board.position(&member.placement.node) else { continue };
            let bench = &round.board.benches[at];
            let room = self.rooms.entry(at).or_insert_with(|| bench.coming.clone());
            if leaves {
                room.give(bench.node, &claim)
            } else {
                room.take(bench.node, &claim)
            }
            let holds = !bench.reserved && self.eligible.contains(&at) && room.holds(bench.node, &self.job.spec.resources.per_node);
            if holds {
                self.fitting.insert(at);
            } else {
                self.fitting.remove(&at);
            }
        }
    }

    /// Whether it would help if the attempt left.
    fn is_helped_by(&self, round: &Round<'_>, victim: &Job, attempt: &Attempt) -> bool {
        let quota = Queue { holding: self.purse.coming, ..self.queue.clone() };
        let under_quota = quota.quota_lacks(self.job.gpus(), self.job.slots()).is_none();
        if !under_quota && victim.spec.queue == self.job.spec.queue {
            return true;
        }
        let needed = |at: usize| self.eligible.contains(&at) && !self.fitting.contains(&at);
        let living = attempt.members.iter().filter(|member| !member.is_released());
        let mut places = living.filter_map(|member| round.board.position(&member.placement.node));
        places.any(needed)
    }
}

impl<'a> Round<'a> {
    /// Stops the attempts that must leave for the job to fit; false, and nobody is stopped, when it would not fit even then.
    pub(super) fn preempt_for(&mut self, pass: &mut Pass<'a>, job: &'a Job, queue: &Queue, eligible: &[usize]) -> bool {
        if eligible.len() < job.spec.resources.nodes as usize {
            return false;
        }
        let candidates: Vec<(&'a Job, &'a Attempt)> = self
            .victims
            .list(pass.state)
            .iter()
            .copied()
            .take_while(|(victim, _)| victim.priority < job.priority)
            .filter(|(victim, _)| !pass.is_touched(&victim.run))
            .collect();
        if candidates.is_empty() {
            return false;
        }
        let Some(chosen) = self.choose(job, queue, eligible, &candidates) else { return false };
        for (victim, attempt) in chosen {
            self.evict(pass, job, victim, attempt);
        }
        true
    }

    fn choose(
        &self,
        job: &'a Job,
        queue: &Queue,
        eligible: &[usize],
        candidates: &[(&'a Job, &'a Attempt)],
    ) -> Option<Vec<(&'a Job, &'a Attempt)>> {
        let ask = &job.spec.resources.per_node;
        let eligible: BTreeSet<usize> = eligible.iter().copied().collect();
        let holds =
            |at: &usize| !self.board.benches[*at].reserved && self.board.benches[*at].coming.holds(self.board.benches[*at].node, ask);
        let purse = self.purses.get(&job.spec.queue).copied().unwrap_or_default();
        let fitting = eligible.iter().copied().filter(holds).collect();
        let mut trial = Trial { rooms: BTreeMap::new(), fitting, purse, job, queue, eligible: &eligible };
        let mut chosen = Vec::new();
        for (victim, attempt) in candidates {
            if trial.fits() {
                break;
            }
            if trial.is_helped_by(self, victim, attempt) {
                trial.shift(self, victim, attempt, true);
                chosen.push((*victim, *attempt));
            }
        }
        if !trial.fits() {
            return None;
        }
        let mut needed = Vec::new();
        while let Some((victim, attempt)) = chosen.pop() {
            trial.shift(self, victim, attempt, false);
            if !trial.fits() {
                trial.shift(self, victim, attempt, true);
                needed.push((victim, attempt));
            }
        }
        Some(needed)
    }

    fn evict(&mut self, pass: &mut Pass<'a>, job: &'a Job, victim: &'a Job, attempt: &'a Attempt) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            let claim = Claim::of(&member.placement);
            self.purses.entry(victim.spec.queue.clone()).or_default().coming.remove(&claim);
            if let Some(at) = self.board.position(&member.placement.node) {
                let bench = &mut self.board.benches[at];
                bench.coming.give(bench.node, &claim);
                bench.preempting = true;
            }
        }
        let stop = JobStopRequested {
            attempt: attempt.number,
            cause: StopCause::Preempted,
            grace: victim.spec.stop.grace,
            request: None,
            message: format!("makes room for run {} of priority {}", job.run, job.priority),
        };
        // Inside the victim's own chain, because of what the preemptor asked.
        pass.say(victim, stop, job.latest.id);
    }
}
