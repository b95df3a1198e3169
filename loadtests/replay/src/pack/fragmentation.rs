//! The paper's measure of fragmentation: how much of a node's idle GPUs the frequent classes could not use.

use footplate_scheduler_core::pack::{Demand, Host};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The paper's target workload: the most frequent classes (memory apart) that make up 95 % of the pods, with their frequencies.
#[derive(Clone, Debug)]
pub struct Targets(Vec<(Demand, f64)>);

impl Targets {
    /// Of these pods.
    pub fn of<'a>(pods: impl IntoIterator<Item = &'a Demand>) -> Self {
        let mut counts: BTreeMap<Demand, u64> = BTreeMap::new();
        for demand in pods {
            *counts.entry(Demand { memory_bytes: 0, ..*demand }).or_default() += 1;
        }
        let all: u64 = counts.values().sum();
        let mut by_count: Vec<(Demand, u64)> = counts.into_iter().collect();
        by_count.sort_by_key(|(demand, count)| Reverse((*count, demand.cpu_milli, demand.gpu_milli, demand.gpus, demand.models)));
        let mut seen = 0;
        let frequent: Vec<(Demand, u64)> = by_count
            .into_iter()
            .take_while(|(_, count)| {
                let more = seen * 100 < all * 95;
                seen += if more { *count } else { 0 };
                more
            })
            .collect();
        Self(frequent.into_iter().map(|(demand, count)| (demand, count as f64 / seen as f64)).collect())
    }

    /// The expected fragment of a node, in thousandths of a GPU. All idle GPUs are one for a class that cannot run there (for want of GPUs
    /// or CPUs, or for their model) or asks for no GPU; for another the GPUs with less left than it asks of each.
    pub fn fragment(&self, host: &Host) -> f64 {
        let idle = f64::from(host.gpu_milli());
        if idle == 0.0 {
            return 0.0;
        }
        let of_class = |(demand, frequency): &(Demand, f64)| {
            if demand.gpus == 0 || !host.fits(demand) {
                return frequency * idle;
            }
            let small: u32 = host.gpus().iter().filter(|left| **left < demand.gpu_milli).map(|left| u32::from(*left)).sum();
            frequency * f64::from(small)
        };
        self.0.iter().map(of_class).sum()
    }
}
