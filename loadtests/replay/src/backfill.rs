//! Orders and backfill on the Lublin workloads: the published table, reproduced by the core's plans, and the core's default beside it.
//!
//! 256 one-GPU slots, windows of 1,024 jobs; the measure is the mean bounded slowdown of a window, averaged over ten windows. What
//! policies know of a job's length is what it asked for.

pub mod machine;
pub mod policies;
pub mod published;
pub mod swf;
pub mod windows;

use crate::report::Report;
use crate::trace::Data;
use anyhow::{Context, Result, ensure};
use clap::Args;
use footplate_scheduler_core::plan::Backfill;
use machine::{Past, Policy, replay};
use policies::{InOrder, Named, Published};
use serde_json::json;
use swf::Workload;

/// What `backfill` takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// How many of the published windows to replay; the published figures take all ten
    #[arg(long, default_value_t = windows::COUNT, value_name = "N")]
    pub windows: usize,
    /// Where the traces are.
    #[command(flatten)]
    pub data: Data,
}

/// Replays the published policies and the default, and compares.
pub fn run(options: &Options) -> Result<Report> {
    ensure!((1..=windows::COUNT).contains(&options.windows), "{} of {} windows cannot be", options.windows, windows::COUNT);
    let workloads: Vec<Workload> = published::TRACES
        .iter()
        .map(|trace| swf::parse(&options.data.text(trace)?).with_context(|| format!("cannot understand {trace}")))
        .collect::<Result<_>>()?;
    for (workload, trace) in workloads.iter().zip(published::TRACES) {
        ensure!(!windows::starts(workload.jobs.len(), 1).is_empty(), "{trace} is too short for a window");
    }
    let mut report = Report::of("backfill");
    table(&mut report, &workloads, options.windows);
    default(&mut report, &workloads, options.windows);
    held_out(&mut report, &workloads, options.windows);
    Ok(report)
}

/// What a policy made of some windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// The mean over the windows of the mean bounded slowdown of their jobs.
    pub slowdown: f64,
    /// The longest that any job of any window waited, in seconds.
    pub longest_wait_s: u64,
}

/// Replays windows, each on a machine of its own under a policy of its own.
pub fn replay_windows<P: Policy>(workload: &Workload, starts: &[usize], policy: impl Fn() -> P) -> Figures {
    let mut figures = Figures::default();
    for start in starts {
        let end = (start + windows::JOBS).min(workload.jobs.len());
        let past = replay(&workload.jobs[*start..end], workload.units, &mut policy());
        figures.slowdown += past.iter().map(Past::bounded_slowdown).sum::<f64>() / past.len() as f64 / starts.len() as f64;
        let longest = past.iter().map(Past::waited_s).max().unwrap_or(0);
        figures.longest_wait_s = figures.longest_wait_s.max(longest);
    }
    figures
}

/// The published table, and the same policies with true EASY.
fn table(report: &mut Report, workloads: &[Workload], count: usize) {
    report.line("mean bounded slowdown; in brackets what RLScheduler (SC 2020) prints");
    report.line(format!("{:22}{:>22}{:>22}{:>22}", "", "FCFS", "SJF", "F1"));
    let mut reproduced = true;
    for (trace, workload) in workloads.iter().enumerate() {
        for backfill in [Backfill::None, Backfill::EndsBefore, Backfill::Easy] {
            let (key, called) = names(backfill);
            let column = published::COLUMNS.iter().find(|column| column.trace == trace && column.backfill == backfill);
            let mut line = format!("Lublin-{} {called:13}", trace + 1);
            for (at, order) in Named::ALL.into_iter().enumerate() {
                let starts = windows::starts(workload.jobs.len(), count);
                let figures = replay_windows(workload, &starts, || Published::new(order, backfill));
                let name = format!("{key}_{}_{}", order.name(), trace + 1);
                report.number(&name, figures.slowdown);
                report.key(format!("{name}_longest_wait_s"), json!(figures.longest_wait_s));
                let printed = column.map(|column| column.printed[at]);
                if let Some(printed) = printed {
                    let same = format!("{:.2}", figures.slowdown) == format!("{printed:.2}");
                    report.key(format!("{name}_published"), json!(printed));
                    report.must(same, format!("{name} is {:.4}, and {printed} is published", figures.slowdown));
                    reproduced &= same;
                }
                let beside = printed.map_or_else(|| " ".repeat(10), |printed| format!(" ({printed:.2})"));
                line += &format!("{:>12.2}{beside:<10}", figures.slowdown);
            }
            report.line(line);
        }
    }
    report.key("published_reproduced", json!(reproduced));
    report.line(format!("published figures reproduced: {reproduced}"));
}

