//! Pending jobs in order: first those for which others are being stopped, then whoever's turn it is ([`super::shares`]).
//!
//! A job that cannot start does not hold back one that can, until it has waited its patience: from then on nodes are kept free for it. What
//! is being stopped counts as coming free for the job that it is stopped for, so nobody else can snatch it, least of all the work that was
//! preempted for it.
//!
//! Jobs that stand or fall together ([`crate::state::GroupKey`]) are looked at until the first of them cannot start: the others are told why all at
//! once, and only those that were told something else before.

use super::board::{Board, Seat, Shape, When};
use super::ground::Ground;
use super::line::Head;
use super::pass::Pass;
use super::shares::Shares;
use super::waiting::{Lack, lack};
use crate::state::{Claim, Job, Stage, Stamp, Wait};
use footplate_events::facts::{Cause, JobEnded, JobPlaced, JobWaiting, MemberPlacement, Outcome, View, WaitReason};
use footplate_types::{Digest, MemberIndex, Rank};
use std::collections::BTreeMap;

/// Ends jobs that have waited longer for their first placement than their own limit.
pub(super) fn expire(pass: &mut Pass<'_>) {
    for (run, limit) in &pass.state.index().expiring {
        let Some(job) = pass.state.jobs().get(run).filter(|_| !pass.is_touched(run) && !pass.is_full()) else { continue };
        let age = pass.facts.age(&limit.since);
        if pass.is_over(age, limit.limit.0) {
            let ended = JobEnded {
                outcome: Outcome::Failed,
                cause: Cause::PendingTooLong,
                attempt: job.last_attempt,
                root: None,
                request: None,
                message: format!("not placed within limits.max_pending ({})", limit.limit),
            };
            pass.say(job, ended, job.submitted.id);
        }
    }
}

/// The placing of one look.
pub(super) struct Round<'a> {
    pub(super) board: Board<'a>,
    pub(super) shares: Shares<'a>,
    /// What is told of shapes that find no room.
    told: BTreeMap<Digest, WaitReason>,
    reservations: usize,
    members: usize,
}

/// What comes of a job's turn.
enum Turned {
    /// It starts, or something is kept for it.
    Served,
    /// It waits, and so does everybody behind it in its group.
    Waits(WaitReason),
}

/// Places what can be placed, preempts for what may preempt, and records why the others wait.
pub(super) fn place(pass: &mut Pass<'_>, ground: Ground) -> Ground {
    let state = pass.state;
    let index = state.index();
    let mut round = Round::new(pass, ground);
    round.tell_shut(pass);
    let job = |turn: &crate::state::Turn| state.jobs().get(&turn.2);
    let mut first: Vec<&Job> = index.first.iter().filter_map(job).collect();
    first.sort_by_key(|job| (std::cmp::Reverse(job.priority), &job.spec.queue, job.submitted.sequence));
    for job in first {
        if pass.is_full() || round.members >= pass.facts.policy.members_max {
            return round.board.ground();
        }
        round.consider_alone(pass, job);
    }
    let mut apart = Vec::new();
    for job in index.apart.iter().filter_map(job) {
        match round.kept_back(pass, job) {
            Some(wait) => round.tell(pass, job, wait),
            None => apart.push(job),
        }
    }
    round.shares.queue_up(apart.into_iter());
    while !pass.is_full() && round.members < pass.facts.policy.members_max {
        let Some(head) = round.shares.pop() else { break };
        round.consider(pass, &head);
    }
    round.board.ground()
}

impl<'a> Round<'a> {
    fn new(pass: &Pass<'a>, ground: Ground) -> Self {
        let state = pass.state;
        let board = Board::new(state, ground);
        let shares = Shares::new(state, &board);
        let mut round = Self { board, shares, told: BTreeMap::new(), reservations: 0, members: 0 };
        // What this very look has stopped is leaving too.
        for job in pass.stopped().filter_map(|run| state.jobs().get(run)) {
            let Some(attempt) = job.attempt().filter(|attempt| !attempt.void && attempt.stop.is_none()) else { continue };
            for member in attempt.members.iter().filter(|member| !member.is_released()) {
                round.shares.leaves(job, &member.placement, true);
                if let Some(at) = round.board.position(&member.placement.node) {
                    round.board.leaves(at, &Claim::of(&member.placement), false);
                }
            }
        }
        round
    }

    /// Jobs of queues that start nothing.
    fn tell_shut(&self, pass: &mut Pass<'a>) {
        let state = pass.state;
        for (_, groups) in state.index().waiting.iter().filter(|(queue, _)| state.is_shut(queue)) {
            for turn in groups.values().flat_map(|group| group.told_otherwise(Wait::QueueHeld)) {
                if pass.is_full() {
                    return;
                }
                if let Some(job) = state.jobs().get(&turn.2) {
                    self.tell(pass, job, WaitReason::QueueHeld);
                }
            }
        }
    }

    /// What keeps a job from being considered at all.
    fn kept_back(&self, pass: &mut Pass<'a>, job: &Job) -> Option<WaitReason> {
        let Stage::Pending { since, backoff, .. } = &job.stage else { return None };
        if job.held {
            Some(WaitReason::Held)
        } else if pass.state.is_shut(&job.spec.queue) {
            Some(WaitReason::QueueHeld)
        } else if backoff.0 > 0 && !pass.is_over(pass.facts.age(since), backoff.0) {
            Some(WaitReason::Backoff)
        } else {
            None
        }
    }

