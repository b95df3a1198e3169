//! Preemption: whole preemptible gangs leave, with notice and grace, for a job that then fits: less urgent ones of its own queue, and what other queues
//! have borrowed of what is guaranteed to it.
//!
//! Never useless: nobody is stopped unless the job fits afterwards, on nodes and under its quota. Least cost: in a queue the lowest priority first; among
//! equals, and between queues, whoever loses least by it: the time of all its GPUs (or slots) since its last checkpoint, times the preemptions that it has
//! suffered already. Whoever turns out not to be needed is spared again, the dearest first. Work that has not run as long as it was promised
//! (`limits.min_run`) stays.

use super::board::{Shape, Together, When};
use super::pass::Pass;
use super::place::Round;
use super::room::Room;
use crate::facts::Facts;
use crate::state::{Attempt, Budget, Claim, Holding, Job, Stoppable};
use footplate_events::facts::{JobStopRequested, StopCause};
use footplate_types::GpuMilli;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// An attempt that may be stopped.
pub(super) type Victim<'a> = (&'a Job, &'a Attempt);

/// What would be if some attempts left: the rooms of the nodes that they leave, beside the board; the shares move with it, and back.
struct Trial<'b> {
    shape: Shape<'b>,
    job: &'b Job,
    /// What the nodes would have, and whether a member would fit there.
    rooms: BTreeMap<usize, (Room, bool)>,
    /// The nodes on which a member would fit.
    fitting: Together,
}

/// What it costs to stop an attempt: what is lost, then how young it is.
type Price = (u128, Reverse<u64>);

fn price(facts: &Facts<'_>, victim: &Job, attempt: &Attempt) -> Price {
    let since = attempt.saved.as_ref().or(attempt.launched.as_ref().map(|launch| &launch.stamp));
    let lost = u128::from(since.map_or(0, |stamp| facts.age(stamp)))
        * u128::from(victim.gpu_milli().max(victim.slots().saturating_mul(GpuMilli::WHOLE.0)));
    (lost * u128::from(1 + victim.spent(Budget::Preempted)), Reverse(attempt.placed.sequence))
}

/// Whether an attempt has run as long as it was promised; when it has not, looks again when it has. One that was not launched loses nothing.
fn may_go(pass: &mut Pass<'_>, victim: &Job, attempt: &Attempt) -> bool {
    let promised = victim.spec.limits.min_run.0;
    let launched = attempt.launched.as_ref().filter(|_| promised > 0);
    launched.is_none_or(|launch| pass.is_over(pass.facts.age(&launch.stamp), promised))
}

impl<'a> Round<'a> {
    fn would_fit(&self, trial: &Trial<'_>) -> bool {
        trial.fitting.most() >= trial.shape.nodes() && self.shares.lacks(&trial.job.spec, true).is_none()
    }

