//! Who used the processors meanwhile: what bounds a figure on one machine.

use crate::figures::Figures;
use std::time::Duration;

/// Kernel clock ticks a second, which `/proc` counts in: 100 on every Linux that this runs on.
const TICKS_PER_S: f64 = 100.0;

/// Seconds of processor time that were used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// The platform's process: services and agent.
    platform: f64,
    /// Its broker.
    broker: f64,
    /// This program.
    load: f64,
    /// The whole machine.
    machine: f64,
}

impl Cpu {
    /// As of now; `platform` is the process whose child is the broker.
    pub(crate) fn of(platform: u32) -> Self {
        let broker = children(platform).filter(|(name, _)| name.starts_with("nats-server")).map(|(_, seconds)| seconds).sum();
        Self { platform: of_process(platform), broker, load: of_process(std::process::id()), machine: of_machine() }
    }

    /// What was used between.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            platform: self.platform - before.platform,
            broker: self.broker - before.broker,
            load: self.load - before.load,
            machine: self.machine - before.machine,
        }
    }
}

/// Tells each part's share of all processors.
pub(crate) fn tell(name: &str, used: &Cpu, took: Duration, figures: &mut Figures) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let share = |seconds: f64| (seconds / (took.as_secs_f64() * cpus)).clamp(0.0, 1.0);
    let rest = (used.machine - used.platform - used.broker - used.load).max(0.0);
    let parts = [("platform", used.platform), ("broker", used.broker), ("load", used.load), ("rest", rest)];
    for (part, seconds) in parts {
        figures.share(&format!("{name}_cpu_{part}"), &format!("  processors: {part}"), share(seconds));
    }
}

/// The fields of `/proc/<pid>/stat` after the name: the parent, and user and system time.
fn stat(pid: &str) -> Option<(String, u32, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((name, fields.get(1)?.parse().ok()?, (ticks(11)? + ticks(12)?) / TICKS_PER_S))
}

fn of_process(pid: u32) -> f64 {
    stat(&pid.to_string()).map_or(0.0, |(_, _, seconds)| seconds)
}

fn children(of: u32) -> impl Iterator<Item = (String, f64)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| stat(entry.file_name().to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))?));
    stats.filter(move |(_, parent, _)| *parent == of).map(|(name, _, seconds)| (name, seconds))
}

/// User, nice, system, interrupts: everything but idling and waiting.
fn of_machine() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6];
    busy.iter().filter_map(|at| fields.get(*at)).sum::<f64>() / TICKS_PER_S
}
