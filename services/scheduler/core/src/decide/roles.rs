//! Seats for a gang of roles: all of it or nothing, on one board.
//!
//! The hardest role is seated first, in what the others leave the next; where that comes to no end, other orders are tried, and nodes that the others could
//! not use anyway come first; at last it is searched, with steps taken back. The search gives up after so many steps: seats for a gang of many roles on many
//! nodes that it would just fill may not be found.

use super::board::{Board, Seat, Shape, When};
use super::fit::{Score, score};
use super::hold::COMPARED;
use super::place::Round;
use super::preempt::Victim;
use super::room::Room;
use super::waiting::{Lack, never, now};
use crate::facts::Facts;
use crate::state::{Claim, Job, Part, State};
use footplate_events::facts::JobSpec;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Racks that are tried one by one before the gang is spread over several; all of them where it must stand in one.
const RACKS_TRIED: usize = 8;

/// Places that are tried for a gang in all before the search for its seats gives up.
const STEPS_MOST: usize = 4_000;

/// What is to be had: the room of each node that is not as the board says.
pub(super) type Rooms = BTreeMap<usize, Room>;

/// What room is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// What is free now.
    Now,
    /// That, and what is being stopped.
    Coming,
    /// What would be healthy and free on open nodes if everybody left.
    Open,
    /// Every node that ever registered, empty and well.
    Empty,
}

/// One role and where its members could stand.
struct Candidates<'p> {
    shape: Shape<'p>,
    places: Vec<usize>,
}

