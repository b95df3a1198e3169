//! Pending jobs in order: first those for which others are being stopped, then whoever's turn it is ([`super::shares`]).
//!
//! A job that cannot start does not hold back one that can, until it has waited its patience: from then on nodes are kept free for it. What
//! is being stopped counts as coming free for the job that it is stopped for, so nobody else can snatch it, least of all the work that was
//! preempted for it.

use super::board::{Board, Seat, When};
use super::pass::Pass;
use super::preempt::Victims;
use super::shares::Shares;
use super::waiting::{Lack, lack};
use crate::state::{Job, Stage, Stamp};
use footplate_events::facts::{Cause, JobEnded, JobPlaced, JobWaiting, MemberPlacement, Outcome, StopCause, View, WaitReason};
use footplate_types::{Digest, MemberIndex, QueueName, Rank, RunId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Ends jobs that have waited longer for their first placement than their own limit.
pub(super) fn expire(pass: &mut Pass<'_>) {
    for key in pass.state.pending() {
        let Some(job) = pass.state.jobs().get(&key.run) else { continue };
        let Stage::Pending { since, .. } = &job.stage else { continue };
        let limit = job.spec.limits.max_pending;
        if limit.0 == 0 || job.last_attempt.0 > 0 || pass.is_touched(&job.run) || pass.is_full() {
            continue;
        }
        let age = pass.facts.age(since);
        if pass.is_over(age, limit.0) {
            let ended = JobEnded {
                outcome: Outcome::Failed,
                cause: Cause::PendingTooLong,
                attempt: job.last_attempt,
                root: None,
                request: None,
                message: format!("not placed within limits.max_pending ({limit})"),
            };
            pass.say(job, ended, job.submitted.id);
        }
    }
}

/// The placing of one look.
pub(super) struct Round<'a> {
    pub(super) board: Board<'a>,
    pub(super) shares: Shares<'a>,
    pub(super) victims: Victims<'a>,
    /// Benches that could take a member, by class.
    eligible: BTreeMap<Digest, Rc<Vec<usize>>>,
    /// Classes for which there are no seats, neither now nor when everything that is being stopped has left.
    pub(super) seatless: BTreeSet<Digest>,
    /// Classes that cannot be placed for a queue by this look, and why.
    blocked: BTreeMap<(Digest, &'a QueueName), WaitReason>,
    reservations: usize,
    members: usize,
}

/// Places what can be placed, preempts for what may preempt, and records why the others wait.
pub(super) fn place(pass: &mut Pass<'_>) {
    if pass.state.pending().is_empty() || pass.is_full() {
        return;
    }
    let mut round = Round::new(pass);
    let state = pass.state;
    let jobs = || state.pending().iter().filter_map(|key| state.jobs().get(&key.run));
    let is_first = |job: &&Job| matches!(&job.stage, Stage::Pending { reason: Some(WaitReason::Preempting), .. });
    let mut first: VecDeque<&Job> = jobs().filter(is_first).collect();
    round.shares.queue_up(jobs().filter(|job| !is_first(job)));
    while !pass.is_full() && round.members < pass.facts.policy.members_max {
        let Some(job) = first.pop_front().or_else(|| round.shares.pop()) else { return };
        if !pass.is_touched(&job.run) {
            round.consider(pass, job);
        }
    }
}

impl<'a> Round<'a> {
    fn new(pass: &Pass<'a>) -> Self {
        let state = pass.state;
        let stopping = |run: &RunId| -> Option<bool> {
            let attempt = state.jobs().get(run)?.attempt()?;
            let preempted = attempt.stop.as_ref().map(|stop| stop.cause == StopCause::Preempted);
            preempted.or_else(|| pass.is_stopped(run).then_some(false))
        };
        let board = Board::new(state, stopping);
        let mut shares = Shares::new(state, &board);
        for (job, attempt) in state.active().filter(|(job, attempt)| !attempt.void && stopping(&job.run).is_some()) {
            for member in attempt.members.iter().filter(|member| !member.is_released()) {
                shares.leaves(job, &member.placement, true);
            }
        }
        Self {
            board,
            shares,
            victims: Victims::default(),
            eligible: BTreeMap::new(),
            seatless: BTreeSet::new(),
            blocked: BTreeMap::new(),
            reservations: 0,
            members: 0,
        }
    }

    fn consider(&mut self, pass: &mut Pass<'a>, job: &'a Job) {
        let Stage::Pending { since, backoff, reason } = &job.stage else { return };
        let wait = if job.held {
            Some(WaitReason::Held)
        } else if pass.state.is_shut(&job.spec.queue) {
            Some(WaitReason::QueueHeld)
        } else if backoff.0 > 0 && !pass.is_over(pass.facts.age(since), backoff.0) {
            Some(WaitReason::Backoff)
        } else {
            self.try_to_start(pass, job, since)
        };
        let Some(wait) = wait else { return };
        let changed = reason.as_ref().is_none_or(|known| std::mem::discriminant(known) != std::mem::discriminant(&wait));
        if changed && !pass.is_full() {
            pass.say(job, JobWaiting { reason: wait }, job.latest.id);
        }
    }

    /// Starts the job, or tells why not.
    fn try_to_start(&mut self, pass: &mut Pass<'a>, job: &'a Job, since: &Stamp) -> Option<WaitReason> {
        let (lacks_now, lacks_coming) = (self.shares.lacks(&job.spec, false), self.shares.lacks(&job.spec, true));
        if let Some(reason) = self.blocked.get(&(job.class, &job.spec.queue)).filter(|_| lacks_coming.is_none()) {
            return Some(lacks_now.map_or_else(|| reason.clone(), |detail| WaitReason::Quota { detail }));
        }
        let eligible = self.eligible_for(job);
        let seated = !self.seatless.contains(&job.class);
        if seated
            && lacks_now.is_none()
            && let Some(seats) = self.board.seat(&eligible, &job.spec, &job.avoid, When::Now)
        {
            self.start(pass, job, &seats);
            return None;
        }
        if seated && lacks_coming.is_none() {
            match self.board.seat(&eligible, &job.spec, &job.avoid, When::Coming) {
                Some(seats) => return Some(self.wait_for_leavers(pass, job, &seats, lacks_now)),
                None => _ = self.seatless.insert(job.class),
            }
        }
        if self.preempt_for(pass, job, &eligible)
            && let Some(seats) = self.board.seat(&eligible, &job.spec, &job.avoid, When::Coming)
        {
            let _ = self.wait_for_leavers(pass, job, &seats, None);
            return Some(WaitReason::Preempting);
        }
        if let Some(detail) = lacks_coming {
            return Some(WaitReason::Quota { detail });
        }
        let reason = match lack(pass.state, &self.board, &job.spec) {
            Lack::Never(detail) => WaitReason::NoSuchNode { detail },
            Lack::Now(detail) => {
                self.reserve(pass, job, &eligible, since);
                WaitReason::Resources { detail }
            }
        };
        self.blocked.insert((job.class, &job.spec.queue), reason.clone());
        Some(lacks_now.map_or(reason, |detail| WaitReason::Quota { detail }))
    }

    fn eligible_for(&mut self, job: &Job) -> Rc<Vec<usize>> {
        let board = &self.board;
        self.eligible.entry(job.class).or_insert_with(|| Rc::new(board.eligible(&job.spec))).clone()
    }

    fn start(&mut self, pass: &mut Pass<'a>, job: &'a Job, seats: &[Seat]) {
        let workers = job.spec.workers_per_node();
        let member = |(index, (at, claim)): (usize, &Seat)| MemberPlacement {
            member: MemberIndex(index as u32),
            node: self.board.benches[*at].name.clone(),
            epoch: self.board.benches[*at].node.epoch,
            gpus: claim.gpus.clone(),
            slots: claim.slots.clone(),
            cpus: claim.cpus,
            memory_bytes: claim.memory_bytes,
            first_rank: Rank(index as u32 * workers),
            workers,
        };
        let members: Vec<MemberPlacement> = seats.iter().enumerate().map(member).collect();
        self.board.take(seats);
        self.shares.starts(job);
        self.members += members.len();
        let facts = pass.facts;
        let view = View { sequence: facts.view, now: facts.now, seed: facts.seed, policy: facts.policy.name.clone() };
        let placed = JobPlaced { attempt: job.last_attempt.next(), members, ready_within: facts.policy.ready_within, view };
        pass.say(job, placed, job.latest.id);
    }

    /// Keeps the seats for the job until those who hold them have left.
    fn wait_for_leavers(&mut self, pass: &Pass<'_>, job: &Job, seats: &[Seat], lacks_now: Option<String>) -> WaitReason {
        self.board.take(seats);
        self.shares.keeps(job);
        if seats.iter().any(|(at, _)| self.board.benches[*at].preempting) {
            return WaitReason::Preempting;
        }
        if let Some(detail) = lacks_now {
            return WaitReason::Quota { detail };
        }
        match lack(pass.state, &self.board, &job.spec) {
            Lack::Never(detail) => WaitReason::NoSuchNode { detail },
            Lack::Now(_) => WaitReason::Resources { detail: "what it takes is being stopped; it starts when that has left".to_owned() },
        }
    }

    /// Keeps nodes free for a job that has waited its patience: those that have most of what it asks.
    fn reserve(&mut self, pass: &mut Pass<'a>, job: &Job, eligible: &[usize], since: &Stamp) {
        let count = job.spec.resources.nodes as usize;
        let ask = &job.spec.resources.per_node;
        if self.reservations >= pass.facts.policy.reservations_max || eligible.len() < count {
            return;
        }
        if !pass.is_over(pass.facts.age(since), pass.facts.policy.patience.0) {
            return;
        }
        let board = &self.board;
        let mut nodes: Vec<usize> = eligible.iter().copied().filter(|at| !board.benches[*at].reserved).collect();
        nodes.sort_by_key(|at| std::cmp::Reverse(board.benches[*at].coming.units(board.benches[*at].node, ask)));
        if nodes.len() < count {
            return;
        }
        self.reservations += 1;
        for at in &nodes[..count] {
            self.board.benches[*at].reserved = true;
        }
    }
}
