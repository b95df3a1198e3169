//! Periodic samples of host and GPUs, as points of the series of `node:<name>`; and changes of health.

use super::{gpu, host};
use crate::aside::Aside;
use footplate_events::facts::NodeHealthChanged;
use footplate_series::Point;
use footplate_types::{GpuUuid, MetricName};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

/// Free disk below which the node is not healthy.
const DISK_LEAST_BYTES: u64 = 512 << 20;
/// Free disk at which it is again.
const DISK_ENOUGH_BYTES: u64 = 1 << 30;

/// One look.
#[derive(Debug, Default)]
pub struct Seen {
    /// The points.
    pub points: Vec<(MetricName, Point)>,
    /// What turned unhealthy, or healthy again, since the look before; after [`Sampler::tell_all`] how everything stands.
    pub changed: Vec<NodeHealthChanged>,
}

/// Looks, and remembers what it takes to tell changes.
#[derive(Debug)]
pub struct Sampler {
    work: PathBuf,
    aside: Arc<Aside>,
    cpu: Option<(u64, u64)>,
    disk_low: bool,
    lost: BTreeMap<String, bool>,
    /// The next look tells how everything stands, changed or not.
    tells_all: bool,
}

impl Sampler {
    /// A sampler that watches the disk of `work`, and what is dropped of what could not be delivered.
    pub(crate) fn new(work: PathBuf, aside: Arc<Aside>) -> Self {
        Self { work, aside, cpu: host::cpu_ticks(), disk_low: false, lost: BTreeMap::new(), tells_all: false }
    }

    /// Has the next look tell how everything stands: what was told by an earlier agent, or to an earlier generation, may not hold any more.
    pub fn tell_all(&mut self) {
        self.tells_all = true;
    }

    /// Looks. `time_ms` is the wall clock in milliseconds since 1970; the step is it in whole seconds. Blocking.
    pub fn look(&mut self, time_ms: i64) -> Seen {
        let mut seen = Seen::default();
        let mut add = |name: String, value: f64| {
            if let Ok(name) = MetricName::parse(&name) {
                seen.points.push((name, Point { step: time_ms / 1_000, time_ms, value }));
            }
        };
        let cpu = host::cpu_ticks();
        if let (Some((busy_before, all_before)), Some((busy, all))) = (self.cpu, cpu)
            && all > all_before
        {
            add("host/cpu_percent".to_owned(), 100.0 * busy.saturating_sub(busy_before) as f64 / (all - all_before) as f64);
        }
        self.cpu = cpu;
        if let Some(free) = host::free_memory_bytes() {
            add("host/memory_free_bytes".to_owned(), free as f64);
        }
        let disk = host::free_disk_bytes(&self.work);
        add("host/disk_free_bytes".to_owned(), disk as f64);
        add("agent/refused_dropped".to_owned(), self.aside.dropped() as f64);
        let gpus = gpu::sample();
        for gpu in &gpus {
            for (name, value) in &gpu.values {
                add(format!("gpu/{}/{name}", gpu.uuid), *value);
            }
        }
        self.changes(disk, &gpus, &mut seen.changed);
        seen
    }

    fn changes(&mut self, disk: u64, gpus: &[gpu::GpuSample], changed: &mut Vec<NodeHealthChanged>) {
        let all = std::mem::take(&mut self.tells_all);
        let low = if self.disk_low { disk < DISK_ENOUGH_BYTES } else { disk < DISK_LEAST_BYTES };
        if std::mem::replace(&mut self.disk_low, low) != low || all {
            let reason = format!("{disk} bytes of disk free under {}", self.work.display());
            changed.push(NodeHealthChanged { gpu: None, healthy: !low, reason });
        }
        for gpu in gpus {
            let before = self.lost.insert(gpu.uuid.clone(), gpu.lost).unwrap_or(false);
            if let (true, Ok(uuid)) = (all || before != gpu.lost, GpuUuid::parse(&gpu.uuid)) {
                let reason = if gpu.lost { "the driver has lost it" } else { "the driver has it" };
                changed.push(NodeHealthChanged { gpu: Some(uuid), healthy: !gpu.lost, reason: reason.to_owned() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler() -> Sampler {
        let work = PathBuf::from("/");
        let aside = Arc::new(Aside::new(&work, crate::AsideLimits::default()));
        Sampler::new(work, aside)
    }

    #[test]
    fn a_look_has_the_hosts_figures() {
        let mut sampler = sampler();
        let seen = sampler.look(1_700_000_000_123);
        let names: Vec<&str> = seen.points.iter().map(|(name, _)| name.as_str()).collect();
        assert!(
            ["host/memory_free_bytes", "host/disk_free_bytes", "agent/refused_dropped"].iter().all(|name| names.contains(name)),
            "{names:?}"
        );
        assert!(seen.points.iter().all(|(_, point)| point.step == 1_700_000_000 && point.time_ms == 1_700_000_000_123));
    }

    #[test]
    fn health_is_told_when_it_changes_and_only_then() {
        let mut sampler = sampler();
        let mut healths = |disk, lost| {
            let mut changed = Vec::new();
            let gpu = gpu::GpuSample { uuid: "GPU-1".to_owned(), values: Vec::new(), lost };
            sampler.changes(disk, &[gpu], &mut changed);
            changed.into_iter().map(|change| (change.gpu.is_some(), change.healthy)).collect::<Vec<_>>()
        };
        assert_eq!(healths(10 << 30, false), []);
        assert_eq!(healths(1 << 20, false), [(false, false)]);
        assert_eq!(healths(600 << 20, false), [], "no flapping around the limit");
        assert_eq!(healths(2 << 30, true), [(false, true), (true, false)]);
        assert_eq!(healths(2 << 30, true), []);
        assert_eq!(healths(2 << 30, false), [(true, true)]);
    }

    #[test]
    fn how_everything_stands_is_told_once_when_asked_changed_or_not() {
        let mut sampler = sampler();
        let mut healths = |ask: bool| {
            let mut changed = Vec::new();
            if ask {
                sampler.tell_all();
            }
            let uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef".to_owned();
            sampler.changes(10 << 30, &[gpu::GpuSample { uuid, values: Vec::new(), lost: false }], &mut changed);
            changed.into_iter().map(|change| (change.gpu.is_some(), change.healthy)).collect::<Vec<_>>()
        };
        assert_eq!(healths(false), []);
        assert_eq!(healths(true), [(false, true), (true, true)]);
        assert_eq!(healths(false), []);
    }
}
