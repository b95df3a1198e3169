//! What the scheduler's decisions cost at a size: nodes by the thousand, all of them in use, and a hundred thousand jobs that wait.
//!
//! The very core that the service runs, with the policy of the service, over a ledger in memory: nothing is written to a disk and nobody is asked. So
//! the figures are what a decision costs, and the service's own figures stand beside them elsewhere.
//!
//! - *Full cycle*: everything waits, nothing runs; looks until there is nothing more to say. Every decision is folded before the next look, as the
//!   leader does.
//! - *One by one*: all is in use; a job ends, and what follows from it is decided to the end. The time of each such step, its folds included.
//! - *In batches*: as many ends at once as a busy cluster reports in one look.

mod cluster;

pub use cluster::{node_shape, one_job};

use crate::report::Report;
use anyhow::{Result, ensure};
use clap::Args;
use cluster::{Cluster, Mix};
use std::time::{Duration, Instant};

/// What `cycle` takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// How many nodes
    #[arg(long, default_value_t = 10_000)]
    pub nodes: u32,
    /// How many GPUs, on all nodes together
    #[arg(long, default_value_t = 80_000)]
    pub gpus: u32,
    /// How many jobs wait
    #[arg(long, default_value_t = 100_000)]
    pub pending: u32,
    /// How many jobs end one by one
    #[arg(long, default_value_t = 2_000)]
    pub steps: u32,
    /// How many jobs end at once where they end in batches
    #[arg(long, default_value_t = 200)]
    pub batch: u32,
    /// How long those that are left have waited, in seconds, when jobs begin to end: beyond the patience nodes are kept for the first of them
    #[arg(long, default_value_t = 3_600)]
    pub waited: u64,
    /// Sizes at which the growth of the costs is shown; 0 shows none
    #[arg(long, value_delimiter = ',', default_value = "1000,3000,10000,30000", value_name = "NODES,...")]
    pub growth: Vec<u32>,
    /// Seed of the jobs and of which of them end
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

/// What one size has cost.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Jobs that the full cycle has decided on: placed, or told why they wait.
    pub decided: u64,
    /// Of these the ones that were placed.
    pub placed: u64,
    /// The time of the full cycle, folds included.
    pub cycle: Duration,
    /// Of it the looks alone.
    pub looks: Duration,
    /// How many looks that were.
    pub looked: u64,
    /// Of every step of one end, from the report to the last thing decided, sorted.
    pub steps: Vec<Duration>,
    /// Decisions of the batches, jobs placed among them, and their time.
    pub in_batches: (u64, u64, Duration),
}

impl Cost {
    fn per_s(count: u64, took: Duration) -> f64 {
        count as f64 / took.as_secs_f64().max(1e-9)
    }

    fn at(&self, part: f64) -> f64 {
        let last = self.steps.len().saturating_sub(1);
        let at = (part * last as f64).round() as usize;
        self.steps.get(at).map_or(0.0, |step| step.as_secs_f64() * 1e3)
    }
}

/// Decides and folds until there is nothing more to say; how many jobs were decided on, and how many of them placed.
fn to_rest(cluster: &mut Cluster, cost: Option<&mut Cost>) -> Result<(u64, u64)> {
    let (mut decided, mut placed, mut looks, mut looked) = (0, 0, Duration::ZERO, 0);
    loop {
        let (decisions, took) = cluster.look();
        looks += took;
        looked += 1;
        if decisions.is_empty() {
            break;
        }
        decided += decisions.len() as u64;
        placed += cluster.take(decisions);
        ensure!(looked < 1_000_000, "the cycle does not come to rest");
    }
    if let Some(cost) = cost {
        (cost.looks, cost.looked) = (looks, looked);
    }
    Ok((decided, placed))
}

/// Measures one size.
pub fn measure(mix: &Mix, (steps, batch): (u32, u32), waited: Duration) -> Result<Cost> {
    let mut cost = Cost::default();
    let mut cluster = Cluster::new(mix);
    let begun = Instant::now();
    (cost.decided, cost.placed) = to_rest(&mut cluster, Some(&mut cost))?;
    cost.cycle = begun.elapsed();
    // What is placed comes to run, so that what ends later has run.
    cluster.obey_all();
    to_rest(&mut cluster, None)?;
    cluster.check()?;
    cluster.wait(waited);
    // Limits have run out meanwhile: who is stopped ends, who takes his place starts.
    for _ in 0..3 {
        to_rest(&mut cluster, None)?;
        cluster.obey_all();
    }
    to_rest(&mut cluster, None)?;
    for _ in 0..steps {
        let Some(ends) = cluster.next_ends(1) else { break };
        let begun = Instant::now();
        cluster.report(ends);
        to_rest(&mut cluster, None)?;
        cost.steps.push(begun.elapsed());
        cluster.obey_all();
        to_rest(&mut cluster, None)?;
    }
    cost.steps.sort_unstable();
    for _ in 0..(steps / batch.max(1)).max(3) {
        let Some(ends) = cluster.next_ends(batch) else { break };
        let begun = Instant::now();
        cluster.report(ends);
        let (decided, placed) = to_rest(&mut cluster, None)?;
        cost.in_batches.0 += decided;
        cost.in_batches.1 += placed;
        cost.in_batches.2 += begun.elapsed();
        cluster.obey_all();
        to_rest(&mut cluster, None)?;
    }
    cluster.check()?;
    Ok(cost)
}

