//! Reservations: nodes that are kept for the first of those who have waited their patience, and who may use them meanwhile.
//!
//! This is EASY backfilling (Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001) on nodes with names. A job that has waited long is given the
//! nodes that will have room for it the soonest, by the limits of what runs there; the last of them says when it starts at the latest. Until then
//! another job may stand on such a node if its own limit is over before that, or if the room that it takes is not needed then. Where something runs
//! without a limit nobody knows when it ends, and its node is kept for nobody else.
//!
//! Nothing is remembered: whoever stands first holds a reservation in every look, on nodes that are chosen anew.

use super::board::{Seat, Shape, When};
use super::pass::Pass;
use super::place::Round;
use super::room::Room;
use crate::facts::Facts;
use crate::state::{Claim, Group, Job, Node, State, Turn, Waiting};
use footplate_events::facts::PerNode;
use footplate_types::RunId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A node that is kept for a job.
#[derive(Debug)]
pub(super) struct Hold {
    /// In how many milliseconds the job starts at the latest; absent when nobody knows.
    within: Option<u64>,
    /// What is to be had on the node then.
    then: Room,
    /// What the job takes of it. Absent for a gang of roles, of which several members may stand there: nobody may stand beside it.
    ask: Option<PerNode>,
}

/// Reservations of one look.
#[derive(Debug, Default)]
pub(super) struct Holds<'a> {
    by_plot: BTreeMap<usize, Hold>,
    by_run: BTreeMap<RunId, Vec<usize>>,
    /// What stands on a node with an end, the first to end first: of those that were looked at.
    ends: BTreeMap<usize, Vec<(u64, &'a Claim)>>,
}

/// How much of what is asked is coming on a node, most first, and which node it is.
type Promising = (Reverse<u16>, usize);

/// In how many milliseconds a node has room for a member, how much of what is asked is coming there anyway, and which node it is.
type Soonest = (u64, Reverse<u16>, usize);

/// How many jobs behind one that waits may be tried beside the reservations.
const BEHIND_MOST: usize = 64;

/// Nodes that are compared for each that is wanted, and beyond that.
pub(super) const COMPARED: (usize, usize) = (4, 64);

/// Racks that are compared for a job that must stand in one.
const RACKS_COMPARED: usize = 4;

impl Holds<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_plot.is_empty()
    }
}

/// In how many milliseconds a job's attempt is over at the latest; none when it has no limit.
fn left(facts: &Facts<'_>, job: &Job) -> Option<u64> {
    let limit = job.spec.limits.max_duration.0;
    let attempt = job.attempt().filter(|_| limit > 0)?;
    let age = attempt.launched.as_ref().map_or(0, |launch| facts.age(&launch.stamp));
    Some(limit.saturating_sub(age).saturating_add(job.spec.stop.grace.0))
}

impl<'a> Round<'a> {
    /// Keeps nodes for the first of those who have waited their patience: where they can stand now, or will have room the soonest.
    pub(super) fn reserve_first(&mut self, pass: &mut Pass<'a>) {
        let (state, policy) = (pass.state, &pass.facts.policy);
        if policy.reservations_max == 0 {
            return;
        }
        let mut is_due = |group: &Group| {
            let age = group.first().map(|(_, waiting)| pass.facts.age(&waiting.since));
            age.is_some_and(|age| pass.is_over(age, policy.patience.0))
        };
        self.shares.queue_up(|_, _, group, _| is_due(group), std::iter::empty());
        while self.holds.by_run.len() < policy.reservations_max {
            let Some(head) = self.shares.pop() else { return };
            let job = head.job;
            let shape = Shape::of(job);
            // Who could not start if everybody left keeps nothing from anybody.
            if !self.room_of(shape).open || pass.is_touched(&job.run) {
                continue;
            }
            // Beside what was promised to those before it. Where its quota is what it lacks and nodes are not, that is kept for it.
            if self.shares.lacks(&job.spec, true).is_some() {
                self.promise(policy.reservations_max, job);
                continue;
            }
            // Whoever stands behind it must not be given what it takes when its turn comes.
            match self.board.seat(shape, When::Now).or_else(|| self.seat_coming(shape)) {
                Some(seats) => {
                    self.promise(policy.reservations_max, job);
                    self.keep(job, Some(0), seats.into_iter().map(|(at, _)| (at, self.board.coming(at).clone())).collect());
                }
                None => self.reserve(pass.facts, state, job),
            }
        }
    }

    /// Keeps what a job asks under the quotas above it, for as many jobs as may hold reservations.
    fn promise(&mut self, most: usize, job: &Job) {
        if self.shares.promises() < most {
            self.shares.promise(job);
        }
    }