    /// Tells a job why it waits, unless it was told so last.
    fn tell(&self, pass: &mut Pass<'a>, job: &Job, wait: WaitReason) {
        let Stage::Pending { reason, .. } = &job.stage else { return };
        let changed = reason.as_ref().is_none_or(|known| Wait::of(known) != Wait::of(&wait));
        if changed && !pass.is_full() && !pass.is_touched(&job.run) {
            pass.say(job, JobWaiting { reason: wait }, job.latest.id);
        }
    }

    fn consider_alone(&mut self, pass: &mut Pass<'a>, job: &'a Job) {
        if pass.is_touched(&job.run) {
            return;
        }
        let wait = match self.kept_back(pass, job) {
            Some(wait) => wait,
            None => match self.try_to_start(pass, job) {
                Turned::Served => return,
                Turned::Waits(wait) => wait,
            },
        };
        self.tell(pass, job, wait);
    }

    fn consider(&mut self, pass: &mut Pass<'a>, head: &Head<'a>) {
        if pass.is_touched(&head.job.run) {
            return self.shares.go_on(head);
        }
        let Turned::Waits(wait) = self.try_to_start(pass, head.job) else { return self.shares.go_on(head) };
        self.tell(pass, head.job, wait.clone());
        if !head.is_of_group() {
            return;
        }
        let state = pass.state;
        let Some(group) = state.group_of(head.job) else { return };
        // Whoever stands before it has had its own turn.
        for turn in group.told_otherwise(Wait::of(&wait)).filter(|turn| **turn > head.turn) {
            if pass.is_full() {
                return;
            }
            if let Some(job) = state.jobs().get(&turn.2) {
                self.tell(pass, job, wait.clone());
            }
        }
    }

    /// Starts the job, or tells why not.
    fn try_to_start(&mut self, pass: &mut Pass<'a>, job: &'a Job) -> Turned {
        let shape = Shape::of(job);
        let (lacks_now, lacks_coming) = self.shares.lacks_both(&job.spec);
        if lacks_now.is_none()
            && let Some(seats) = self.board.seat(shape, When::Now)
        {
            self.start(pass, job, &seats);
            return Turned::Served;
        }
        if lacks_coming.is_none()
            && let Some(seats) = self.seat_coming(shape)
        {
            let wait = self.wait_for_leavers(pass, job, &seats, lacks_now);
            self.tell(pass, job, wait);
            return Turned::Served;
        }
        if self.preempt_for(pass, job)
            && let Some(seats) = self.seat_coming(shape)
        {
            let _ = self.wait_for_leavers(pass, job, &seats, None);
            self.tell(pass, job, WaitReason::Preempting);
            return Turned::Served;
        }
        if let Some(detail) = lacks_coming {
            return Turned::Waits(WaitReason::Quota { detail });
        }
        let reason = self.no_room(pass, job);
        if let (WaitReason::Resources { .. }, Stage::Pending { since, .. }) = (&reason, &job.stage) {
            self.reserve(pass, job, since);
        }
        Turned::Waits(lacks_now.map_or(reason, |detail| WaitReason::Quota { detail }))
    }

    fn seat_coming(&mut self, shape: Shape<'_>) -> Option<Vec<Seat>> {
        let enough = self.board.fitting_coming(shape) >= shape.nodes();
        if enough { self.board.seat(shape, When::Coming) } else { None }
    }

    /// Why a job finds no room: told to all of its shape in the numbers of the first of them.
    fn no_room(&mut self, pass: &Pass<'_>, job: &Job) -> WaitReason {
        if let Some(told) = self.told.get(&job.class) {
            return told.clone();
        }
        let reason = match lack(pass.state, &mut self.board, Shape::of(job)) {
            Lack::Never(detail) => WaitReason::NoSuchNode { detail },
            Lack::Now(detail) => WaitReason::Resources { detail },
        };
        self.told.insert(job.class, reason.clone());
        reason
    }

    fn start(&mut self, pass: &mut Pass<'a>, job: &'a Job, seats: &[Seat]) {
        let workers = job.spec.workers_per_node();
        let member = |(index, (at, claim)): (usize, &Seat)| MemberPlacement {
            member: MemberIndex(index as u32),
            node: self.board.name(*at).clone(),
            epoch: self.board.node(*at).epoch,
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
        if seats.iter().any(|(at, _)| self.board.plot(*at).preempting) {
            return WaitReason::Preempting;
        }
        if let Some(detail) = lacks_now {
            return WaitReason::Quota { detail };
        }
        match lack(pass.state, &mut self.board, Shape::of(job)) {
            Lack::Never(detail) => WaitReason::NoSuchNode { detail },
            Lack::Now(_) => WaitReason::Resources { detail: "what it takes is being stopped; it starts when that has left".to_owned() },
        }
    }

    /// Keeps nodes free for a job that has waited its patience: those that have most of what it asks.
    fn reserve(&mut self, pass: &mut Pass<'a>, job: &Job, since: &Stamp) {
        let (shape, ask) = (Shape::of(job), &job.spec.resources.per_node);
        let count = shape.nodes();
        if self.reservations >= pass.facts.policy.reservations_max || self.board.fit(shape).eligible() < count {
            return;
        }
        if !pass.is_over(pass.facts.age(since), pass.facts.policy.patience.0) {
            return;
        }
        let mut nodes: Vec<usize> = self.board.fit(shape).all_eligible().collect();
        nodes.retain(|at| !self.board.plot(*at).reserved);
        nodes.sort_by_key(|at| std::cmp::Reverse(self.board.coming(*at).units(self.board.node(*at), ask)));
        if nodes.len() < count {
            return;
        }
        self.reservations += 1;
        for at in &nodes[..count] {
            self.board.reserve(*at);
        }
    }
}
