//! The board of one look: the nodes as they are, and what the look has given away of them already.

pub(crate) use super::fit::When;
use super::fit::{Counts, Fit, QUALITIES, Score, could_hold, quality};
use super::ground::{Ground, Nodes, Plot};
use super::roles::As;
use super::room::{Bits, Room};
use crate::state::{Claim, Node, Part, State};
use footplate_events::facts::JobSpec;
use footplate_types::{Digest, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// All nodes.
#[derive(Debug)]
pub(crate) struct Board<'a> {
    pub(super) ground: Ground,
    pub(crate) nodes: Nodes<'a>,
    /// Plots that the look has changed.
    changed: Vec<usize>,
    /// Plots that are kept free for jobs that have waited long. What fits there counts for nobody.
    kept: Bits,
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
        let kept = Bits::none(nodes.len());
        Self { ground, nodes, changed: Vec::new(), kept }
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

    /// How good a place is, on a node that is not kept for another job.
    fn score(&self, fit: &Fit, when: When, at: usize) -> Option<Score> {
        fit.places(when).score(at).filter(|_| !self.kept.has(at))
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
        self.is_eligible(shape, at) && !self.kept.has(at)
    }

    /// Whether a member fits on a node that is not kept for another job, by what [`Board::fit`] found last.
    pub(super) fn fits_at(&self, shape: Shape<'_>, when: When, at: usize) -> bool {
        self.ground.known(&shape.class).is_some_and(|fit| self.score(fit, when, at).is_some())
    }

    /// Whether a member fits on a node when everything that is being stopped has left, by what [`Board::fit`] found last.
    pub(super) fn fits(&self, shape: Shape<'_>, at: usize) -> bool {
        self.fits_at(shape, When::Coming, at)
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

    /// On how many nodes a member fits.
    pub(super) fn fitting_all(&mut self, shape: Shape<'_>, when: When) -> usize {
        self.fit(shape);
        let Some(fit) = self.ground.known(&shape.class) else { return 0 };
        let places = fit.places(when);
        places.count() - self.kept.ones().filter(|at| places.score(*at).is_some()).count()
    }

    /// On which nodes a member fits.
    pub(super) fn fitting_together(&mut self, shape: Shape<'_>, when: When) -> Together {
        let mut together = Together::of(shape);
        together.all = self.fitting_all(shape, when);
        if let (Some(by_rack), Some(fit)) = (&mut together.by_rack, self.ground.known(&shape.class)) {
            let racks = self.open_racks(fit, when, &[]).into_iter().enumerate();
            by_rack.extend(racks.map(|(rack, counts)| (rack as u32, counts.iter().sum::<u32>() as usize)));
        }
        together
    }

    /// On how many nodes that a gang could have together a member fits.
    pub(super) fn fitting(&mut self, shape: Shape<'_>, when: When) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, |board, part| board.fitting(part, when));
        }
        self.fitting_together(shape, when).most()
    }

    /// The places of each rack by quality, without those on nodes that are kept, but with `also` of them.
    fn open_racks(&self, fit: &Fit, when: When, also: &[usize]) -> Vec<Counts> {
        let places = fit.places(when);
        let mut racks = places.racks().to_vec();
        for at in self.kept.ones().filter(|at| also.binary_search(at).is_err()) {
            let rack = racks.get_mut(self.plot(at).rack as usize);
            if let (Some(score), Some(counts)) = (places.score(at), rack) {
                counts[quality(score)] -= 1;
            }
        }
        racks
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
        could_hold(self.node(at), shape.spec)
    }

    /// As [`Board::eligible`], if every node that ever registered were open.
    pub(super) fn suiting(&mut self, shape: Shape<'_>) -> usize {
        if shape.has_roles() {
            return self.of_roles(shape, Self::suiting);
        }
        let all = self.fit(shape).suiting();
        self.together(shape, all, Fit::suits).most()
    }

    /// Seats for the whole gang, or none: avoided nodes last; whole NVLink islands first, and nodes without GPUs for work without; a gang in one rack, the fullest that has room for all of it, else
    /// in as few as it takes; there the tightest nodes. In order of rack and name, so that neighbouring ranks stand near each other.
    pub(crate) fn seat(&mut self, shape: Shape<'_>, when: When) -> Option<Vec<Seat>> {
        if shape.has_roles() {
            return self.seat_roles(shape, if when == When::Now { As::Now } else { As::Coming }, &BTreeMap::new());
        }
        self.seat_also(shape, when, &[])
    }

    /// As [`Board::seat`], with these nodes, which are kept for others: in order of their positions.
    pub(super) fn seat_also(&mut self, shape: Shape<'_>, when: When, also: &[usize]) -> Option<Vec<Seat>> {
        self.fit(shape);
        let fit = self.ground.known(&shape.class)?;
        let chosen = if shape.nodes() == 1 {
            vec![fit.places(when).best_of(|at| !self.is_taken(at, also))?]
        } else {
            self.choose(shape, fit, when, also)?
        };
        let room = |at: usize| if when == When::Now { &self.plot(at).free } else { &self.plot(at).coming };
        Some(chosen.into_iter().map(|at| (at, room(at).pick(self.node(at), &shape.spec.resources.per_node))).collect())
    }

    fn is_taken(&self, at: usize, also: &[usize]) -> bool {
        self.kept.has(at) && also.binary_search(&at).is_err()
    }

    fn choose(&self, shape: Shape<'_>, fit: &Fit, when: When, also: &[usize]) -> Option<Vec<usize>> {
        let count = shape.nodes();
        let racks = self.open_racks(fit, when, also);
        let of = |counts: &Counts, worst: usize| counts[..=worst].iter().sum::<u32>() as usize;
        // No place that is worse than it takes.
        let worst = (0..QUALITIES).find(|worst| {
            let mut racks = racks.iter().map(|counts| of(counts, *worst));
            if shape.in_one_rack() { racks.any(|places| places >= count) } else { racks.sum::<usize>() >= count }
        })?;
        let first = |rack: usize| self.ground.in_rack[rack].first().copied();
        let sizes = racks.iter().enumerate().map(|(rack, counts)| (of(counts, worst), rack)).filter(|(size, _)| *size > 0);
        let enough = sizes.clone().filter(|(size, _)| *size >= count).min_by_key(|(size, rack)| (*size, first(*rack)));
        let mut racks: Vec<(usize, usize)> = match enough {
            Some(one) => vec![one],
            None => sizes.collect(),
        };
        racks.sort_by_key(|(size, rack)| (std::cmp::Reverse(*size), first(*rack)));
        let mut chosen = Vec::with_capacity(count);
        for (_, rack) in racks {
            let wanted = count - chosen.len();
            if wanted == 0 {
                break;
            }
            let place = |at: &usize| Some((fit.places(when).score(*at).filter(|score| quality(*score) <= worst)?, *at));
            let standing = self.ground.in_rack[rack].iter().filter(|at| !self.is_taken(**at, also));
            let mut places: Vec<(Score, usize)> = standing.filter_map(place).collect();
            if places.len() > wanted {
                places.select_nth_unstable(wanted - 1);
            }
            chosen.extend(places.into_iter().take(wanted).map(|(_, at)| at));
        }
        chosen.sort_by_key(|at| (&self.node(*at).shape.rack, *at));
        Some(chosen)
    }

    /// A job starts on the seats: they are taken from what is free and from what is coming.
    pub(super) fn start(&mut self, seats: &[Seat]) {
        for (at, claim) in seats {
            let node = self.node(*at);
            self.change(*at, |plot| {
                plot.free.take(node, claim);
                plot.coming.take(node, claim);
                plot.free.limit_to(node, &plot.coming);
            });
        }
    }

    /// Takes the seats from what is coming; others may have what that leaves of what is free.
    pub(super) fn take(&mut self, seats: &[Seat]) {
        for (at, claim) in seats {
            let node = self.node(*at);
            self.change(*at, |plot| {
                plot.coming.take(node, claim);
                plot.free.limit_to(node, &plot.coming);
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
    pub(super) fn keep(&mut self, at: usize, kept: bool) {
        self.kept.set(at, kept);
    }

    /// Of the nodes that are not kept for a job, so many that have most of what is asked when everything that is being stopped has left.
    pub(super) fn most_coming(&mut self, shape: Shape<'_>, wanted: usize) -> Vec<(std::cmp::Reverse<u16>, usize)> {
        self.fit(shape);
        let fit = self.ground.known(&shape.class);
        fit.map_or_else(Vec::new, |fit| fit.most_coming(wanted, |at| !self.kept.has(at)))
    }

    /// Whether a node is kept free for a job.
    pub(super) fn is_kept(&self, at: usize) -> bool {
        self.kept.has(at)
    }

    /// Whether nothing is kept for anybody.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.kept.is_empty()
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