    /// Keeps those nodes for a job that will have room for it the soonest.
    fn reserve(&mut self, facts: &Facts<'_>, state: &State, job: &Job) {
        let shape = Shape::of(job);
        if shape.has_roles() {
            return self.reserve_roles(facts, state, job);
        }
        let count = shape.nodes();
        // What of it is coming on each node that is not kept already: those that have most are looked at more closely.
        let compared = if shape.in_one_rack() { usize::MAX } else { count * COMPARED.0 + COMPARED.1 };
        let mut nodes = self.board.most_coming(shape, compared);
        if shape.in_one_rack() {
            nodes = self.of_best_racks(nodes, shape);
        }
        if nodes.len() < count {
            return;
        }
        let mut soonest: Vec<Soonest> =
            nodes.into_iter().map(|(units, at)| (self.free_in(facts, state, at, shape).unwrap_or(u64::MAX), units, at)).collect();
        soonest.sort_unstable();
        if shape.in_one_rack() {
            let Some(rack) = self.soonest_rack(&soonest, count) else { return };
            soonest.retain(|(_, _, at)| self.board.plot(*at).rack == rack);
        }
        soonest.truncate(count);
        let within = soonest.last().map(|(within, _, _)| *within).filter(|within| *within < u64::MAX);
        let then = |(_, _, at): &Soonest| {
            let mut then = self.board.coming(*at).clone();
            let node = self.board.node(*at);
            for (left, claim) in self.holds.ends.get(at).into_iter().flatten() {
                if within.is_some_and(|within| *left <= within) {
                    then.give(node, claim);
                }
            }
            (*at, then)
        };
        let rooms = soonest.iter().map(then).collect();
        self.keep(job, within, rooms);
    }

    /// The nodes of those racks, among the ones with enough nodes, that have most of what is asked.
    fn of_best_racks(&self, nodes: Vec<Promising>, shape: Shape<'_>) -> Vec<Promising> {
        let mut racks: BTreeMap<u32, (u64, Vec<Promising>)> = BTreeMap::new();
        for (units, at) in nodes {
            let rack = racks.entry(self.board.plot(at).rack).or_default();
            rack.0 += u64::from(units.0);
            rack.1.push((units, at));
        }
        let first = |nodes: &[Promising]| nodes.first().map(|(_, at)| *at);
        let mut racks: Vec<(u64, Vec<Promising>)> = racks.into_values().filter(|(_, nodes)| nodes.len() >= shape.nodes()).collect();
        racks.sort_by(|one, other| other.0.cmp(&one.0).then(first(&one.1).cmp(&first(&other.1))));
        racks.into_iter().take(RACKS_COMPARED).flat_map(|(_, nodes)| nodes).collect()
    }

    /// The rack that has so many nodes the soonest, of a list in the order of when.
    fn soonest_rack(&self, soonest: &[Soonest], count: usize) -> Option<u32> {
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        soonest.iter().find_map(|(_, _, at)| {
            let rack = self.board.plot(*at).rack;
            let nodes = seen.entry(rack).or_default();
            *nodes += 1;
            (*nodes >= count).then_some(rack)
        })
    }

    /// Keeps these nodes for a job, with what is to be had on each when it starts.
    pub(super) fn keep(&mut self, job: &Job, within: Option<u64>, rooms: Vec<(usize, Room)>) {
        let plots = rooms.iter().map(|(at, _)| *at).collect();
        for (at, then) in rooms {
            let ask = job.parts.is_empty().then(|| job.spec.resources.per_node.clone());
            self.holds.by_plot.insert(at, Hold { within, then, ask });
            self.board.keep(at, true);
        }
        self.holds.by_run.insert(job.run, plots);
    }

    /// In how many milliseconds a member fits on a node at the latest; none when nobody knows.
    pub(super) fn free_in(&mut self, facts: &Facts<'_>, state: &State, at: usize, shape: Shape<'_>) -> Option<u64> {
        let (node, ask) = (self.board.node(at), &shape.spec.resources.per_node);
        // Others are compared with the same nodes.
        let ends = self.holds.ends.entry(at).or_insert_with(|| ends(facts, state, node));
        let mut room = self.board.coming(at).clone();
        if room.holds(node, ask) {
            return Some(0);
        }
        for (left, claim) in ends {
            room.give(node, claim);
            if room.holds(node, ask) {
                return Some(*left);
            }
        }
        None
    }

