//! The nodes and where on them the next demand goes.

use super::demand::Demand;
use super::host::{GpuSet, Host};
use super::prices::Prices;
use std::collections::BTreeMap;

/// How many shapes' scores are kept. Beyond that all are dropped and scored anew as they come: slower, never wrong.
const SHAPES_MOST: usize = 1_024;

/// The score of a node on which a shape does not fit.
const NO_ROOM: i32 = i32::MAX;

/// Nodes whose scores are compared in one go for changes.
const STRETCH: usize = 64;

/// Where a demand goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The node, by its position in the list that the packing was made of.
    pub host: usize,
    /// Its GPUs.
    pub gpus: GpuSet,
}

/// The scores of one shape on every node, and of which change of the node each is.
#[derive(Clone, Debug)]
struct Scores {
    seen: Vec<u32>,
    scores: Vec<i32>,
}

/// Nodes with what is left on them, and the prices by which places are chosen.
#[derive(Clone, Debug)]
pub struct Packing {
    prices: Prices,
    hosts: Vec<Host>,
    limits: Vec<Host>,
    /// What is expected to stay idle of each node as it is, in millionths of a GPU.
    idle: Vec<i32>,
    /// How often each node has changed, from 1.
    changes: Vec<u32>,
    shapes: BTreeMap<Demand, Scores>,
}

impl Packing {
    /// These nodes, which have never more than they have now.
    pub fn new(hosts: Vec<Host>, prices: Prices) -> Self {
        let idle = hosts.iter().map(|host| prices.of(host)).collect();
        Self { idle, changes: vec![1; hosts.len()], limits: hosts.clone(), hosts, prices, shapes: BTreeMap::new() }
    }

    /// The nodes as they are.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Where a demand goes: where the least more is expected to stay idle for good, and among those where the fewest resources are left
    /// over, and among those the first. `None` only where it fits nowhere. Takes nothing.
    pub fn place(&mut self, demand: &Demand) -> Option<Spot> {
        if !self.shapes.contains_key(demand) && self.shapes.len() >= SHAPES_MOST {
            self.shapes.clear();
        }
        let count = self.hosts.len();
        let fresh = || Scores { seen: vec![0; count], scores: vec![NO_ROOM; count] };
        let shape = self.shapes.entry(*demand).or_insert_with(fresh);
        let stretches = shape.seen.chunks_mut(STRETCH).zip(self.changes.chunks(STRETCH));
        for (stretch, (seen, changes)) in stretches.enumerate().filter(|(_, (seen, changes))| seen != changes) {
            for (at, (seen, change)) in seen.iter_mut().zip(changes).enumerate().filter(|(_, (seen, change))| seen != change) {
                let host = stretch * STRETCH + at;
                *seen = *change;
                shape.scores[host] = best(&self.prices, &self.hosts[host], self.idle[host], demand).map_or(NO_ROOM, |(score, _)| score);
            }
        }
        let least = shape.scores.iter().copied().fold(NO_ROOM, i32::min);
        let host = shape.scores.iter().position(|score| *score == least && least != NO_ROOM)?;
        let (_, gpus) = best(&self.prices, &self.hosts[host], self.idle[host], demand)?;
        Some(Spot { host, gpus })
    }

    /// The same answer as [`Packing::place`], with every node scored now.
    pub fn place_afresh(&self, demand: &Demand) -> Option<Spot> {
        let scored = self.hosts.iter().enumerate().filter_map(|(host, left)| {
            let (score, gpus) = best(&self.prices, left, self.prices.of(left), demand)?;
            Some((score, host, gpus))
        });
        scored.min().map(|(_, host, gpus)| Spot { host, gpus })
    }

    /// Takes a spot. False, and nothing is taken, where the demand does not fit there.
    pub fn take(&mut self, spot: &Spot, demand: &Demand) -> bool {
        let taken = self.hosts.get_mut(spot.host).is_some_and(|host| host.take(demand, spot.gpus));
        if taken {
            self.changed(spot.host);
        }
        taken
    }

    /// Gives a spot back. False, and nothing is given, where the node would have more than it had at the beginning.
    pub fn give(&mut self, spot: &Spot, demand: &Demand) -> bool {
        let pair = self.hosts.get_mut(spot.host).zip(self.limits.get(spot.host));
        let given = pair.is_some_and(|(host, limit)| host.give(demand, spot.gpus, limit));
        if given {
            self.changed(spot.host);
        }
        given
    }

    fn changed(&mut self, host: usize) {
        self.idle[host] = self.prices.of(&self.hosts[host]);
        self.changes[host] = self.changes[host].wrapping_add(1);
    }
}

/// The best GPUs of a node for a demand, and the score of that: how much more is expected to stay idle, in millionths of a GPU. What is
/// left over counts by a thousandth of a GPU for each GPU and a tenth of that for each CPU, which is too little to outweigh a price and
/// breaks ties by best fit; for a demand without GPUs idle GPUs count twice, so that it goes where none are.
fn best(prices: &Prices, host: &Host, idle: i32, demand: &Demand) -> Option<(i32, GpuSet)> {
    if !host.fits(demand) {
        return None;
    }
    let choices = host.choices(demand);
    let scored = choices.iter().map(|gpus| {
        let mut after = *host;
        after.taken(demand, gpus);
        let gpus_left = i64::from(after.gpu_milli()) * if demand.gpus == 0 { 2 } else { 1 };
        let cpus_left = i64::try_from(after.cpu_milli() / 10).unwrap_or(i64::MAX);
        let more = i64::from(prices.of(&after)) - i64::from(idle);
        let score = more.saturating_add(gpus_left).saturating_add(cpus_left).min(i64::from(NO_ROOM) - 1);
        (score as i32, gpus)
    });
    scored.min()
}
