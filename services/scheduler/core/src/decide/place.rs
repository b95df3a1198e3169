//! Pending jobs in order: first those for which others are being stopped, then whoever's turn it is ([`super::shares`]).
//!
//! A job that cannot start does not hold back one that can, until it has waited its patience: from then on nodes are kept free for it. What
//! is being stopped counts as coming free for the job that it is stopped for, so nobody else can snatch it, least of all the work that was
//! preempted for it.
//!
//! Jobs that stand or fall together ([`crate::state::GroupKey`]) are looked at until the first of them cannot start: the others are told why all at
//! once, and only those that were told something else before.

use super::alarms::Alarms;
use super::array;
use super::board::{Board, Seat, Shape, When};
use super::ground::Ground;
use super::hold::Holds;
use super::line::Head;
use super::pass::Pass;
use super::shares::{Place, Shares};
use super::waiting::{Lack, lack};
use crate::state::{Claim, Group, GroupKey, Job, Stage, Wait};
use footplate_events::facts::{Cause, JobEnded, JobPlaced, JobWaiting, MemberPlacement, Outcome, View, WaitReason};
use footplate_types::{Digest, MemberIndex, Rank};
use std::collections::BTreeMap;

/// Ends jobs that have waited longer for their first placement than their own limit.
pub(super) fn expire(pass: &mut Pass<'_>, alarms: &mut Alarms) {
    let (over, next) = alarms.ring(&pass.state.index().expiring, pass.facts);
    pass.wake_in(next);
    for run in over {
        let Some(job) = pass.state.jobs().get(&run).filter(|_| !pass.is_touched(&run) && !pass.is_full()) else { continue };
        let ended = JobEnded {
            outcome: Outcome::Failed,
            cause: Cause::PendingTooLong,
            attempt: job.last_attempt,
            root: None,
            request: None,
            message: format!("not placed within limits.max_pending ({})", job.spec.limits.max_pending),
        };
        pass.say(job, ended, job.submitted.id);
    }
}

/// The placing of one look.
pub(super) struct Round<'a> {
    pub(super) board: Board<'a>,
    pub(super) shares: Shares<'a>,
    /// What is told of shapes that find no room.
    told: BTreeMap<Digest, WaitReason>,
    /// What room there was for a shape when it was asked first.
    rooms: BTreeMap<Digest, RoomOf>,
    pub(super) holds: Holds<'a>,
    members: usize,
}

/// What room there is for a shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomOf {
    /// Now.
    now: bool,
    /// When everything that is being stopped has left.
    coming: bool,
    /// There would be if everybody left.
    pub(super) open: bool,
    /// There never would be, on all nodes that ever registered.
    never: bool,
}

/// What comes of a job's turn.
enum Turned {
    /// It starts, or something is kept for it.
    Served,
    /// It waits, and so does everybody behind it in its group: why, with the words where it is for a quota.
    Waits(Wait, Option<String>),
}

/// Places what can be placed, preempts for what may preempt, and records why the others wait.
pub(super) fn place<'a>(pass: &mut Pass<'a>, board: Board<'a>) -> Ground {
    let state = pass.state;
    let index = state.index();
    let mut round = Round::new(pass, board);
    round.tell_shut(pass);
    round.tell_behind(pass);
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
    let mut beside = array::Beside::default();
    for job in index.apart.iter().filter_map(job) {
        match round.kept_back(pass, job).or_else(|| beside.kept_back(index, job)) {
            Some(wait) => round.tell(pass, job, wait),
            None => apart.push(job),
        }
    }
    round.reserve_first(pass);
    round.queue_up(pass, apart);
    while !pass.is_full() && round.members < pass.facts.policy.members_max {
        let Some(head) = round.shares.pop() else { break };
        round.consider(pass, &head);
    }
    round.board.ground()
}