    /// Nodes that are kept for a job are its own while it is looked at.
    pub(super) fn lift(&mut self, job: &Job, lifted: bool) {
        for at in self.holds.by_run.get(&job.run).into_iter().flatten() {
            self.board.keep(*at, !lifted);
        }
        self.shares.lift(job, lifted);
    }

    /// Nodes are kept for a job no longer: it has got its place.
    pub(super) fn free_holds(&mut self, job: &Job) {
        self.shares.fulfil(job);
        for at in self.holds.by_run.remove(&job.run).into_iter().flatten() {
            self.holds.by_plot.remove(&at);
        }
    }

    /// Whether a job may stand on a node that is kept for another: it is gone by then, or leaves enough. With the longest stay that is spoken of.
    fn may_stand_beside(&self, at: usize, shape: Shape<'_>, stay: Option<u64>) -> bool {
        // Its own are not kept for another.
        let Some(hold) = self.holds.by_plot.get(&at).filter(|_| self.board.is_kept(at)) else { return false };
        let (node, ask) = (self.board.node(at), &shape.spec.resources.per_node);
        let free = &self.board.plot(at).free;
        if hold.within.is_none() || !free.holds(node, ask) {
            return false;
        }
        let leaves_enough = || {
            let mut then = hold.then.clone();
            then.take(node, &free.pick(node, ask));
            hold.ask.as_ref().is_some_and(|ask| then.holds(node, ask))
        };
        stay.is_some_and(|stay| hold.within.is_some_and(|within| stay <= within)) || leaves_enough()
    }

    /// Whether a job of a shape could stand beside the reservations if it were short enough.
    pub(super) fn could_stand_beside(&mut self, shape: Shape<'_>) -> bool {
        // A gang of roles takes no node that is kept for another.
        if self.holds.is_empty() || shape.has_roles() {
            return false;
        }
        let fitting = self.board.fitting_all(shape, When::Now);
        let more =
            self.holds.by_plot.keys().filter(|at| self.board.is_eligible(shape, **at) && self.may_stand_beside(**at, shape, Some(0)));
        fitting + more.count() >= shape.nodes()
    }

    /// Seats for a job beside the reservations, which the job does not delay.
    pub(super) fn seat_beside(&mut self, job: &Job) -> Option<Vec<Seat>> {
        if self.holds.is_empty() || !job.parts.is_empty() {
            return None;
        }
        let (shape, stay) = (Shape::of(job), job.spec.stay());
        let fitting = self.board.fitting_all(shape, When::Now);
        let may = |at: &usize| self.board.is_eligible(shape, *at) && self.may_stand_beside(*at, shape, stay);
        let more: Vec<usize> = self.holds.by_plot.keys().copied().filter(may).collect();
        if more.is_empty() || fitting + more.len() < shape.nodes() {
            return None;
        }
        self.board.seat_also(shape, When::Now, &more)
    }

    /// A job starts on these seats: what it will still hold then is not over any more.
    pub(super) fn stands_beside(&mut self, job: &Job, seats: &[Seat]) {
        let stay = job.spec.stay();
        for (at, claim) in seats {
            let Some(hold) = self.holds.by_plot.get_mut(at) else { continue };
            if stay.zip(hold.within).is_none_or(|(stay, within)| stay > within) {
                hold.then.take(self.board.node(*at), claim);
            }
        }
    }

    /// Jobs behind one that waits which are short enough to stand beside the reservations.
    pub(super) fn short_ones_behind(&mut self, state: &'a State, job: &'a Job, group: &Group) -> Vec<&'a Job> {
        if !self.could_stand_beside(Shape::of(job)) {
            return Vec::new();
        }
        let longest = self.holds.by_plot.values().filter_map(|hold| hold.within).max().unwrap_or(0);
        let is_short = |(_, waiting): &(Turn, Waiting)| waiting.stay.is_some_and(|stay| stay <= longest);
        let short = group.behind(&job.turn(), BEHIND_MOST).into_iter().filter(is_short);
        short.filter_map(|(turn, _)| state.jobs().get(&turn.2)).collect()
    }
}

/// What stands on a node with an end, the first to end first.
fn ends<'n>(facts: &Facts<'_>, state: &State, node: &'n Node) -> Vec<(u64, &'n Claim)> {
    let left = |run: &RunId| {
        let job = state.jobs().get(run)?;
        // What is being stopped is coming already.
        job.attempt().filter(|attempt| attempt.stop.is_none())?;
        left(facts, job)
    };
    let mut ends: Vec<(u64, &Claim)> = node.claims.iter().filter_map(|(key, claim)| Some((left(&key.run)?, claim))).collect();
    ends.sort_by_key(|(left, _)| *left);
    ends
}