impl Board<'_> {
    /// How many members can be counted on of a gang of roles: of each role no more than it has.
    pub(super) fn of_roles(&mut self, shape: Shape<'_>, of: impl Fn(&mut Self, Shape<'_>) -> usize) -> usize {
        shape.parts.iter().map(|part| shape.of_part(part)).map(|part| of(self, part).min(part.nodes())).sum()
    }

    /// Whether all roles could stand beside each other if everybody left.
    pub(super) fn is_open_to_roles(&mut self, shape: Shape<'_>) -> bool {
        self.seat_roles(shape, As::Open, &Rooms::new()).is_some()
    }

    /// Seats for every role, or none: role by role in the order of the specification, and within a role in that of rack and name. `beside`: the rooms of
    /// nodes that are not as the board says.
    pub(super) fn seat_roles(&mut self, shape: Shape<'_>, room: As, beside: &Rooms) -> Option<Vec<Seat>> {
        let mut roles = Vec::with_capacity(shape.parts.len());
        for part in shape.parts {
            let shape = shape.of_part(part);
            self.fit(shape);
            let places: Vec<usize> = (0..self.nodes.len())
                .filter(|at| match beside.get(at) {
                    Some(there) => self.could_take(shape, *at, room) && there.holds(self.node(*at), &shape.spec.resources.per_node),
                    None => self.takes(shape, *at, room),
                })
                .collect();
            if places.len() < shape.nodes() {
                return None;
            }
            roles.push(Candidates { shape, places });
        }
        let racks = self.racks_for(&roles);
        let mut left = STEPS_MOST;
        for rack in &racks {
            let within: Vec<Candidates<'_>> = roles.iter().map(|role| self.in_rack(role, *rack)).collect();
            if let Some(seats) = self.seat_among(&within, room, beside, &mut left) {
                return Some(seats);
            }
        }
        if shape.in_one_rack() { None } else { self.seat_among(&roles, room, beside, &mut left) }
    }

    fn could_take(&self, shape: Shape<'_>, at: usize, room: As) -> bool {
        match room {
            As::Now | As::Coming => self.may_stand(shape, at),
            As::Open => self.is_eligible(shape, at),
            As::Empty => self.ground.known(&shape.class).is_some_and(|fit| fit.suits(at)),
        }
    }

    /// Whether a member fits on a node as the board says, by what [`Board::fit`] found last.
    fn takes(&self, shape: Shape<'_>, at: usize, room: As) -> bool {
        match room {
            As::Now => self.fits_at(shape, When::Now, at),
            As::Coming => self.fits_at(shape, When::Coming, at),
            As::Open => self.is_eligible(shape, at) && self.could_hold(shape, at),
            As::Empty => {
                self.could_take(shape, at, room)
                    && Room::of_shape(&self.node(at).shape).holds(self.node(at), &shape.spec.resources.per_node)
            }
        }
    }

    fn room_at(&self, at: usize, room: As, beside: &Rooms) -> Room {
        let as_it_is = || match room {
            As::Now => self.plot(at).free.clone(),
            As::Coming => self.plot(at).coming.clone(),
            As::Open => Room::empty_node(self.node(at)),
            As::Empty => Room::of_shape(&self.node(at).shape),
        };
        beside.get(&at).cloned().unwrap_or_else(as_it_is)
    }

    fn in_rack<'p>(&self, role: &Candidates<'p>, rack: u32) -> Candidates<'p> {
        let places = role.places.iter().copied().filter(|at| self.plot(*at).rack == rack).collect();
        Candidates { shape: role.shape, places }
    }

    /// Racks in which each role alone has room, the tightest first.
    fn racks_for(&self, roles: &[Candidates<'_>]) -> Vec<u32> {
        let mut racks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (role, candidates) in roles.iter().enumerate() {
            for at in candidates.places.iter().filter(|at| self.node(**at).shape.rack.is_some()) {
                racks.entry(self.plot(*at).rack).or_insert_with(|| vec![0; roles.len()])[role] += 1;
            }
        }
        racks.retain(|_, counts| counts.iter().zip(roles).all(|(count, role)| *count >= role.shape.nodes()));
        let mut racks: Vec<(usize, u32)> = racks.into_iter().map(|(rack, counts)| (counts.into_iter().sum(), rack)).collect();
        racks.sort_unstable();
        let must = roles.iter().any(|role| role.shape.spec.placement.same_rack);
        let most = if must { racks.len() } else { RACKS_TRIED };
        racks.into_iter().take(most).map(|(_, rack)| rack).collect()
    }

    fn seat_among(&self, roles: &[Candidates<'_>], room: As, beside: &Rooms, left: &mut usize) -> Option<Vec<Seat>> {
        let ask = |role: usize| &roles[role].shape.spec.resources.per_node;
        let mut hardest: Vec<usize> = (0..roles.len()).collect();
        let size = |role: usize| (ask(role).gpus, ask(role).slots, ask(role).cpus, ask(role).memory_bytes);
        hardest.sort_by_key(|role| (Reverse(size(*role)), roles[*role].places.len()));
        let mut scarcest: Vec<usize> = (0..roles.len()).collect();
        scarcest.sort_by_key(|role| (roles[*role].places.len().saturating_sub(roles[*role].shape.nodes()), Reverse(size(*role))));
        let orders = [&hardest, &scarcest];
        let tries = [false, true].into_iter().flat_map(|spare| orders.map(|order| (order, spare)));
        let seats = tries.into_iter().find_map(|(order, spare)| self.seat_in_order(roles, order, spare, room, beside));
        seats.or_else(|| {
            orders.iter().find_map(|order| {
                // One order does not use up what the other may need.
                let most = left.div_ceil(2);
                let mut search = Search { board: self, roles, order, room, beside, rooms: Rooms::new(), seats: Vec::new(), left: most };
                let found = search.seat(0, 0, 0);
                *left -= most - search.left;
                found.then(|| search.in_order())
            })
        })
    }

    /// Seats role after role. `spare`: first on nodes that the fewest of the roles behind it could use.
    fn seat_in_order(&self, roles: &[Candidates<'_>], order: &[usize], spare: bool, room: As, beside: &Rooms) -> Option<Vec<Seat>> {
        let mut rooms: Rooms = BTreeMap::new();
        let mut seats: Vec<Vec<Seat>> = vec![Vec::new(); roles.len()];
        for (turn, role) in order.iter().enumerate() {
            let Candidates { shape, places } = &roles[*role];
            let ask = &shape.spec.resources.per_node;
            let wanted_by_others: BTreeMap<usize, usize> = if spare { wanted(roles, &order[turn + 1..]) } else { BTreeMap::new() };
            let mut choice: Vec<(usize, Score, usize)> = Vec::with_capacity(places.len());
            for at in places {
                let there = rooms.get(at).cloned().unwrap_or_else(|| self.room_at(*at, room, beside));
                let score = score(&there, self.nodes[*at], shape.spec, shape.avoid);
                if score != Score::MAX {
                    choice.push((wanted_by_others.get(at).copied().unwrap_or(0), score, *at));
                }
            }
            if choice.len() < shape.nodes() {
                return None;
            }
            choice.sort_unstable();
            let mut chosen: Vec<usize> = choice.into_iter().take(shape.nodes()).map(|(_, _, at)| at).collect();
            chosen.sort_by_key(|at| (&self.node(*at).shape.rack, *at));
            for at in chosen {
                let there = rooms.entry(at).or_insert_with(|| self.room_at(at, room, beside));
                let claim = there.pick(self.node(at), ask);
                there.take(self.node(at), &claim);
                seats[*role].push((at, claim));
            }
        }
        Some(seats.into_iter().flatten().collect())
    }
}

/// A search for seats that takes back what leads nowhere, until so many places were tried.
struct Search<'s, 'b, 'p> {
    board: &'s Board<'b>,
    roles: &'s [Candidates<'p>],
    order: &'s [usize],
    room: As,
    beside: &'s Rooms,
    /// What is left of the nodes that were touched.
    rooms: Rooms,
    /// Of which role, and where.
    seats: Vec<(usize, Seat)>,
    left: usize,
}

