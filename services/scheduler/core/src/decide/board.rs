//! The board of one look: the nodes as they are, and what the look has given away of them already.

use super::ground::{Fit, Ground, Nodes, Plot, Score, quality, score};
use super::roles::As;
use super::room::Room;
use crate::state::{Claim, Node, Part, State};
use footplate_events::facts::JobSpec;
use footplate_types::{Digest, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// Which room is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    Coming,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Board<'a> {
    pub(super) ground: Ground,
    pub(crate) nodes: Nodes<'a>,
    /// Plots that the look has changed.
    changed: Vec<usize>,
}

/// A job's shape: what decides where it fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'j> {
    /// Equal for jobs that fit on the same nodes.
    pub(crate) class: Digest,
    pub(crate) spec: &'j JobSpec,
    /// Nodes to be avoided where others will do.
    pub(crate) avoid: &'j [NodeName],
    /// Its roles; none for a gang whose members all ask the same.
    pub(crate) parts: &'j [Part],
}

impl<'j> Shape<'j> {
    pub(crate) fn of(job: &'j crate::state::Job) -> Self {
        Self { class: job.class, spec: &job.spec, avoid: &job.avoid, parts: &job.parts }
    }

    /// Of a job that was not submitted, and its roles.
    pub(crate) fn of_spec(spec: &'j JobSpec, parts: &'j [Part]) -> Self {
        Self { class: crate::state::Job::class_of(spec, &[]), spec, avoid: &[], parts }
    }

    /// One role of it.
    pub(crate) fn of_part(&self, part: &'j Part) -> Self {
        Self { class: part.class, spec: &part.spec, avoid: self.avoid, parts: &[] }
    }

    pub(crate) fn has_roles(&self) -> bool {
        !self.parts.is_empty()
    }

    /// How many members it has.
    pub(super) fn nodes(&self) -> usize {
        if self.has_roles() { self.spec.members() as usize } else { self.spec.resources.nodes as usize }
    }

    /// Whether all its members must stand in one rack.
    pub(super) fn in_one_rack(&self) -> bool {
        self.spec.placement.same_rack && self.nodes() > 1
    }
}

/// Nodes that are counted for a shape: all together, or those of each rack.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    all: usize,
    by_rack: Option<BTreeMap<u32, usize>>,
}

impl Together {
    fn of(shape: Shape<'_>) -> Self {
        Self { all: 0, by_rack: shape.in_one_rack().then(BTreeMap::new) }
    }

    /// One more, or one less.
    pub(super) fn count(&mut self, rack: u32, more: bool) {
        let all = &mut self.all;
        for count in std::iter::once(all).chain(self.by_rack.as_mut().map(|racks| racks.entry(rack).or_default())) {
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// How many a gang could have of them.
    pub(super) fn most(&self) -> usize {
        self.by_rack.as_ref().map_or(self.all, |racks| racks.values().copied().max().unwrap_or(0))
    }
}

/// A place for one member: which node, which units.
pub(crate) type Seat = (usize, Claim);

impl<'a> Board<'a> {
    /// The nodes of a state, with nothing known of them.
    pub(crate) fn of(state: &'a State) -> Self {
        let mut ground = Ground::default();
        let nodes = ground.refresh(state);
        Self::new(ground, nodes)
    }

    /// The nodes of the state that `ground` was brought up to date with. [`Board::ground`] gives it back.
    pub(super) fn new(ground: Ground, nodes: Nodes<'a>) -> Self {
        Self { ground, nodes, changed: Vec::new() }
    }

    /// What is known of the nodes, for the next look.
    pub(super) fn ground(mut self) -> Ground {
        self.changed.iter().for_each(|at| self.ground.forget(*at));
        self.ground
    }

    pub(super) fn plot(&self, at: usize) -> &Plot {
        &self.ground.plots[at]
    }

    pub(super) fn node(&self, at: usize) -> &'a Node {
        self.nodes[at].1
    }

    pub(crate) fn name(&self, at: usize) -> &'a NodeName {
        self.nodes[at].0
    }

    /// The position of a node, when it is open.
    pub(super) fn position(&self, name: &NodeName) -> Option<usize> {
        self.ground.position(name).filter(|at| self.plot(*at).open)
    }

    /// Where jobs of a shape without roles fit now.
    pub(crate) fn fit(&mut self, shape: Shape<'_>) -> &Fit {
        self.ground.fit(&self.nodes, shape.class, shape.spec, shape.avoid)
    }

    fn score_coming(&self, shape: Shape<'_>, fit: &Fit, at: usize) -> Option<Score> {
        let plot = self.plot(at);
        let score = (fit.is_eligible(at) && !plot.reserved).then(|| score(&plot.coming, self.nodes[at], shape.spec, shape.avoid))?;
        (score != Score::MAX).then_some(score)
    }

