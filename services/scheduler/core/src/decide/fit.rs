//! Where the jobs of one class fit: on which nodes a member has room now, on which when everything that is being stopped has left, and how good each of
//! these places is. Kept from look to look and compared only with the nodes that have changed since.

use super::ground::{Nodes, Plot};
use super::room::{Room, suits};
use crate::state::Node;
use footplate_events::facts::JobSpec;
use footplate_types::NodeName;
use std::cmp::Reverse;

/// How good a place is: the less, the better. Avoided nodes last; before them those on which no NVLink island is large enough, or whose GPUs are not asked for;
/// then the tightest.
pub(super) type Score = u16;

/// No member fits there.
const NONE: Score = Score::MAX;
/// No member could stand there if everybody left.
const NOWHERE: u16 = u16::MAX;
/// What a score tells beside the units.
const QUALITY: u32 = 14;
/// How many qualities there are.
pub(super) const QUALITIES: usize = 1 << (16 - QUALITY);
/// The most units that a score tells apart.
const UNITS_MOST: u32 = (1 << QUALITY) - 2;

/// It could take a member if it were empty and open.
const SUITS: u8 = 1;
/// And it is open.
const ELIGIBLE: u8 = 2;

/// Which room is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// What is free.
    Now,
    /// What is free when everything that is being stopped has left.
    Coming,
}

/// How many places there are of each quality.
pub(super) type Counts = [u32; QUALITIES];

/// Places of members at one time.
#[derive(Debug, Default)]
pub(super) struct Places {
    scores: Vec<Score>,
    /// The best of each [`BLOCK`] of them.
    best: Vec<Score>,
    /// How many there are.
    count: usize,
    /// And by rack, for gangs.
    racks: Vec<Counts>,
}

/// Scores that are summed up by their best.
const BLOCK: usize = 128;

impl Places {
    fn of(count: usize) -> Self {
        Self { scores: vec![NONE; count], best: vec![NONE; count.div_ceil(BLOCK)], ..Self::default() }
    }

    fn block(&self, block: usize) -> &[Score] {
        let from = block * BLOCK;
        &self.scores[from..self.scores.len().min(from + BLOCK)]
    }

