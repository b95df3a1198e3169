//! `simulate`: what would be, under this policy or that one. It asks no platform: the scheduler's own core decides here, in virtual time.

mod ledger;

use crate::{
    context::Context,
    jobfile,
    output::{Column, Exit, Failure, Style, length, render, tell},
};
use footplate_scheduler_simulate::{
    Arrival, Cluster, Habits, KNOBS, Outcome, Policy, Scenario, Spread, Stay, Use, Workload, page, policy, simulate, trace,
};
use footplate_types::{GpuMilli, Millis};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  footplate simulate --cluster cluster.yaml --workload week.yaml
  footplate simulate --cluster cluster.yaml --workload week.yaml --policy default --policy patience=1h --html week.html
  footplate simulate --cluster cluster.yaml --trace jobs.csv --preemptible --checkpoint-every 30m -o json
  footplate event tail --from 1 --aggregate job -o json > ledger.jsonl && footplate simulate --cluster cluster.yaml --ledger ledger.jsonl

The knobs of --policy, joined by commas: ready_within, patience, deadline_near, reservations_max, decisions_max, members_max.
The same files, seed and policies print the same bytes.";

/// The largest trace or ledger, in bytes.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Say how a workload would fare on a cluster, under one policy or several side by side
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(skip)]
pub struct Args {
    /// The cluster: nodes and queues (YAML)
    #[arg(long, value_name = "FILE")]
    pub cluster: PathBuf,
    /// The jobs: what they ask, when they come, how long they take (YAML)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["trace", "ledger"], conflicts_with_all = ["trace", "ledger"])]
    pub workload: Option<PathBuf>,
    /// The jobs as a trace: CSV with the header submit_s,duration_s,num_gpus,vc
    #[arg(long, value_name = "FILE", conflicts_with = "ledger")]
    pub trace: Option<PathBuf>,
    /// The jobs as a ledger tells of them, each as long as it ran: what `footplate event tail --from 1 -o json` prints
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Let every job of the trace be stopped for others
    #[arg(long)]
    pub preemptible: bool,
    /// The service's policy with these knobs turned; several times: side by side
    #[arg(long, value_name = "KNOB=VALUE,...", default_value = "default", value_parser = read_policy)]
    pub policy: Vec<Policy>,
    /// Where random arrivals and durations are drawn from
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// From a placement until every member is ready to run
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = Millis::parse)]
    pub prepare: Millis,
    /// From a stop until the program has left, at most its grace
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = Millis::parse)]
    pub leave: Millis,
    /// How often programs save their work; 0s: whenever they are asked to stop
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = Millis::parse)]
    pub checkpoint_every: Millis,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn read_policy(text: &str) -> Result<Policy, String> {
    policy(text).map_err(|invalid| {
        let knobs: Vec<String> = KNOBS.iter().map(|(knob, what)| format!("  {knob}: {what}")).collect();
        format!("{invalid}\n{}", knobs.join("\n"))
    })
}

/// Simulates, and prints what came out.
///
/// # Errors
/// A file that cannot be read or does not hold what it should; a page that cannot be written.
pub fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    if args.preemptible && args.trace.is_none() {
        return Err(Failure::usage("--preemptible is for a --trace; a workload says it of each group").into());
    }
    let cluster: Cluster = read(&args.cluster)?;
    let is_past = args.trace.is_some() || args.ledger.is_some();
    let scenario = Scenario::new(&cluster, arrivals(&args, &cluster)?, is_past).map_err(|invalid| wrong(&args.cluster, invalid))?;
    let habits = Habits { prepare: args.prepare, leave: args.leave, checkpoint_every: args.checkpoint_every };
    let mut outcomes = Vec::new();
    for policy in &args.policy {
        outcomes.push(simulate(&scenario, policy, habits).map_err(|stuck| wrong(&args.cluster, stuck))?);
    }
    if let Some(file) = &args.html {
        let title = format!("{} jobs on {} nodes", scenario.jobs(), scenario.nodes());
        std::fs::write(file, page(&title, &outcomes))
            .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", file.display())))?;
        tell(format!("the page is in {}", file.display()));
    }
    let (gpu_milli, slots) = scenario.capacity();
    let whole = GpuMilli::WHOLE.0;
    let gpus = if gpu_milli % whole == 0 { json!(gpu_milli / whole) } else { json!(gpu_milli as f64 / whole as f64) };
    let data = json!({
        "seed": args.seed,
        "nodes": scenario.nodes(),
        "gpus": gpus,
        "slots": slots,
        "jobs": scenario.jobs(),
        "outcomes": outcomes,
    });
    let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.policy.as_str()).collect();
    ctx.output.one(&names.join("\n"), &data, &shown(&outcomes, ctx.output.width, ctx.output.style))?;
    Ok(Exit::Done)
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{}: {why}", file.display()))
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Failure> {
    let value = jobfile::read_file(file).map_err(|problem| Failure::usage(problem.to_string()))?;
    serde_json::from_value(value).map_err(|error| wrong(file, error))
}