impl Search<'_, '_, '_> {
    /// Seats the role `turn` from its `member` on, at its candidates from `from` on, and all roles behind it.
    fn seat(&mut self, turn: usize, member: usize, from: usize) -> bool {
        let Some(role) = self.order.get(turn).copied() else { return true };
        let Candidates { shape, places } = &self.roles[role];
        if member == shape.nodes() {
            return self.seat(turn + 1, 0, 0);
        }
        let ask = &shape.spec.resources.per_node;
        for (next, at) in places.iter().copied().enumerate().skip(from) {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            let node = self.board.node(at);
            let before = self.rooms.get(&at).cloned().unwrap_or_else(|| self.board.room_at(at, self.room, self.beside));
            if !before.holds(node, ask) {
                continue;
            }
            let (claim, mut there) = (before.pick(node, ask), before.clone());
            there.take(node, &claim);
            self.rooms.insert(at, there);
            self.seats.push((role, (at, claim)));
            if self.seat(turn, member + 1, next + 1) {
                return true;
            }
            self.seats.pop();
            self.rooms.insert(at, before);
        }
        false
    }

    /// The seats, role by role in the order of the specification, within a role in that of rack and name.
    fn in_order(mut self) -> Vec<Seat> {
        self.seats.sort_by_key(|(role, (at, _))| (*role, &self.board.node(*at).shape.rack, *at));
        self.seats.into_iter().map(|(_, seat)| seat).collect()
    }
}

