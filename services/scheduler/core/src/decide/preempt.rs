//! Preemption: whole preemptible gangs leave, with notice and grace, for a job that then fits: less urgent ones of its own queue, and what other queues
//! have borrowed of what is guaranteed to it.
//!
//! Never useless: nobody is stopped unless the job fits afterwards, on nodes and under its quota. Least cost: the lowest priority first,
//! then the youngest; whoever turns out not to be needed is spared again, the dearest first.

use super::board::Room;
use super::pass::Pass;
use super::place::Round;
use crate::state::{Attempt, Claim, Job, State};
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

/// What would be if some attempts left: the rooms of the nodes that they leave, beside the board; the shares move with it, and back.
struct Trial<'b> {
    rooms: BTreeMap<usize, Room>,
    fitting: BTreeSet<usize>,
    job: &'b Job,
    eligible: BTreeSet<usize>,
}

impl<'a> Round<'a> {
    fn would_fit(&self, trial: &Trial<'_>) -> bool {
        trial.fitting.len() >= trial.job.spec.resources.nodes as usize && self.shares.lacks(&trial.job.spec, true).is_none()
    }

    /// An attempt leaves (or stays after all).
    fn shift(&mut self, trial: &mut Trial<'_>, victim: &Job, attempt: &Attempt, leaves: bool) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            let claim = Claim::of(&member.placement);
            self.shares.leaves(victim, &member.placement, leaves);
            let Some(at) = self.board.position(&member.placement.node) else { continue };
            let bench = &self.board.benches[at];
            let room = trial.rooms.entry(at).or_insert_with(|| bench.coming.clone());
            if leaves {
                room.give(bench.node, &claim);
            } else {
                room.take(bench.node, &claim);
            }
            let holds = !bench.reserved && trial.eligible.contains(&at) && room.holds(bench.node, &trial.job.spec.resources.per_node);
            if holds {
                trial.fitting.insert(at);
            } else {
                trial.fitting.remove(&at);
            }
        }
    }

    /// Whether an attempt may be stopped for the job: a less urgent one of its own queue, or what another queue has borrowed of what is the job's queue's.
    fn may_stop(&self, job: &Job, victim: &Job) -> bool {
        if victim.spec.queue == job.spec.queue { victim.priority < job.priority } else { self.shares.may_reclaim(job, victim) }
    }

    /// Whether it would help if the attempt left.
    fn is_helped_by(&self, trial: &Trial<'_>, victim: &Job, attempt: &Attempt) -> bool {
        if self.shares.lacks(&trial.job.spec, true).is_some() && self.shares.share_a_quota(&trial.job.spec.queue, &victim.spec.queue) {
            return true;
        }
        let needed = |at: usize| trial.eligible.contains(&at) && !trial.fitting.contains(&at);
        let living = attempt.members.iter().filter(|member| !member.is_released());
        let mut places = living.filter_map(|member| self.board.position(&member.placement.node));
        places.any(needed)
    }

    /// Stops the attempts that must leave for the job to fit; false, and nobody is stopped, when it would not fit even then.
    pub(super) fn preempt_for(&mut self, pass: &mut Pass<'a>, job: &'a Job, eligible: &[usize]) -> bool {
        // What cannot be asked back is not lent, whoever leaves.
        if eligible.len() < job.spec.resources.nodes as usize || self.shares.unlendable(&job.spec).is_some() {
            return false;
        }
        let all: Vec<(&'a Job, &'a Attempt)> = self.victims.list(pass.state).to_vec();
        let candidates: Vec<(&'a Job, &'a Attempt)> =
            all.into_iter().filter(|(victim, _)| !pass.is_touched(&victim.run) && self.may_stop(job, victim)).collect();
        if candidates.is_empty() {
            return false;
        }
        let Some(chosen) = self.choose(job, eligible, &candidates) else { return false };
        for (victim, attempt) in chosen {
            self.evict(pass, job, victim, attempt);
        }
        // There is more room now than any class was told of.
        self.seatless.clear();
        true
    }

    /// Who leaves; what they hold is taken off the shares already. Nothing is changed when nobody does.
    fn choose(&mut self, job: &'a Job, eligible: &[usize], candidates: &[(&'a Job, &'a Attempt)]) -> Option<Vec<(&'a Job, &'a Attempt)>> {
        let ask = &job.spec.resources.per_node;
        let eligible: BTreeSet<usize> = eligible.iter().copied().collect();
        let holds =
            |at: &usize| !self.board.benches[*at].reserved && self.board.benches[*at].coming.holds(self.board.benches[*at].node, ask);
        let fitting = eligible.iter().copied().filter(holds).collect();
        let mut trial = Trial { rooms: BTreeMap::new(), fitting, job, eligible };
        let mut chosen = Vec::new();
        for (victim, attempt) in candidates {
            if self.would_fit(&trial) {
                break;
            }
            // What was chosen before may have brought a queue back to what is its own.
            if self.may_stop(job, victim) && self.is_helped_by(&trial, victim, attempt) {
                self.shift(&mut trial, victim, attempt, true);
                chosen.push((*victim, *attempt));
            }
        }
        let fits = self.would_fit(&trial);
        let mut needed = Vec::new();
        while let Some((victim, attempt)) = chosen.pop() {
            self.shift(&mut trial, victim, attempt, false);
            if fits && !self.would_fit(&trial) {
                self.shift(&mut trial, victim, attempt, true);
                needed.push((victim, attempt));
            }
        }
        fits.then_some(needed)
    }

    fn why(&self, job: &Job, victim: &Job) -> String {
        if victim.spec.queue == job.spec.queue {
            format!("makes room for run {} of priority {}", job.run, job.priority)
        } else {
            format!("gives back to queue {} what is its own, for run {}", job.spec.queue, job.run)
        }
    }

    fn evict(&mut self, pass: &mut Pass<'a>, job: &'a Job, victim: &'a Job, attempt: &'a Attempt) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            let claim = Claim::of(&member.placement);
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
            message: self.why(job, victim),
        };
        // Inside the victim's own chain, because of what the preemptor asked.
        pass.say(victim, stop, job.latest.id);
    }
}