    /// Whether a member could stand on a node if that were empty, by what [`Board::fit`] found last.
    pub(super) fn is_eligible(&self, shape: Shape<'_>, at: usize) -> bool {
        if shape.has_roles() {
            return shape.parts.iter().any(|part| self.is_eligible(shape.of_part(part), at));
        }
        self.ground.known(&shape.class).is_some_and(|fit| fit.is_eligible(at))
    }

    /// As [`Board::is_eligible`], of a node that is not kept for another job.
    pub(super) fn may_stand(&self, shape: Shape<'_>, at: usize) -> bool {
        self.is_eligible(shape, at) && !self.plot(at).reserved
    }

    /// Whether a member fits on a node when everything that is being stopped has left, by what [`Board::fit`] found last.
    pub(super) fn fits(&self, shape: Shape<'_>, at: usize) -> bool {
        self.ground.known(&shape.class).is_some_and(|fit| fit.fits(at) || self.score_coming(shape, fit, at).is_some())
    }

    /// The nodes that are counted for a shape, of those that `counts`; `all` says how many these are, where that is known and will do.
    fn together(&self, shape: Shape<'_>, all: usize, counts: impl Fn(&Fit, usize) -> bool) -> Together {
        let mut together = Together::of(shape);
        let Some(fit) = self.ground.known(&shape.class) else { return together };
        if together.by_rack.is_some() {
            (0..self.nodes.len()).filter(|at| counts(fit, *at)).for_each(|at| together.count(self.plot(at).rack, true));
        } else {
            together.all = all;
        }
        together
    }