impl<'a> Round<'a> {
    fn new(pass: &Pass<'a>, board: Board<'a>) -> Self {
        let state = pass.state;
        let shares = Shares::new(state, &board);
        let mut round = Self { board, shares, told: BTreeMap::new(), rooms: BTreeMap::new(), holds: Holds::default(), members: 0 };
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

    /// What room there was for a shape when it was asked first in this look.
    pub(super) fn room_of(&mut self, shape: Shape<'_>) -> RoomOf {
        if let Some(room) = self.rooms.get(&shape.class) {
            return *room;
        }
        let count = shape.nodes();
        let room = RoomOf {
            now: self.board.fitting(shape, When::Now) >= count,
            coming: self.board.fitting(shape, When::Coming) >= count,
            open: self.board.open_to(shape) >= count && (!shape.has_roles() || self.board.is_open_to_roles(shape)),
            never: self.board.suiting(shape) < count,
        };
        self.rooms.insert(shape.class, room);
        room
    }

    /// Lines up whom something may come of: a place, a preemption, or another reason than was told. Everybody else waits for what he was told.
    fn queue_up(&mut self, pass: &Pass<'a>, apart: Vec<&'a Job>) {
        let state = pass.state;
        let mut rooms: BTreeMap<Digest, (RoomOf, bool)> = BTreeMap::new();
        for (key, group) in state.index().waiting.values().flatten() {
            if rooms.contains_key(&key.class) {
                continue;
            }
            let Some(job) = group.next(None).and_then(|turn| state.jobs().get(&turn.2)) else { continue };
            let shape = Shape::of(job);
            let room = self.room_of(shape);
            // Nodes that are kept may have made it less.
            let beside = self.could_stand_beside(shape);
            let now = self.board.fitting(shape, When::Now) >= group.nodes;
            rooms.insert(key.class, (RoomOf { now, ..room }, beside));
        }
        let all = &state.index().stoppable;
        let wanted = |shares: &Shares<'a>, key: &GroupKey, group: &Group, place: Place| {
            let Some((room, beside)) = rooms.get(&key.class) else { return true };
            let (lacks_now, lacks_coming) = shares.group_lacks(group, key.preemptible, place);
            if (!lacks_now && (room.now || *beside)) || (!lacks_coming && room.coming) {
                return true;
            }
            let less_urgent = || {
                let first = all.get(shares.queue_at(place)).and_then(|own| own.first());
                first.is_some_and(|(priority, _, _)| *priority < group.priority())
            };
            if room.open && (less_urgent() || shares.may_ask_back(place, group.asked)) {
                return true;
            }
            let wait = match (lacks_coming || lacks_now, room.never) {
                (true, _) => Wait::Quota,
                (false, true) => Wait::NoSuchNode,
                (false, false) => Wait::Resources,
            };
            group.told_otherwise(wait).next().is_some()
        };
        self.shares.queue_up(wanted, apart.into_iter());
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
    pub(super) fn tell(&self, pass: &mut Pass<'a>, job: &Job, wait: WaitReason) {
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
        if let Some(wait) = self.kept_back(pass, job) {
            return self.tell(pass, job, wait);
        }
        let Turned::Waits(wait, quota) = self.try_to_start(pass, job) else { return };
        if job.told() != Some(wait) {
            let reason = self.words(pass, job, quota);
            self.tell(pass, job, reason);
        }
    }

    fn consider(&mut self, pass: &mut Pass<'a>, head: &Head<'a>) {
        if pass.is_touched(&head.job.run) {
            return self.shares.go_on(head);
        }
        let Turned::Waits(wait, quota) = self.try_to_start(pass, head.job) else { return self.shares.go_on(head) };
        let state = pass.state;
        let group = if head.is_of_group() { state.group_of(head.job) } else { None };
        let is_news = head.job.told() != Some(wait) || group.is_some_and(|group| group.told_otherwise(wait).next().is_some());
        // The words take a walk over all nodes: only for who is told them.
        let reason = is_news.then(|| self.words(pass, head.job, quota));
        if let Some(reason) = &reason {
            self.tell(pass, head.job, reason.clone());
        }
        let Some(group) = group else { return };
        for job in self.short_ones_behind(state, head.job, group) {
            if pass.is_full() {
                return;
            }
            if !pass.is_touched(&job.run)
                && self.shares.lacks(&job.spec, false).is_none()
                && let Some(seats) = self.seat_beside(job)
            {
                self.start(pass, job, &seats);
            }
        }
        let Some(reason) = reason else { return };
        // Whoever stands before it has had its own turn.
        for turn in group.told_otherwise(wait).filter(|turn| **turn > head.turn) {
            if pass.is_full() {
                return;
            }
            if let Some(job) = state.jobs().get(&turn.2) {
                self.tell(pass, job, reason.clone());
            }
        }
    }

    /// Starts the job, or tells why not.
    fn try_to_start(&mut self, pass: &mut Pass<'a>, job: &'a Job) -> Turned {
        self.lift(job, true);
        let turned = self.try_to_place(pass, job);
        match turned {
            Turned::Served => self.free_holds(job),
            Turned::Waits(..) => self.lift(job, false),
        }
        turned
    }

    fn try_to_place(&mut self, pass: &mut Pass<'a>, job: &'a Job) -> Turned {
        let shape = Shape::of(job);
        let (lacks_now, lacks_coming) = self.shares.lacks_both(&job.spec);
        if lacks_now.is_none()
            && let Some(seats) = self.board.seat(shape, When::Now).or_else(|| self.seat_beside(job))
        {
            self.start(pass, job, &seats);
            return Turned::Served;
        }
        if lacks_coming.is_none()
            && let Some(seats) = self.seat_coming(shape)
        {
            let wait = self.wait_for_leavers(job, &seats, lacks_now);
            self.tell(pass, job, wait);
            return Turned::Served;
        }
        if self.preempt_for(pass, job)
            && let Some(seats) = self.seat_coming(shape)
        {
            let _ = self.wait_for_leavers(job, &seats, None);
            self.tell(pass, job, WaitReason::Preempting);
            return Turned::Served;
        }
        if let Some(detail) = lacks_coming.or(lacks_now) {
            return Turned::Waits(Wait::Quota, Some(detail));
        }
        let never = self.board.suiting(shape) < shape.nodes();
        Turned::Waits(if never { Wait::NoSuchNode } else { Wait::Resources }, None)
    }

    fn words(&mut self, pass: &Pass<'_>, job: &Job, quota: Option<String>) -> WaitReason {
        match quota {
            Some(detail) => WaitReason::Quota { detail },
            None => {
                // What is kept for it is not kept from it.
                self.lift(job, true);
                let reason = self.no_room(pass, job);
                self.lift(job, false);
                reason
            }
        }
    }

    pub(super) fn seat_coming(&mut self, shape: Shape<'_>) -> Option<Vec<Seat>> {
        self.board.seat(shape, When::Coming)
    }

    /// Why a job finds no room: told to all of its shape in the numbers of the first of them.
    fn no_room(&mut self, pass: &Pass<'_>, job: &Job) -> WaitReason {
        if let Some(told) = self.told.get(&job.class) {
            return told.clone();
        }
        // What was found when the nodes stood exactly as they do holds still. Which of them are kept is found anew in every look.
        let keeps_nothing = self.board.keeps_nothing();
        let known = self.board.ground.told(&job.class).filter(|_| keeps_nothing);
        let reason = known.unwrap_or_else(|| match lack(pass.state, &mut self.board, Shape::of(job)) {
            Lack::Never(detail) => WaitReason::NoSuchNode { detail },
            Lack::Now(detail) => WaitReason::Resources { detail },
        });
        if keeps_nothing {
            self.board.ground.tell(job.class, &reason);
        }
        self.told.insert(job.class, reason.clone());
        reason
    }

    fn start(&mut self, pass: &mut Pass<'a>, job: &'a Job, seats: &[Seat]) {
        // Role by role, ranks run through.
        let mut asks = job.spec.asks().flat_map(|asked| std::iter::repeat_n(asked, asked.nodes as usize));
        let mut next = 0;
        let member = |(index, (at, claim)): (usize, &Seat)| {
            let asked = asks.next();
            let (first_rank, workers) = (next, asked.map_or(0, |asked| asked.workers_per_node()));
            next += workers;
            MemberPlacement {
                member: MemberIndex(index as u32),
                node: self.board.name(*at).clone(),
                epoch: self.board.node(*at).epoch,
                gpus: claim.gpus.clone(),
                gpu_profile: asked.and_then(|asked| asked.per_node.gpu_profile.clone()),
                gpu_share: claim.gpu_share,
                gpu_memory_bytes: claim.gpu_memory_bytes,
                slots: claim.slots.clone(),
                cpus: claim.cpus,
                memory_bytes: claim.memory_bytes,
                role: asked.and_then(|asked| asked.role).map(str::to_owned),
                first_rank: Rank(first_rank),
                workers,
            }
        };
        let members: Vec<MemberPlacement> = seats.iter().enumerate().map(member).collect();
        self.board.start(seats);
        self.stands_beside(job, seats);
        self.shares.starts(job);
        self.members += members.len();
        let facts = pass.facts;
        let view = View { sequence: facts.view, now: facts.now, seed: facts.seed, policy: facts.policy.name.clone() };
        let placed = JobPlaced { attempt: job.last_attempt.next(), members, ready_within: facts.policy.ready_within, view };
        pass.say(job, placed, job.latest.id);
    }

    /// Keeps the seats for the job until those who hold them have left.
    fn wait_for_leavers(&mut self, job: &Job, seats: &[Seat], lacks_now: Option<String>) -> WaitReason {
        self.board.take(seats);
        self.shares.keeps(job);
        // For whom others were stopped stays first, wherever it is seated now: or two would take turns at it, and what was freed be snatched.
        if job.told() == Some(Wait::Preempting) || seats.iter().any(|(at, _)| self.board.plot(*at).preempting) {
            return WaitReason::Preempting;
        }
        if let Some(detail) = lacks_now {
            return WaitReason::Quota { detail };
        }
        WaitReason::Resources { detail: "what it takes is being stopped; it starts when that has left".to_owned() }
    }
}