    fn set(&mut self, at: usize, score: Score, racks: Option<(u32, u32)>) {
        let before = std::mem::replace(&mut self.scores[at], score);
        self.count = self.count + usize::from(score != NONE) - usize::from(before != NONE);
        let block = at / BLOCK;
        if score <= self.best[block] {
            self.best[block] = score;
        } else if before == self.best[block] {
            self.best[block] = self.block(block).iter().copied().min().unwrap_or(NONE);
        }
        let Some((rack_before, rack)) = racks else { return };
        let most = rack_before.max(rack) as usize;
        if self.racks.len() <= most {
            self.racks.resize(most + 1, Counts::default());
        }
        if before != NONE {
            self.racks[rack_before as usize][quality(before)] -= 1;
        }
        if score != NONE {
            self.racks[rack as usize][quality(score)] += 1;
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many there are in each rack; empty for shapes of one node.
    pub(super) fn racks(&self) -> &[Counts] {
        &self.racks
    }

    /// How good a place is, where there is one.
    pub(super) fn score(&self, at: usize) -> Option<Score> {
        Some(self.scores[at]).filter(|score| *score != NONE)
    }

    /// The best place, the first of equals, of those that `may`.
    pub(super) fn best_of(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let mut found: Option<(Score, usize)> = None;
        for block in 0..self.best.len() {
            if self.best[block] == NONE || found.is_some_and(|(score, _)| self.best[block] >= score) {
                continue;
            }
            let scores = self.block(block).iter().enumerate().map(|(at, score)| (*score, block * BLOCK + at));
            let worst = found.map_or(NONE, |(score, _)| score);
            let best = scores.filter(|(score, at)| *score < worst && may(*at)).min();
            found = best.or(found);
        }
        found.map(|(_, at)| at)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fit {
    /// In which look it was asked for last.
    pub(super) used: u64,
    seen: Vec<u32>,
    /// How far the journal was read.
    read: (u64, usize),
    now: Places,
    coming: Places,
    /// How much of what is asked there is when everything that is being stopped has left; [`NOWHERE`] where a member could not stand if everybody left.
    units: Vec<u16>,
    marks: Vec<u8>,
    /// The rack of each plot, for gangs.
    racks: Vec<u32>,
    suiting: usize,
    eligible: usize,
}

impl Fit {
    /// Looks at the plots that have changed since.
    pub(super) fn refresh(
        &mut self,
        nodes: &Nodes<'_>,
        plots: &[Plot],
        changes: &[u32],
        (begun, journal): &(u64, Vec<usize>),
        spec: &JobSpec,
        avoid: &[NodeName],
    ) {
        let count = plots.len();
        if self.seen.len() != count {
            *self = Self {
                seen: vec![0; count],
                now: Places::of(count),
                coming: Places::of(count),
                units: vec![NOWHERE; count],
                marks: vec![0; count],
                racks: if spec.resources.nodes > 1 { vec![0; count] } else { Vec::new() },
                ..Self::default()
            };
        }
        let from = (self.read.0 == *begun).then_some(self.read.1);
        let mut look = |at: usize| {
            if self.seen[at] != changes[at] {
                self.seen[at] = changes[at];
                self.look_at(at, nodes[at], &plots[at], spec, avoid);
            }
        };
        match from.and_then(|from| journal.get(from..)) {
            Some(changed) => changed.iter().copied().for_each(&mut look),
            None => (0..count).for_each(&mut look),
        }
        self.read = (*begun, journal.len());
    }

    fn look_at(&mut self, at: usize, (name, node): (&NodeName, &Node), plot: &Plot, spec: &JobSpec, avoid: &[NodeName]) {
        self.suiting -= usize::from(self.suits(at));
        self.eligible -= usize::from(self.is_eligible(at));
        let suits = suits(name, node, spec);
        self.marks[at] = if suits { SUITS | if plot.open { ELIGIBLE } else { 0 } } else { 0 };
        let eligible = self.is_eligible(at);
        self.suiting += usize::from(suits);
        self.eligible += usize::from(eligible);
        let score = |room: &Room| if eligible { score(room, (name, node), spec, avoid) } else { NONE };
        let now = score(&plot.free);
        let coming = if plot.differs { score(&plot.coming) } else { now };
        let racks = self.racks.get_mut(at).map(|rack| (std::mem::replace(rack, plot.rack), plot.rack));
        self.now.set(at, now, racks);
        self.coming.set(at, coming, racks);
        let could_hold = eligible && could_hold(node, spec);
        self.units[at] = if could_hold { plot.coming.units(node, &spec.resources.per_node).min(UNITS_MOST) as u16 } else { NOWHERE };
    }

    /// How much memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let of_plot = size_of::<u32>() + 3 * size_of::<u16>() + size_of::<u8>();
        let of_rack = 2 * size_of::<Counts>();
        size_of::<Self>() + self.seen.len() * of_plot + self.racks.len() * size_of::<u32>() + self.now.racks.len() * of_rack
    }

    /// Where a member fits.
    pub(super) fn places(&self, when: When) -> &Places {
        match when {
            When::Now => &self.now,
            When::Coming => &self.coming,
        }
    }

    /// Whether a member could stand there if the node were empty and open.
    pub(super) fn suits(&self, at: usize) -> bool {
        self.marks[at] & SUITS != 0
    }

    /// Whether a member could stand there if the node were empty.
    pub(super) fn is_eligible(&self, at: usize) -> bool {
        self.marks[at] & ELIGIBLE != 0
    }

    /// How many nodes, open or not, could take a member if they were empty.
    pub(super) fn suiting(&self) -> usize {
        self.suiting
    }

    /// How many of them are open.
    pub(super) fn eligible(&self) -> usize {
        self.eligible
    }

    /// The nodes that could take a member if they were empty, by position.
    pub(super) fn all_eligible(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.marks.len()).filter(|at| self.is_eligible(*at))
    }

    /// Of the nodes that `may`, so many that have most of what is asked when everything that is being stopped has left, with how much that is, in no order;
    /// all of them where there are fewer. Where nobody could stand if everybody left is not among them.
    pub(super) fn most_coming(&self, wanted: usize, may: impl Fn(usize) -> bool) -> Vec<(Reverse<u16>, usize)> {
        let clipped = |units: u16| usize::from(units).min(STEPS - 1);
        let mut steps = [0usize; STEPS];
        self.units.iter().filter(|units| **units != NOWHERE).for_each(|units| steps[clipped(*units)] += 1);
        // Some of these may not: where that leaves too few, all are looked at.
        let mut some = Vec::new();
        let mut from = STEPS;
        loop {
            let mut there = 0;
            while from > 0 && there < wanted.saturating_mul(2) {
                from -= 1;
                there += steps[from];
            }
            some.clear();
            let all = self.units.iter().enumerate().filter(|(_, units)| **units != NOWHERE && clipped(**units) >= from);
            some.extend(all.filter(|(at, _)| may(*at)).map(|(at, units)| (Reverse(*units), at)));
            if some.len() >= wanted || from == 0 {
                break;
            }
        }
        if some.len() > wanted {
            some.select_nth_unstable(wanted.saturating_sub(1));
            some.truncate(wanted);
        }
        some
    }
}

/// Units that [`Fit::most_coming`] tells apart before it sorts.
const STEPS: usize = 32;

/// Whether a member would fit on the healthy units of a node if everybody left it.
pub(super) fn could_hold(node: &Node, spec: &JobSpec) -> bool {
    node.unhealthy_gpus.is_empty() || Room::empty_node(node).holds(node, &spec.resources.per_node)
}

/// How good a node with this much room is for a member; the worst there is when it does not fit.
pub(super) fn score(room: &Room, (name, node): (&NodeName, &Node), spec: &JobSpec, avoid: &[NodeName]) -> Score {
    let ask = &spec.resources.per_node;
    let Some(units) = room.fitting_units(node, ask) else { return NONE };
    // Work without GPUs would strand those of the node: it goes there last.
    let strands = ask.gpus == 0 && !node.shape.gpus.is_empty();
    let quality = u16::from(avoid.contains(name)) << 1 | u16::from(strands || room.is_scattered(node, ask));
    quality << QUALITY | units.min(UNITS_MOST) as u16
}

/// What a score tells beside the units: the less, the better.
pub(super) fn quality(score: Score) -> usize {
    usize::from(score >> QUALITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// The best place is what a walk over all of them finds, whatever was set before.
        #[test]
        fn the_best_place_is_the_least_score_and_of_these_the_first(
            sets in proptest::collection::vec((0usize..400, proptest::prop_oneof![0u16..6, proptest::strategy::Just(NONE)]), 0..600),
            kept in proptest::collection::btree_set(0usize..400, 0..60),
        ) {
            let mut places = Places::of(400);
            let mut plain = vec![NONE; 400];
            for (at, score) in sets {
                places.set(at, score, None);
                plain[at] = score;
                let best = |may: &dyn Fn(usize) -> bool| {
                    let all = plain.iter().enumerate().filter(|(at, score)| **score != NONE && may(*at));
                    all.map(|(at, score)| (*score, at)).min().map(|(_, at)| at)
                };
                assert_eq!(places.best_of(|_| true), best(&|_| true));
                assert_eq!(places.best_of(|at| !kept.contains(&at)), best(&|at| !kept.contains(&at)));
                assert_eq!(places.count(), plain.iter().filter(|score| **score != NONE).count());
            }
        }
    }
}