/// Under which key, and how a reader knows it.
fn names(backfill: Backfill) -> (&'static str, &'static str) {
    match backfill {
        Backfill::None => ("none", "none"),
        Backfill::EndsBefore => ("backfill", "as published"),
        Backfill::Easy => ("easy", "true EASY"),
        Backfill::Conservative => ("conservative", "conservative"),
    }
}

/// The core's default on the published windows.
fn default(report: &mut Report, workloads: &[Workload], count: usize) {
    let mut beats = true;
    report.line("");
    report
        .line("the default (the smallest first, aged by a day a doubling; eight conservative reservations), beside the best of the table");
    for (trace, workload) in workloads.iter().enumerate() {
        let starts = windows::starts(workload.jobs.len(), count);
        let ours = replay_windows(workload, &starts, InOrder::default);
        let fcfs = |backfill| replay_windows(workload, &starts, || Published::new(Named::Fcfs, backfill)).longest_wait_s;
        let (plain, easy, best) = (fcfs(Backfill::None), fcfs(Backfill::Easy), published::best(trace));
        let number = trace + 1;
        report.number(format!("default_bsld_{number}"), ours.slowdown);
        report.number(format!("best_published_bsld_{number}"), best);
        report.key(format!("default_longest_wait_s_{number}"), json!(ours.longest_wait_s));
        report.line(format!(
            "Lublin-{number}: {:.2} ({best:.2}); longest wait {} h, FCFS {} h, FCFS with EASY {} h",
            ours.slowdown,
            ours.longest_wait_s / 3_600,
            plain / 3_600,
            easy / 3_600
        ));
        beats &= ours.slowdown < best;
    }
    report.key("default_beats_published", json!(beats));
}

/// The default on windows that nobody has published: what was chosen on some windows must hold on others.
fn held_out(report: &mut Report, workloads: &[Workload], count: usize) {
    report.line("");
    let spread = 24 * count / windows::COUNT;
    report.line(format!("on {spread} windows spread over each trace:"));
    for (trace, workload) in workloads.iter().enumerate() {
        let starts = windows::spread(workload.jobs.len(), spread);
        let sjf = replay_windows(workload, &starts, || Published::new(Named::Sjf, Backfill::EndsBefore));
        let fcfs = replay_windows(workload, &starts, || Published::new(Named::Fcfs, Backfill::None));
        let ours = replay_windows(workload, &starts, InOrder::default);
        let number = trace + 1;
        for (name, figures) in [("default", ours), ("backfill_sjf", sjf), ("none_fcfs", fcfs)] {
            report.number(format!("spread_{name}_bsld_{number}"), figures.slowdown);
            report.key(format!("spread_{name}_longest_wait_s_{number}"), json!(figures.longest_wait_s));
        }
        report.line(format!(
            "Lublin-{number}: default {:.2}, SJF as published {:.2}; longest waits {} h and {} h, FCFS without backfill {} h",
            ours.slowdown,
            sjf.slowdown,
            ours.longest_wait_s / 3_600,
            sjf.longest_wait_s / 3_600,
            fcfs.longest_wait_s / 3_600
        ));
    }
}