    /// On how many nodes that a gang could have together a member fits now.
    pub(super) fn fitting(&mut self, shape: Shape<'_>) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, Self::fitting);
        }
        let all = self.fit(shape).fitting();
        self.together(shape, all, Fit::fits).most()
    }

    /// As [`Board::fitting`], if every open node were empty.
    pub(crate) fn eligible(&mut self, shape: Shape<'_>) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, Self::eligible);
        }
        let all = self.fit(shape).eligible();
        self.together(shape, all, Fit::is_eligible).most()
    }

    /// As [`Board::eligible`], of healthy units alone: what there would be if everybody left.
    pub(super) fn open_to(&mut self, shape: Shape<'_>) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, Self::open_to);
        }
        let all = self.fit(shape).eligible();
        let unwell = self.ground.unwell.iter().copied().filter(|at| self.is_eligible(shape, *at) && !self.could_hold(shape, *at));
        let sick: BTreeSet<usize> = unwell.collect();
        self.together(shape, all - sick.len(), |fit, at| fit.is_eligible(at) && !sick.contains(&at)).most()
    }

    /// Whether a member would fit on the healthy units of a node if everybody left it.
    pub(super) fn could_hold(&self, shape: Shape<'_>, at: usize) -> bool {
        let node = self.node(at);
        !self.ground.unwell.contains(&at) || Room::empty_node(node).holds(node, &shape.spec.resources.per_node)
    }

    /// As [`Board::eligible`], if every node that ever registered were open.
    pub(super) fn suiting(&mut self, shape: Shape<'_>) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, Self::suiting);
        }
        let all = self.fit(shape).suiting();
        self.together(shape, all, Fit::suits).most()
    }

    /// On which nodes a member fits when everything that is being stopped has left.
    pub(super) fn coming_together(&mut self, shape: Shape<'_>) -> Together {
        let now = self.fit(shape).fitting();
        let mut together = self.together(shape, now, Fit::fits);
        let Some(fit) = self.ground.known(&shape.class) else { return together };
        for at in self.ground.differing.iter().filter(|at| !fit.fits(**at) && self.score_coming(shape, fit, **at).is_some()) {
            together.count(self.plot(*at).rack, true);
        }
        together
    }

    /// On how many nodes that a gang could have together a member fits when everything that is being stopped has left.
    pub(super) fn fitting_coming(&mut self, shape: Shape<'_>) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, Self::fitting_coming);
        }
        self.coming_together(shape).most()
    }

    /// Seats for the whole gang, or none: avoided nodes last; whole NVLink islands first, and nodes without GPUs for work without; a gang in one rack, the fullest that has room for all of it, else
    /// in as few as it takes; there the tightest nodes. In order of rack and name, so that neighbouring ranks stand near each other.
    pub(crate) fn seat(&mut self, shape: Shape<'_>, when: When) -> Option<Vec<Seat>> {
        if shape.has_roles() {
            return self.seat_roles(shape, if when == When::Now { As::Now } else { As::Coming }, &BTreeMap::new());
        }
        let count = shape.nodes();
        let fitting = self.fit(shape).fitting();
        let fit = self.ground.known(&shape.class)?;
        if when == When::Now && fitting < count {
            return None;
        }
        let chosen = if when == When::Now && count == 1 {
            vec![fit.best()?.1]
        } else {
            let mut places: Vec<(Score, usize)> = match when {
                When::Now => fit.places().collect(),
                // Where nothing is being stopped, now and then are the same.
                When::Coming => fit.places().filter(|(_, at)| !self.ground.differing.contains(at)).collect(),
            };
            if when == When::Coming {
                let coming = |at: &usize| Some((self.score_coming(shape, fit, *at)?, *at));
                places.extend(self.ground.differing.iter().filter_map(coming));
            }
            self.choose(shape, places)?
        };
        let room = |at: usize| if when == When::Now { &self.plot(at).free } else { &self.plot(at).coming };
        Some(chosen.into_iter().map(|at| (at, room(at).pick(self.node(at), &shape.spec.resources.per_node))).collect())
    }

    /// Seats for the whole gang now, these nodes, which are kept for others, among them.
    pub(super) fn seat_also(&mut self, shape: Shape<'_>, also: &[usize]) -> Option<Vec<Seat>> {
        self.fit(shape);
        let fit = self.ground.known(&shape.class)?;
        let place = |at: &usize| (score(&self.plot(*at).free, self.nodes[*at], shape.spec, shape.avoid), *at);
        let also = also.iter().map(place).filter(|(score, _)| *score != Score::MAX);
        let chosen = self.choose(shape, fit.places().chain(also).collect())?;
        Some(chosen.into_iter().map(|at| (at, self.plot(at).free.pick(self.node(at), &shape.spec.resources.per_node))).collect())
    }

    fn choose(&self, shape: Shape<'_>, mut places: Vec<(Score, usize)>) -> Option<Vec<usize>> {
        let count = shape.nodes();
        let suffice = |places: &mut dyn Iterator<Item = &(Score, usize)>| {
            let mut together = Together::of(shape);
            places.for_each(|(_, at)| together.count(self.plot(*at).rack, true));
            together.most() >= count
        };
        if count == 0 || !suffice(&mut places.iter()) {
            return None;
        }
        // No place that is worse than it takes.
        for worst in 0..=quality(Score::MAX) {
            if suffice(&mut places.iter().filter(|(score, _)| quality(*score) <= worst)) {
                places.retain(|(score, _)| quality(*score) <= worst);
                break;
            }
        }
        let mut racks: BTreeMap<u32, Vec<(Score, usize)>> = BTreeMap::new();
        for place in places {
            racks.entry(self.plot(place.1).rack).or_default().push(place);
        }
        let first = |rack: &Vec<(Score, usize)>| rack.iter().map(|(_, at)| *at).min();
        let mut racks: Vec<Vec<(Score, usize)>> = racks.into_values().collect();
        if count > 1
            && let Some(one) = racks.iter().filter(|rack| rack.len() >= count).min_by_key(|rack| (rack.len(), first(rack)))
        {
            racks = vec![one.clone()];
        }
        if count == 1 {
            racks = vec![racks.into_iter().flatten().collect()];
        }
        racks.sort_by_key(|rack| (std::cmp::Reverse(rack.len()), first(rack)));
        let mut chosen = Vec::with_capacity(count);
        for mut rack in racks {
            let wanted = count - chosen.len();
            if rack.len() > wanted && wanted > 0 {
                rack.select_nth_unstable(wanted - 1);
            }
            chosen.extend(rack.into_iter().take(wanted).map(|(_, at)| at));
        }
        chosen.sort_by_key(|at| (&self.node(*at).shape.rack, *at));
        Some(chosen)
    }

    /// Takes the seats, now and from what is coming.
    pub(super) fn take(&mut self, seats: &[Seat]) {
        for (at, claim) in seats {
            let node = self.node(*at);
            self.change(*at, |plot| {
                plot.coming.take(node, claim);
                plot.free.limit_to(&plot.coming);
            });
        }
    }

    /// What stands on a node is being stopped.
    pub(super) fn leaves(&mut self, at: usize, claim: &Claim, preempted: bool) {
        let node = self.node(at);
        self.change(at, |plot| {
            plot.coming.give(node, claim);
            plot.preempting |= preempted;
        });
    }

    /// A node is kept free, or is not after all.
    pub(super) fn reserve(&mut self, at: usize, reserved: bool) {
        self.change(at, |plot| plot.reserved = reserved);
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Plot)) {
        self.ground.change(at, change);
        self.changed.push(at);
    }

    /// The room that is coming on a node.
    pub(super) fn coming(&self, at: usize) -> &Room {
        &self.plot(at).coming
    }
}