fn arrivals(args: &Args, cluster: &Cluster) -> Result<Vec<Arrival>, Failure> {
    if let Some(file) = &args.workload {
        return read::<Workload>(file)?.arrivals(args.seed).map_err(|invalid| wrong(file, invalid));
    }
    if let Some(file) = &args.ledger {
        let (arrivals, left_out) = ledger::arrivals(&text_of(file)?).map_err(|invalid| wrong(file, invalid))?;
        if left_out > 0 {
            tell(format!("{left_out} jobs had not ended or never ran: nobody knows how long they take, so they are left out"));
        }
        return Ok(arrivals);
    }
    let Some(file) = &args.trace else { return Err(Failure::usage("--workload, --trace or --ledger names the jobs")) };
    trace(&text_of(file)?, cluster, args.preemptible).map_err(|invalid| wrong(file, invalid))
}

fn text_of(file: &Path) -> Result<String, Failure> {
    let size = std::fs::metadata(file).map_err(|error| wrong(file, error))?.len();
    if size > TRACE_BYTES_MAX {
        return Err(wrong(file, format!("{size} bytes; at most {TRACE_BYTES_MAX} are read")));
    }
    std::fs::read_to_string(file).map_err(|error| wrong(file, error))
}

fn time(seconds: f64) -> String {
    length(seconds.round() as u64)
}

fn spread(spread: &Spread) -> [String; 4] {
    let all = [spread.mean_s, spread.p50_s, spread.p99_s, spread.max_s];
    all.map(|seconds| if spread.jobs == 0 { "-".to_owned() } else { time(seconds) })
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}%"))
}

/// The tables: policies side by side, then each in detail.
fn shown(outcomes: &[Outcome], width: Option<usize>, style: Style) -> String {
    let table = |columns: &[Column], rows: &[Vec<String>]| render(columns, rows, true, width, style);
    let summary: Vec<Vec<String>> = outcomes.iter().map(summary_row).collect();
    let mut text = table(&SUMMARY, &summary);
    for outcome in outcomes {
        let stays: Vec<Vec<String>> = outcome.stays.iter().map(stay_row).collect();
        let uses: Vec<Vec<String>> = outcome.queues.iter().map(use_row).collect();
        text += &format!("\npolicy {}\n\n{}\n{}", outcome.policy, table(&STAYS, &stays), table(&USES, &uses));
        if !outcome.never.is_empty() {
            let never = outcome.never.iter().map(|never| vec![never.jobs.to_string(), never.example.clone(), never.reason.clone()]);
            text += &format!("\n{}", table(&NEVER, &never.collect::<Vec<_>>()));
        }
    }
    text
}

const SUMMARY: [Column; 12] = [
    Column::whole("POLICY"),
    Column::whole("SUCCEEDED"),
    Column::whole("LIMITED"),
    Column::whole("NEVER"),
    Column::whole("GPUS"),
    Column::whole("SLOTS"),
    Column::whole("WAIT"),
    Column::whole("P50"),
    Column::whole("P99"),
    Column::whole("COMPLETION"),
    Column::whole("PREEMPTED"),
    Column::whole("SPAN"),
];

fn summary_row(outcome: &Outcome) -> Vec<String> {
    let [mean, p50, p99, _] = spread(&outcome.wait);
    let [completion, ..] = spread(&outcome.completion);
    let never: usize = outcome.never.iter().map(|never| never.jobs).sum();
    vec![
        outcome.policy.clone(),
        outcome.succeeded.to_string(),
        outcome.failed.to_string(),
        never.to_string(),
        percent(outcome.gpus_percent),
        percent(outcome.slots_percent),
        mean,
        p50,
        p99,
        completion,
        outcome.preemptions.to_string(),
        time(outcome.span_s),
    ]
}

const STAYS: [Column; 8] = [
    Column::whole("QUEUE"),
    Column::whole("SIZE"),
    Column::whole("JOBS"),
    Column::whole("WAIT"),
    Column::whole("P50"),
    Column::whole("P99"),
    Column::whole("LONGEST"),
    Column::whole("COMPLETION"),
];

fn stay_row(stay: &Stay) -> Vec<String> {
    let mut row = vec![stay.queue.clone(), stay.size.clone(), stay.jobs.to_string()];
    row.extend(spread(&stay.wait));
    let [completion, ..] = spread(&stay.completion);
    row.push(completion);
    row
}

const USES: [Column; 6] = [
    Column::whole("QUEUE"),
    Column::whole("OF"),
    Column::whole("HELD (UNIT-HOURS)"),
    Column::whole("ENTITLED"),
    Column::whole("PART"),
    Column::whole("PREEMPTED"),
];

fn use_row(held: &Use) -> Vec<String> {
    let hours = |hours: f64| format!("{hours:.1}");
    let (used, entitled) = (hours(held.used_h), hours(held.entitled_h));
    vec![held.queue.clone(), held.unit.to_owned(), used, entitled, percent(held.percent), held.preempted.to_string()]
}

const NEVER: [Column; 3] = [Column::whole("NEVER"), Column::cut("SUCH AS"), Column::cut("BECAUSE")];
