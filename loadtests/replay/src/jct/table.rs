//! The figures of a replay, and the table of all of them.

use super::audit::Audit;
use super::philly::Trace;
use super::world::{Preemption, World};
use super::{PATIENCE_S, Policy, STARVED_S};
use crate::report::Report;
use serde_json::json;
use std::time::Duration;

/// What came out of one replay. Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Completion: from the submission to the end. Mean, half, 99 of 100.
    pub jct_s: [f64; 3],
    /// All the time a job does not run. Mean, half, 99 of 100.
    pub wait_s: [f64; 3],
    /// The longest wait in one stretch.
    pub longest_stretch_s: u64,
    /// Jobs that waited longer than [`STARVED_S`] in one stretch.
    pub starved: u64,
    /// Jobs that never ended: none, or the policy is broken.
    pub unfinished: u64,
    /// The part of all GPUs that was held while the trace submitted.
    pub utilisation: f64,
    /// Jain's index over the VCs of what they were given of what they were entitled to.
    pub fairness: f64,
    /// Times that a VC was kept from what it is entitled to for longer than the grace.
    pub quota_violations: u64,
    /// How often jobs were stopped.
    pub stops: u64,
    /// GPU-hours lost by that.
    pub lost_gpu_h: f64,
    /// Events of virtual time.
    pub events: u64,
    /// Processor time the replay took, in seconds.
    pub took_s: f64,
}

impl Figures {
    /// The figures of a world that has come to its end.
    pub(super) fn of(world: &World, took: Duration) -> Self {
        let (mut jct, mut wait) = (Vec::new(), Vec::new());
        let mut figures = Self {
            utilisation: world.audit.utilisation(),
            fairness: world.audit.fairness(),
            quota_violations: world.audit.quota_violations,
            stops: world.audit.stops,
            lost_gpu_h: world.audit.lost_gpu_s as f64 / 3_600.0,
            events: world.events,
            took_s: took.as_secs_f64(),
            ..Self::default()
        };
        for (job, standing) in world.jobs.iter().zip(&world.standings) {
            let Some(ended_s) = standing.ended_s else {
                figures.unfinished += 1;
                continue;
            };
            jct.push(ended_s - job.submitted_s);
            wait.push(ended_s - job.submitted_s - job.takes_s);
            figures.longest_stretch_s = figures.longest_stretch_s.max(standing.longest_wait_s);
            figures.starved += u64::from(standing.longest_wait_s > STARVED_S);
        }
        figures.jct_s = spread(jct);
        figures.wait_s = spread(wait);
        figures
    }
}

