//! `footplate-load submit`: from a client's submit to the first line of its worker, as the client sees it, and where the time goes.
//!
//! The client's own clock and the broker's (`recorded_at`) are one: all runs on one machine.

use crate::figures::{Against, Figures, median, quantile};
use crate::platform::Platform;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use footplate_api::{Client, types, v1};
use footplate_events::messages::{LaunchDocument, RunCommand};
use footplate_types::{Digest, Timestamp};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long one run may take.
const RUN_WITHIN: Duration = Duration::from_secs(120);
/// The most events that are asked of one run.
const EVENTS_MAX: u32 = 100;
/// What is wanted of the median, in milliseconds.
const FIRST_LINE_MS: f64 = 1_000.0;
/// What a run passes on its way, in order.
const STEPS: [(&str, &str); 5] = [
    ("submitted", "footplate.job.submitted"),
    ("placed", "footplate.job.placed"),
    ("ready", "footplate.attempt.ready"),
    ("launched", "footplate.job.launched"),
    ("started", "footplate.attempt.started"),
];

/// Sizes of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Submits, one after the other
    #[arg(long, default_value_t = 50)]
    events: usize,
    /// Submits ahead of those, which are not counted
    #[arg(long, default_value_t = 5)]
    warm_up: usize,
    /// CPU slots of the node
    #[arg(long, default_value_t = 4)]
    slots: u32,
    /// The program to start (default: `footplate` beside this one)
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What one submit took, in milliseconds.
struct Timeline {
    first_line: f64,
    /// The call's answer.
    answered: f64,
    steps: BTreeMap<&'static str, f64>,
}

/// Starts the platform and submits.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::of("submit");
    let platform = Platform::start(options.binary.as_deref(), options.slots).await?;
    let launch = launch_document(&platform.client).await?;
    let mut timelines = Vec::new();
    for turn in 0..options.warm_up + options.events {
        let submitted = tokio::time::timeout(RUN_WITHIN, one(&platform.client, &launch, turn)).await;
        let timeline = submitted.with_context(|| format!("submit {turn} took longer than {} s", RUN_WITHIN.as_secs()))??;
        if turn >= options.warm_up {
            timelines.push(timeline);
        }
    }
    platform.stop().await?;
    tell(&timelines, &mut figures);
    Ok(figures)
}

async fn launch_document(client: &Client) -> Result<types::DocumentRef> {
    let launch = LaunchDocument {
        run: RunCommand::Argv(["sh", "-c", "echo hi"].map(str::to_owned).to_vec()),
        setup: String::new(),
        env: BTreeMap::new(),
        pass: Vec::new(),
        origin: BTreeMap::new(),
        roles: Default::default(),
        sealed: None,
    };
    let data = serde_json::to_vec(&launch)?;
    let reference = types::DocumentRef { digest: Digest::of(&data).to_string(), bytes: data.len() as u64 };
    let asked = v1::PutBlobRequest { project: client.project().to_owned(), digest: reference.digest.clone(), data };
    client.once(client.blobs().put_blob(asked)).await?;
    Ok(reference)
}

fn spec(launch: &types::DocumentRef) -> types::JobSpec {
    let per_node = types::PerNode { slots: 1, ..types::PerNode::default() };
    types::JobSpec {
        name: "hi".to_owned(),
        resources: Some(types::ResourceAsk { nodes: 1, per_node: Some(per_node) }),
        launch: Some(launch.clone()),
        ..types::JobSpec::default()
    }
}

/// One submit, followed until its log ends.
async fn one(client: &Client, launch: &types::DocumentRef, turn: usize) -> Result<Timeline> {
    let project = client.project().to_owned();
    let request_id = format!("load-{turn}");
    let asked = v1::SubmitJobRequest { project: project.clone(), spec: Some(spec(launch)), request_id, ..v1::SubmitJobRequest::default() };
    let began = footplate_clock::now();
    let submitted = client.once(client.jobs().submit_job(asked)).await?;
    let answered = footplate_clock::now();
    let run_id = submitted.run_id;
    // The logs are another service's: let it have read of the run first, as the command line does.
    let asked = v1::ListAttemptsRequest { project: project.clone(), run_id: run_id.clone(), at_least: submitted.sequence };
    client.once(client.attempts().list_attempts(asked)).await?;
    let asked = v1::ReadLogsRequest { project: project.clone(), run_id: run_id.clone(), follow: true, ..v1::ReadLogsRequest::default() };
    let mut log = client.once(client.logs().read_logs(asked)).await?;
    let mut first_line = None;
    while let Some(piece) = log.message().await? {
        if piece.stream == "stdout" && piece.data.contains(&b'\n') && first_line.is_none() {
            first_line = Some(footplate_clock::now());
        }
    }
    let first_line = first_line.with_context(|| format!("run {run_id} printed nothing"))?;
    let millis = |at: Timestamp| (at.as_nanos() - began.as_nanos()) as f64 / 1e6;
    let steps = steps(client, &run_id).await?.into_iter().map(|(step, at)| (step, millis(at))).collect();
    Ok(Timeline { first_line: millis(first_line), answered: millis(answered), steps })
}

/// When the broker stored what the run passed.
async fn steps(client: &Client, run_id: &str) -> Result<BTreeMap<&'static str, Timestamp>> {
    let filter = v1::EventFilter { project: client.project().to_owned(), run_id: run_id.to_owned(), ..v1::EventFilter::default() };
    let asked = v1::ListEventsRequest { filter: Some(filter), page_size: EVENTS_MAX, ..v1::ListEventsRequest::default() };
    let events = client.once(client.events().list_events(asked)).await?.events;
    let mut steps = BTreeMap::new();
    for (step, prefix) in STEPS {
        let found = events.iter().find(|event| event.r#type.starts_with(prefix));
        let found = found.with_context(|| format!("run {run_id} has no {prefix}"))?;
        steps.insert(step, Timestamp::parse(&found.recorded_at)?);
    }
    ensure!(steps.len() == STEPS.len(), "a step is missing");
    Ok(steps)
}

fn tell(timelines: &[Timeline], figures: &mut Figures) {
    let middle = |of: &dyn Fn(&Timeline) -> f64| median(&timelines.iter().map(of).collect::<Vec<_>>());
    let first: Vec<f64> = timelines.iter().map(|timeline| timeline.first_line).collect();
    figures.count("submits", timelines.len() as u64);
    figures.millis("first_line_p50_ms", "submit to first line, median", median(&first), Against::Below(FIRST_LINE_MS));
    figures.millis("first_line_p99_ms", "  99 of 100", quantile(&first, 0.99), Against::Nothing);
    figures.millis("submit_answered_ms", "  submit to its answer", middle(&|timeline| timeline.answered), Against::Nothing);
    figures.millis("submit_to_submitted_ms", "  submit to submitted", middle(&|timeline| timeline.steps["submitted"]), Against::Nothing);
    for pair in STEPS.windows(2) {
        let [(from, _), (to, _)] = pair else { continue };
        let between = middle(&|timeline| timeline.steps[to] - timeline.steps[from]);
        figures.millis(&format!("{from}_to_{to}_ms"), &format!("  {from} to {to}"), between, Against::Nothing);
    }
    // The line comes over its own stream: it may be seen before the start is in the ledger, and then this is below zero.
    let after = middle(&|timeline| timeline.first_line - timeline.steps["started"]);
    figures.millis("started_to_first_line_ms", "  started to first line", after, Against::Nothing);
    let after = middle(&|timeline| timeline.first_line - timeline.steps["launched"]);
    figures.millis("launched_to_first_line_ms", "  launched to first line", after, Against::Nothing);
}
