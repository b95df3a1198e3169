//! What a node's idle GPUs are worth: how much of them is expected to stay idle for good.

use super::demand::{Class, WHOLE};
use super::host::Host;

/// How many kinds of remainders, of CPUs per GPU and of CPUs are told apart at most.
const REMAINDERS_MOST: usize = 48;
const RATIOS_MOST: usize = 11;
const CPUS_MOST: usize = 7;

/// For every kind of situation of a GPU, how much of it is expected to stay idle for good, in millionths of a GPU.
///
/// The situation: what is left of the GPU, as far as the expected classes can tell remainders apart; how many CPUs its node has left for each
/// idle GPU; and how many CPUs the node has left at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// By the thousandths left of a GPU, which kind of remainder that is.
    kinds: Vec<u8>,
    remainders: usize,
    /// Bounds of thousandths of a CPU for each idle GPU of the node, ascending.
    ratios: Vec<u64>,
    /// Bounds of the node's thousandths of CPUs, ascending.
    cpus: Vec<u64>,
    idle: Vec<i32>,
}

impl Prices {
    /// What can be said from the classes alone: a GPU stays idle as far as the next request cannot run on it, for want of the GPU or of
    /// CPUs. This is the fragmentation of the paper, for each GPU by itself, with all classes that ask for GPUs.
    pub fn expecting(classes: &[Class]) -> Self {
        let on_gpus: Vec<&Class> = classes.iter().filter(|class| class.demand.gpu_milli_whole() > 0).collect();
        let parts = on_gpus.iter().map(|class| (u64::from(class.demand.gpu_milli), class.weight));
        let bounds = quantiles(parts, REMAINDERS_MOST);
        let ratio = |class: &&Class| class.demand.cpu_milli * u64::from(WHOLE) / class.demand.gpu_milli_whole();
        let ratios = quantiles(on_gpus.iter().map(|class| (ratio(class), class.weight)), RATIOS_MOST);
        let cpus = quantiles(on_gpus.iter().map(|class| (class.demand.cpu_milli, class.weight)), CPUS_MOST);
        let kinds = (0..=u64::from(WHOLE)).map(|left| bounds.partition_point(|bound| *bound <= left) as u8).collect();
        let mut prices = Self { kinds, remainders: bounds.len() + 1, ratios, cpus, idle: Vec::new() };
        let weight: u64 = on_gpus.iter().map(|class| class.weight).sum::<u64>().max(1);
        let least = |bounds: &[u64], kind: usize| if kind == 0 { bounds.first().map_or(0, |first| first / 2) } else { bounds[kind - 1] };
        for _ in 0..=prices.ratios.len() {
            for cpu in 0..=prices.cpus.len() {
                for kind in 0..prices.remainders {
                    let (left, cpu_milli) = (least(&bounds, kind), least(&prices.cpus, cpu));
                    let wants_more = |class: &&&Class| u64::from(class.demand.gpu_milli) > left || class.demand.cpu_milli > cpu_milli;
                    let idle: u64 = on_gpus.iter().filter(wants_more).map(|class| class.weight).sum();
                    prices.idle.push((u128::from(idle) * u128::from(left) * 1_000 / u128::from(weight)) as i32);
                }
            }
        }
        prices
    }

    /// How many situations there are.
    pub(super) fn len(&self) -> usize {
        self.idle.len()
    }

    pub(super) fn idle_mut(&mut self) -> &mut [i32] {
        &mut self.idle
    }

    pub(super) fn idle(&self) -> &[i32] {
        &self.idle
    }

    fn row(&self, host: &Host) -> usize {
        let left = host.gpu_milli();
        let ratio = (host.cpu_milli() * u64::from(WHOLE)).checked_div(left.into()).unwrap_or(u64::MAX);
        let ratio = self.ratios.partition_point(|bound| *bound <= ratio);
        let cpu = self.cpus.partition_point(|bound| *bound <= host.cpu_milli());
        (ratio * (self.cpus.len() + 1) + cpu) * self.remainders
    }

    /// The situation of every GPU of a node that is not full: its position and the situation's number.
    pub(super) fn situations<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = (usize, usize)> + 'a {
        let row = self.row(host);
        let open = host.gpus().iter().enumerate().filter(|(_, left)| **left > 0);
        open.map(move |(at, left)| (at, row + usize::from(self.kinds[usize::from(*left)])))
    }

    /// What is expected to stay idle of a node's GPUs, in millionths of a GPU.
    pub fn of(&self, host: &Host) -> i32 {
        let row = &self.idle[self.row(host)..][..self.remainders];
        let of_gpu = |left: &u16| row[usize::from(self.kinds[usize::from(*left)])].min(i32::from(*left) * 1_000);
        host.gpus().iter().map(of_gpu).sum()
    }
}

/// At most `most` of the values, ascending: all of them where they are few, else those that part the weights evenly.
fn quantiles(values: impl Iterator<Item = (u64, u64)>, most: usize) -> Vec<u64> {
    let mut values: Vec<(u64, u64)> = values.collect();
    values.sort_unstable();
    let mut distinct = values.clone();
    distinct.dedup_by_key(|(value, _)| *value);
    if distinct.len() <= most {
        return distinct.into_iter().map(|(value, _)| value).collect();
    }
    let whole: u64 = values.iter().map(|(_, weight)| *weight).sum();
    let (mut bounds, mut seen) = (Vec::new(), 0);
    for (value, weight) in values {
        if seen * most as u64 >= bounds.len() as u64 * whole && bounds.last() != Some(&value) {
            bounds.push(value);
        }
        seen += weight;
    }
    bounds
}