    /// An attempt leaves (or stays after all).
    fn shift(&mut self, trial: &mut Trial<'_>, victim: &Job, attempt: &Attempt, leaves: bool) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            self.shares.leaves(victim, &member.placement, leaves);
        }
        self.clear(trial, attempt, leaves);
    }

    /// The rooms that an attempt leaves, or takes again.
    fn clear(&self, trial: &mut Trial<'_>, attempt: &Attempt, leaves: bool) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            let claim = Claim::of(&member.placement);
            let Some(at) = self.board.position(&member.placement.node) else { continue };
            let node = self.board.node(at);
            let entry = trial.rooms.entry(at);
            let (room, fits) = entry.or_insert_with(|| (self.board.coming(at).clone(), self.board.fits(trial.shape, at)));
            if leaves {
                room.give(node, &claim);
            } else {
                room.take(node, &claim);
            }
            let fits_now = self.board.may_stand(trial.shape, at) && room.holds(node, &trial.shape.spec.resources.per_node);
            if fits_now != *fits {
                trial.fitting.count(self.board.plot(at).rack, fits_now);
                *fits = fits_now;
            }
        }
    }

    /// Whether an attempt may be stopped for the job: a less urgent one of its own queue, or what another queue has borrowed of what is the job's queue's.
    pub(super) fn may_stop(&self, job: &Job, victim: &Job) -> bool {
        if victim.spec.queue == job.spec.queue { victim.priority < job.priority } else { self.shares.may_reclaim(job, victim) }
    }

    /// Whether it would help if the attempt left.
    fn is_helped_by(&self, trial: &Trial<'_>, victim: &Job, attempt: &Attempt) -> bool {
        if self.shares.lacks(&trial.job.spec, true).is_some() && self.shares.share_a_quota(&trial.job.spec.queue, &victim.spec.queue) {
            return true;
        }
        let fits = |at: usize| trial.rooms.get(&at).map_or_else(|| self.board.fits(trial.shape, at), |(_, fits)| *fits);
        let needed = |at: usize| self.board.may_stand(trial.shape, at) && !fits(at);
        let living = attempt.members.iter().filter(|member| !member.is_released());
        let mut places = living.filter_map(|member| self.board.position(&member.placement.node));
        places.any(needed)
    }

    /// Attempts that may be stopped for the job as things stand, in the order in which they would go.
    fn candidates(&self, pass: &mut Pass<'a>, job: &Job) -> Vec<Victim<'a>> {
        let (state, own) = (pass.state, &job.spec.queue);
        let all = &state.index().stoppable;
        let less_urgent = all.get(own).into_iter().flatten().take_while(|(priority, _, _)| *priority < job.priority).collect();
        let mut queues: Vec<Vec<&Stoppable>> = vec![less_urgent];
        if self.shares.place(own).is_some_and(|place| self.shares.may_ask_back(place, Holding::asked(&job.spec))) {
            let lending = all.iter().filter(|(queue, _)| *queue != own && self.shares.may_reclaim_from(job, queue));
            queues.extend(lending.map(|(_, attempts)| attempts.iter().collect()));
        }
        // Of each queue whoever would go last comes first, so that the next to go is taken off the end.
        let mut lines: Vec<Vec<(Price, Victim<'a>)>> = Vec::new();
        for queue in queues {
            let mut line = Vec::with_capacity(queue.len());
            for (_, _, run) in queue {
                let Some((victim, attempt)) = state.jobs().get(run).and_then(|job| Some((job, job.attempt()?))) else { continue };
                if !pass.is_touched(run) && may_go(pass, victim, attempt) {
                    line.push((price(pass.facts, victim, attempt), (victim, attempt)));
                }
            }
            line.sort_by_key(|(price, (victim, _))| Reverse((victim.priority, *price)));
            lines.push(line);
        }
        // A priority counts in its own queue alone: between queues the price decides.
        let first = |(at, line): (usize, &Vec<(Price, Victim<'a>)>)| Some(Reverse((line.last()?.0, at)));
        let mut next: BinaryHeap<Reverse<(Price, usize)>> = lines.iter().enumerate().filter_map(first).collect();
        let mut candidates = Vec::new();
        while let Some(Reverse((_, at))) = next.pop() {
            candidates.extend(lines[at].pop().map(|(_, victim)| victim));
            next.extend(lines[at].last().map(|(price, _)| Reverse((*price, at))));
        }
        candidates
    }

    /// Stops the attempts that must leave for the job to fit; false, and nobody is stopped, when it would not fit even then.
    pub(super) fn preempt_for(&mut self, pass: &mut Pass<'a>, job: &'a Job) -> bool {
        let shape = Shape::of(job);
        // What cannot be asked back is not lent, whoever leaves.
        if self.board.eligible(shape) < shape.nodes() || self.shares.unlendable(&job.spec).is_some() {
            return false;
        }
        let candidates = self.candidates(pass, job);
        if candidates.is_empty() {
            return false;
        }
        let chosen = if shape.has_roles() { self.choose_for_roles(job, &candidates) } else { self.choose(job, &candidates) };
        let Some(chosen) = chosen else { return false };
        for (victim, attempt) in chosen {
            self.evict(pass, job, victim, attempt);
        }
        true
    }

    /// Who leaves; what they hold is taken off the shares already. Nothing is changed when nobody does.
    fn choose(&mut self, job: &'a Job, candidates: &[Victim<'a>]) -> Option<Vec<Victim<'a>>> {
        let shape = Shape::of(job);
        let fitting = self.board.fitting_together(shape, When::Coming);
        let trial = || Trial { shape, job, rooms: BTreeMap::new(), fitting: fitting.clone() };
        // Mostly nobody's leaving helps; that is seen by the rooms alone.
        let mut all = trial();
        candidates.iter().for_each(|(_, attempt)| self.clear(&mut all, attempt, true));
        if all.fitting.most() < shape.nodes() {
            return None;
        }
        let mut trial = trial();
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
                self.board.leaves(at, &claim, true);
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