/// Mean, half, 99 of 100.
fn spread(mut values: Vec<u64>) -> [f64; 3] {
    values.sort_unstable();
    let at = |part: usize| values.get((values.len() * part / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(0) as f64;
    let mean = values.iter().map(|value| *value as f64).sum::<f64>() / values.len().max(1) as f64;
    [mean, at(50), at(99)]
}

/// Writes the table, and what is to be seen in it.
pub(super) fn write(report: &mut Report, trace: &Trace, gpus: &[u32], runs: &[(u32, Policy, Figures)]) {
    let preemption = Preemption::default();
    report.key("jobs", json!(trace.jobs.len()));
    report.key("preemption_cost_s", json!(preemption.cost_s));
    report.key("minimum_run_s", json!(preemption.minimum_run_s));
    report.key("quota_grace_s", json!(Audit::grace_s(preemption)));
    report.key("patience_s", json!(PATIENCE_S));
    report.key("starved_s", json!(STARVED_S));
    for gpus in gpus {
        report.line(format!("{gpus} GPUs, load {:.2}", load(trace, *gpus)));
        report.line(format!(
            "  {:20}{:>10}{:>9}{:>10}{:>10}{:>9}{:>10}{:>6}{:>6}{:>11}{:>8}{:>9}{:>8}",
            "", "JCT mean", "p50", "p99", "wait mean", "p50", "p99", "util", "Jain", "violations", "starved", "longest", "stops"
        ));
        runs.iter().filter(|(on, ..)| on == gpus).for_each(|(_, policy, figures)| row(report, *gpus, *policy, figures));
    }
    let ours: Vec<&Figures> =
        runs.iter().filter(|(_, policy, _)| *policy == Policy::Ours { quotas: true }).map(|(.., figures)| figures).collect();
    let with_quotas = [Policy::Fifo, Policy::Easy, Policy::Las { quotas: true }];
    let without = [Policy::Fifo, Policy::Easy, Policy::Las { quotas: false }];
    let best = is_best(runs, Policy::Ours { quotas: true }, &with_quotas) && is_best(runs, Policy::Ours { quotas: false }, &without);
    let violations: u64 = ours.iter().map(|figures| figures.quota_violations).sum();
    let starved: u64 = ours.iter().map(|figures| figures.starved).sum();
    let unfinished: u64 = runs.iter().map(|(.., figures)| figures.unfinished).sum();
    let price = is_best(runs, Policy::Ours { quotas: true }, &[Policy::Las { quotas: false }]);
    report.key("best_non_oracle_at_every_load", json!(best));
    report.key("ours_with_quotas_beats_las_without", json!(price));
    report.key("quota_violations", json!(violations));
    report.key("starved", json!(starved));
    report.key("unfinished", json!(unfinished));
    report.must(violations == 0, format!("ours kept an owner from its quota {violations} times"));
    report.must(starved == 0, format!("ours starved {starved} jobs"));
    report.must(unfinished == 0, format!("{unfinished} jobs never ended"));
    report.line(format!("ours waits less than every other without an oracle, quotas like with like, at every load: {best}"));
    report.line(format!("ours with quotas waits less than least attained service without: {price} (what quotas cost the mean)"));
    report.line(format!("ours: {violations} quota violations, {starved} starved"));
}

fn row(report: &mut Report, gpus: u32, policy: Policy, figures: &Figures) {
    let key = |name: &str| format!("{}_{name}_{gpus}", policy.key());
    for (name, three) in [("jct", figures.jct_s), ("wait", figures.wait_s)] {
        for (part, value) in ["mean", "p50", "p99"].into_iter().zip(three) {
            report.number(key(&format!("{name}_{part}_s")), value);
        }
    }
    report.number(key("utilisation"), figures.utilisation);
    report.number(key("fairness"), figures.fairness);
    report.key(key("quota_violations"), json!(figures.quota_violations));
    report.key(key("starved"), json!(figures.starved));
    report.key(key("longest_stretch_s"), json!(figures.longest_stretch_s));
    report.key(key("stops"), json!(figures.stops));
    report.number(key("lost_gpu_h"), figures.lost_gpu_h);
    report.number(key("took_s"), figures.took_s);
    let hours = |seconds: f64| format!("{:.2} h", seconds / 3_600.0);
    let [jct, jct_half, jct_most] = figures.jct_s.map(hours);
    let [wait, wait_half, wait_most] = figures.wait_s.map(hours);
    let days = format!("{:.1} d", figures.longest_stretch_s as f64 / 86_400.0);
    report.line(format!(
        "  {:20}{jct:>10}{jct_half:>9}{jct_most:>10}{wait:>10}{wait_half:>9}{wait_most:>10}{:>6.3}{:>6.3}{:>11}{:>8}{days:>9}{:>8}",
        policy.key(),
        figures.utilisation,
        figures.fairness,
        figures.quota_violations,
        figures.starved,
        figures.stops
    ));
}

/// Whether a policy's mean wait is below that of each of others, wherever both were replayed.
fn is_best(runs: &[(u32, Policy, Figures)], ours: Policy, others: &[Policy]) -> bool {
    let mine = runs.iter().filter(|(_, policy, _)| *policy == ours);
    mine.into_iter().all(|(gpus, _, figures)| {
        let theirs = runs.iter().filter(|(on, policy, _)| on == gpus && others.contains(policy));
        theirs.into_iter().all(|(.., other)| figures.wait_s[0] < other.wait_s[0])
    })
}

/// GPU-time asked for while the trace submits, of that which there is.
fn load(trace: &Trace, gpus: u32) -> f64 {
    let until_s = trace.jobs.last().map_or(0, |job| job.submitted_s);
    let work: f64 = trace.jobs.iter().map(|job| job.work() as f64).sum();
    work / (f64::from(gpus) * until_s.max(1) as f64)
}