/// How many of these roles could use each node.
fn wanted(roles: &[Candidates<'_>], of: &[usize]) -> BTreeMap<usize, usize> {
    let mut wanted = BTreeMap::new();
    for at in of.iter().flat_map(|role| &roles[*role].places) {
        *wanted.entry(*at).or_default() += 1;
    }
    wanted
}

/// What keeps a gang of roles from being placed: the first role that finds no room alone, or that they do not beside each other.
pub(super) fn lack_of_roles(state: &State, board: &mut Board<'_>, shape: Shape<'_>) -> Lack {
    let of_part = |part: &Part, told: String| format!("role {}: {told}", part.name);
    for part in shape.parts {
        let alone = shape.of_part(part);
        if board.suiting(alone) < alone.nodes() {
            let why = never(state, &part.spec).unwrap_or_else(|| "no rack has enough nodes that could take a member".to_owned());
            return Lack::Never(of_part(part, why));
        }
    }
    for part in shape.parts {
        let alone = shape.of_part(part);
        if board.fitting(alone, When::Now) < alone.nodes() {
            return Lack::Now(of_part(part, now(state, board, alone)));
        }
    }
    Lack::Now("each of its roles has room alone, and not all of them have beside each other".to_owned())
}

/// Why no set of the known nodes could ever take a gang of roles; `None` when one could.
pub(super) fn never_of_roles(state: &State, spec: &JobSpec) -> Option<String> {
    let parts = Part::all(spec, &[]);
    for part in &parts {
        if let Some(why) = never(state, &part.spec) {
            return Some(format!("role {}: {why}", part.name));
        }
    }
    let seats = Board::of(state).seat_roles(Shape::of_spec(spec, &parts), As::Empty, &Rooms::new());
    let rack = if spec.placement.same_rack { " in one rack" } else { "" };
    seats.is_none().then(|| format!("each of its roles could stand here alone, and not all of them beside each other{rack}"))
}

impl<'a> Round<'a> {
    /// Keeps nodes for a gang of roles, as many as it has members: for each role those that will have room for it the soonest. Where there are not so many,
    /// members of several roles have to share some, and nobody else gets any that one of them could use.
    pub(super) fn reserve_roles(&mut self, facts: &Facts<'_>, state: &State, job: &Job) {
        let shape = Shape::of(job);
        let mut parts: Vec<Shape<'_>> = shape.parts.iter().map(|part| shape.of_part(part)).collect();
        parts.sort_by_key(|part| Reverse((part.spec.resources.per_node.gpus, part.spec.resources.per_node.slots)));
        let rack = if shape.in_one_rack() { self.rack_for(&parts) } else { None };
        let mut kept: BTreeMap<usize, Room> = BTreeMap::new();
        let mut within = Some(0);
        for part in parts {
            self.board.fit(part);
            // As many more as the roles before it may have taken.
            let most = if rack.is_some() { usize::MAX } else { (part.nodes() + kept.len()) * COMPARED.0 + COMPARED.1 };
            let coming = self.board.most_coming(part, most);
            let could = |at: &usize| !kept.contains_key(at) && rack.is_none_or(|rack| self.board.plot(*at).rack == rack);
            let those: Vec<usize> = coming.into_iter().map(|(_, at)| at).filter(could).collect();
            let mut soonest: Vec<(u64, usize)> =
                those.into_iter().map(|at| (self.free_in(facts, state, at, part).unwrap_or(u64::MAX), at)).collect();
            soonest.sort_unstable();
            soonest.truncate(part.nodes());
            let last = soonest.last().map_or(u64::MAX, |(last, _)| *last);
            let is_known = soonest.len() == part.nodes() && last < u64::MAX;
            within = within.filter(|_| is_known).map(|within: u64| within.max(last));
            kept.extend(soonest.into_iter().map(|(_, at)| (at, self.board.coming(at).clone())));
        }
        self.keep(job, within, kept.into_iter().collect());
    }

    /// The rack whose nodes have most of what the roles ask, of those in which each role alone could stand.
    fn rack_for(&mut self, parts: &[Shape<'_>]) -> Option<u32> {
        let mut racks: BTreeMap<u32, (u64, Vec<usize>)> = BTreeMap::new();
        for (role, part) in parts.iter().enumerate() {
            self.board.fit(*part);
            for at in 0..self.board.nodes.len() {
                if self.board.may_stand(*part, at) && self.board.could_hold(*part, at) {
                    let rack = racks.entry(self.board.plot(at).rack).or_insert_with(|| (0, vec![0; parts.len()]));
                    rack.0 += u64::from(self.board.coming(at).units(self.board.node(at), &part.spec.resources.per_node));
                    rack.1[role] += 1;
                }
            }
        }
        racks.retain(|_, (_, counts)| counts.iter().zip(parts).all(|(count, part)| *count >= part.nodes()));
        racks.into_iter().max_by_key(|(rack, (units, _))| (*units, Reverse(*rack))).map(|(rack, _)| rack)
    }

    /// Who leaves for a gang of roles: of the candidates in their order ever more at a time, until it fits; then whoever is not needed is spared, the dearest
    /// first. What they hold is taken off the shares already. Nothing is changed when nobody leaves.
    pub(super) fn choose_for_roles(&mut self, job: &'a Job, candidates: &[Victim<'a>]) -> Option<Vec<Victim<'a>>> {
        let shape = Shape::of(job);
        let all = self.rooms_without(candidates);
        self.board.seat_roles(shape, As::Coming, &all)?;
        let mut chosen: Vec<Victim<'a>> = Vec::new();
        let (mut fits, mut batch) = (false, 1);
        for candidate in candidates {
            if self.may_stop(job, candidate.0) && self.is_of_use(job, candidate) {
                self.leave(candidate, true);
                chosen.push(*candidate);
                if chosen.len() == batch {
                    fits = self.would_seat(job, &chosen);
                    batch *= 2;
                }
            }
            if fits {
                break;
            }
        }
        fits = fits || self.would_seat(job, &chosen);
        let mut at = chosen.len();
        while at > 0 {
            at -= 1;
            let spared = chosen.remove(at);
            self.leave(&spared, false);
            if fits && !self.would_seat(job, &chosen) {
                self.leave(&spared, true);
                chosen.insert(at, spared);
            }
        }
        fits.then_some(chosen)
    }

    fn leave(&mut self, (victim, attempt): &Victim<'a>, leaves: bool) {
        for member in attempt.members.iter().filter(|member| !member.is_released()) {
            self.shares.leaves(victim, &member.placement, leaves);
        }
    }

    /// The rooms of the nodes that these leave.
    fn rooms_without(&self, victims: &[Victim<'a>]) -> Rooms {
        let mut rooms = Rooms::new();
        for member in victims.iter().flat_map(|(_, attempt)| &attempt.members).filter(|member| !member.is_released()) {
            if let Some(at) = self.board.position(&member.placement.node) {
                let room = rooms.entry(at).or_insert_with(|| self.board.coming(at).clone());
                room.give(self.board.node(at), &Claim::of(&member.placement));
            }
        }
        rooms
    }

    fn would_seat(&mut self, job: &Job, gone: &[Victim<'a>]) -> bool {
        let rooms = self.rooms_without(gone);
        self.shares.lacks(&job.spec, true).is_none() && self.board.seat_roles(Shape::of(job), As::Coming, &rooms).is_some()
    }

    /// Whether it could help if an attempt left: it holds what a quota of both counts, or stands where a member could.
    fn is_of_use(&self, job: &Job, (victim, attempt): &Victim<'a>) -> bool {
        if self.shares.lacks(&job.spec, true).is_some() && self.shares.share_a_quota(&job.spec.queue, &victim.spec.queue) {
            return true;
        }
        let living = attempt.members.iter().filter(|member| !member.is_released());
        let mut places = living.filter_map(|member| self.board.position(&member.placement.node));
        places.any(|at| self.board.may_stand(Shape::of(job), at))
    }
}