/// The peak of this process's memory, in MiB; none where the system does not tell.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib / 1_024.0)
}

/// Runs it.
pub fn run(options: &Options) -> Result<Report> {
    ensure!(options.nodes > 0 && options.gpus >= options.nodes, "--gpus {}: at least one a node ({} nodes)", options.gpus, options.nodes);
    ensure!(options.gpus / options.nodes <= 16, "--gpus {}: at most 16 a node ({} nodes)", options.gpus, options.nodes);
    let mut report = Report::of("cycle");
    let mix = Mix { nodes: options.nodes, gpus_per_node: options.gpus / options.nodes, pending: options.pending, seed: options.seed };
    let waited = Duration::from_secs(options.waited);
    let cost = measure(&mix, (options.steps, options.batch), waited)?;
    let rss = peak_mib();
    report.line(format!("{} nodes, {} GPUs, {} jobs: everything waits", mix.nodes, options.gpus, mix.pending));
    report.line(format!(
        "  full cycle   {:.2} s ({} looks, {:.2} s in them): {} placed, {} told why they wait",
        cost.cycle.as_secs_f64(),
        cost.looked,
        cost.looks.as_secs_f64(),
        cost.placed,
        cost.decided - cost.placed
    ));
    let (decided, placed, took) = cost.in_batches;
    let batch = options.batch;
    report.line(format!(
        "  in batches   {decided} decisions, {placed} placed among them, in {:.3} s, {batch} ends at once",
        took.as_secs_f64()
    ));
    report.line(format!("  one by one   p50 {:.3} ms, p99 {:.3} ms, most {:.3} ms", cost.at(0.5), cost.at(0.99), cost.at(1.0)));
    let (all, placements) = (Cost::per_s(cost.decided, cost.cycle), Cost::per_s(cost.placed, cost.cycle));
    report.line(format!(
        "  decisions    {all:.0}/s in the full cycle, {placements:.0}/s of them placements; {:.0}/s in batches",
        Cost::per_s(decided, took)
    ));
    report.number("full_cycle_s", cost.cycle.as_secs_f64());
    report.number("looks_s", cost.looks.as_secs_f64());
    // Jobs decided on a second, their folds included: each of them placed, or told why it waits.
    report.number("core_decisions_per_s", all);
    report.number("full_cycle_placements_per_s", placements);
    report.number("batch_decisions_per_s", Cost::per_s(decided, took));
    report.number("batch_placements_per_s", Cost::per_s(placed, took));
    report.number("incremental_p50_ms", cost.at(0.5));
    report.number("incremental_p99_ms", cost.at(0.99));
    if let Some(rss) = rss {
        report.line(format!("  memory       {rss:.0} MiB at its peak"));
        report.number("rss_mib", rss);
    }
    growth(options, &mix, &mut report)?;
    Ok(report)
}

/// The same at other sizes: as many GPUs a node, as many waiting jobs a node.
fn growth(options: &Options, mix: &Mix, report: &mut Report) -> Result<()> {
    let sizes: Vec<u32> = options.growth.iter().copied().filter(|nodes| *nodes > 0).collect();
    let mut worst: f64 = 0.0;
    let mut before: Option<(f64, f64)> = None;
    for nodes in sizes {
        let pending = (u64::from(mix.pending) * u64::from(nodes) / u64::from(mix.nodes)).max(1) as u32;
        let size = Mix { nodes, pending, ..*mix };
        let cost = measure(&size, (options.steps.min(500), options.batch), Duration::from_secs(options.waited))?;
        let took = cost.cycle.as_secs_f64();
        report.line(format!("{nodes} nodes, {pending} jobs: full cycle {took:.2} s, one by one p99 {:.3} ms", cost.at(0.99)));
        report.number(format!("full_cycle_s_{nodes}"), took);
        report.number(format!("incremental_p99_ms_{nodes}"), cost.at(0.99));
        let floor = f64::from(nodes) * f64::from(nodes).log2();
        if let Some((floor_before, took_before)) = before {
            worst = worst.max((took / took_before) / (floor / floor_before));
        }
        before = Some((floor, took));
    }
    if worst > 0.0 {
        report.line(format!("growth: at worst {worst:.2} times that of n log n from one size to the next"));
        report.number("growth_over_n_log_n", worst);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_places_what_fits_and_tells_everybody_else_why_not() {
        let mix = Mix { nodes: 20, gpus_per_node: 8, pending: 300, seed: 7 };
        let cost = measure(&mix, (50, 10), Duration::from_secs(3_600)).unwrap();
        assert!(cost.placed > 0 && cost.decided >= 300, "{cost:?}");
        assert_eq!(cost.steps.len(), 50, "there is always somebody who can end");
        assert!(cost.in_batches.1 > 0, "what ends makes room");
    }
}
