//! One run: pods arrive one by one, nothing ever ends, what fits nowhere is dropped.

use super::arrivals::inflated;
use super::fragmentation::Targets;
use super::openb::{Cluster, Pod};
use super::policies::Policy;
use footplate_scheduler_core::pack::{Host, Spot};
use std::time::{Duration, Instant};

/// Up to which percent of the cluster's GPUs are asked for.
pub const ARRIVED_PERCENT: u64 = 130;

/// The state of a run after an arrival, all in thousandths of GPUs.
#[derive(Clone, Copy, Debug)]
struct Moment {
    arrived: u64,
    used: u64,
    fragment: f64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Past {
    gpu_milli: u64,
    moments: Vec<Moment>,
    /// Which pod arrived, by position, and where it went, by position in the cluster.
    pub placements: Vec<(usize, Option<Spot>)>,
    /// How long each decision took.
    pub took: Vec<Duration>,
    /// Pods that were refused though there was room.
    pub refused_wrongly: u32,
}

impl Past {
    /// The mean over the moments at which this percent of the GPUs had been asked for, to the nearest percent; of a cluster so small that
    /// there is no such moment, over the moments of the greatest percent below.
    fn mean(&self, percent: u64, value: impl Fn(&Moment) -> f64) -> f64 {
        let of_all = |milli: f64| milli / self.gpu_milli as f64 * 100.0;
        let when = |moment: &Moment| of_all(moment.arrived as f64).round_ties_even() as u64;
        let Some(percent) = self.moments.iter().map(when).filter(|when| *when <= percent).max() else { return 0.0 };
        let there = self.moments.iter().filter(|moment| when(moment) == percent);
        let (sum, count) = there.fold((0.0, 0u32), |(sum, count), moment| (sum + of_all(value(moment)), count + 1));
        sum / f64::from(count)
    }

    /// Used GPUs when `percent` had been asked for, in percent of all GPUs.
    pub fn allocated(&self, percent: u64) -> f64 {
        self.mean(percent, |moment| moment.used as f64)
    }

    /// Fragmented GPUs when `percent` had been asked for, in percent of all GPUs.
    pub fn fragmented(&self, percent: u64) -> f64 {
        self.mean(percent, |moment| moment.fragment)
    }
}

/// The order of nodes in a run, by position in the cluster: random, as the paper renames nodes for every run.
pub fn order_of_nodes(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    super::dice::Dice::of(seed, 3).shuffle(&mut order);
    order
}

/// Replays a trace with a seed; `policy` is made of the nodes in their order of this run.
pub fn replay<P: Policy>(cluster: &Cluster, pods: &[Pod], targets: &Targets, seed: u64, policy: impl FnOnce(Vec<Host>) -> P) -> Past {
    let order = order_of_nodes(cluster.hosts.len(), seed);
    let hosts: Vec<Host> = order.iter().map(|at| cluster.hosts[*at]).collect();
    let mut fragments: Vec<f64> = hosts.iter().map(|host| targets.fragment(host)).collect();
    let mut moment = Moment { arrived: 0, used: 0, fragment: fragments.iter().sum() };
    let mut policy = policy(hosts);
    let arrivals = inflated(pods, cluster.gpu_milli(), ARRIVED_PERCENT, seed);
    let gpu_milli = cluster.gpu_milli();
    let mut past = Past { gpu_milli, moments: Vec::new(), placements: Vec::new(), took: Vec::new(), refused_wrongly: 0 };
    for pod in arrivals {
        let demand = &pods[pod].demand;
        let began = Instant::now();
        let spot = policy.seat(demand);
        past.took.push(began.elapsed());
        moment.arrived += demand.gpu_milli_whole();
        match spot {
            Some(spot) => {
                let fragment = targets.fragment(&policy.hosts()[spot.host]);
                moment.fragment += fragment - std::mem::replace(&mut fragments[spot.host], fragment);
                moment.used += demand.gpu_milli_whole();
            }
            None => past.refused_wrongly += u32::from(policy.hosts().iter().any(|host| host.fits(demand))),
        }
        past.placements.push((pod, spot.map(|spot| Spot { host: order[spot.host], ..spot })));
        past.moments.push(moment);
    }
    past
}
