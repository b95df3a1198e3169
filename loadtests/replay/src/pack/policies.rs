//! The policies of the paper that are replayed for calibration, and ours.

use super::dice::Dice;
use super::fragmentation::Targets;
use footplate_scheduler_core::pack::{Demand, GpuSet, Host, Packing, Spot, WHOLE};
use std::collections::BTreeMap;

/// Who chooses the place.
pub trait Policy {
    /// The place of a demand, which is then taken; `None` where it is refused.
    fn seat(&mut self, demand: &Demand) -> Option<Spot>;
    /// The nodes as they are.
    fn hosts(&self) -> &[Host];
}

impl Policy for Packing {
    fn seat(&mut self, demand: &Demand) -> Option<Spot> {
        self.place(demand).filter(|spot| self.take(spot, demand))
    }

    fn hosts(&self) -> &[Host] {
        Packing::hosts(self)
    }
}

fn fitting<'a>(host: &'a Host, demand: &'a Demand) -> impl Iterator<Item = usize> + 'a {
    host.gpus().iter().enumerate().filter(|(_, left)| **left >= demand.gpu_milli).map(|(at, _)| at)
}

/// Whole GPUs: the first ones. A share: the fullest GPU that has room.
fn tightest(host: &Host, demand: &Demand) -> GpuSet {
    if demand.gpus == 1 && demand.gpu_milli < WHOLE {
        return GpuSet::of(fitting(host, demand).min_by_key(|at| host.gpus()[*at]));
    }
    GpuSet::of(fitting(host, demand).take(demand.gpus.into()))
}

/// Any node that has room, and any of its GPUs.
pub struct Random {
    hosts: Vec<Host>,
    dice: Dice,
}

impl Random {
    /// On these nodes.
    pub fn new(hosts: Vec<Host>, seed: u64) -> Self {
        Self { hosts, dice: Dice::of(seed, 2) }
    }
}

impl Policy for Random {
    fn seat(&mut self, demand: &Demand) -> Option<Spot> {
        let open: Vec<usize> = (0..self.hosts.len()).filter(|at| self.hosts[*at].fits(demand)).collect();
        let host = *open.get(self.dice.below(open.len() as u64) as usize)?;
        let gpus = if demand.gpus == 1 && demand.gpu_milli < WHOLE {
            let room: Vec<usize> = fitting(&self.hosts[host], demand).collect();
            GpuSet::of([room[self.dice.below(room.len() as u64) as usize]])
        } else {
            tightest(&self.hosts[host], demand)
        };
        self.hosts[host].take(demand, gpus).then_some(Spot { host, gpus })
    }

    fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

/// How well a demand suits a node that has room for it: whole numbers, as a plugin of Kubernetes gives.
pub trait Score {
    /// The score and the GPUs.
    fn score(&self, host: &Host, demand: &Demand) -> (i64, GpuSet);
}

/// The score of a node for a shape, where that fits, and of which change of the node it is.
type Seen = (u32, Option<(i64, GpuSet)>);

/// The node with the best score, of equals the first in order, as the paper's fork of the scheduler of Kubernetes does.
pub struct Ranked<S> {
    hosts: Vec<Host>,
    score: S,
    changes: Vec<u32>,
    scored: BTreeMap<Demand, Vec<Seen>>,
}

impl<S: Score> Ranked<S> {
    /// On these nodes.
    pub fn new(hosts: Vec<Host>, score: S) -> Self {
        Self { changes: vec![1; hosts.len()], hosts, score, scored: BTreeMap::new() }
    }
}

impl<S: Score> Policy for Ranked<S> {
    fn seat(&mut self, demand: &Demand) -> Option<Spot> {
        let scored = self.scored.entry(*demand).or_insert_with(|| vec![(0, None); self.hosts.len()]);
        let mut best: Option<(i64, Spot)> = None;
        for (host, (seen, score)) in scored.iter_mut().enumerate() {
            if *seen != self.changes[host] {
                *seen = self.changes[host];
                *score = self.hosts[host].fits(demand).then(|| self.score.score(&self.hosts[host], demand));
            }
            let Some((score, gpus)) = *score else { continue };
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, Spot { host, gpus }));
            }
        }
        let (_, spot) = best?;
        self.changes[spot.host] += 1;
        self.hosts[spot.host].take(demand, spot.gpus).then_some(spot)
    }

    fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

/// The node on which the least is left over: CPUs of 128 and GPUs of 8, half each. (That Kubernetes stretches scores to 0..100 keeps their order
/// and their ties.)
pub struct BestFit;

impl Score for BestFit {
    fn score(&self, host: &Host, demand: &Demand) -> (i64, GpuSet) {
        let cpu = (host.cpu_milli() - demand.cpu_milli) as f64 / 128_000.0;
        let gpu = (u64::from(host.gpu_milli()) - demand.gpu_milli_whole()) as f64 / 8_000.0;
        (((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0) as i64, tightest(host, demand))
    }
}

/// The node and GPU where fragmentation grows least, through a sigmoid and rounded down to 0..100.
pub struct Fgd(pub Targets);

impl Score for Fgd {
    fn score(&self, host: &Host, demand: &Demand) -> (i64, GpuSet) {
        let before = self.0.fragment(host);
        let scored = |gpus: GpuSet| {
            let mut after = *host;
            after.take(demand, gpus);
            let less = before - self.0.fragment(&after);
            ((100.0 / (1.0 + (-less / 1_000.0).exp())) as i64, gpus)
        };
        if demand.gpus != 1 || demand.gpu_milli == WHOLE {
            return scored(tightest(host, demand));
        }
        let each = fitting(host, demand).map(|at| scored(GpuSet::of([at])));
        each.reduce(|best, next| if next.0 > best.0 { next } else { best }).unwrap_or_default()
    }
}
