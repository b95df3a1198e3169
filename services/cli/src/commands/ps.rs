//! `ps`: what is waiting and running, and why what waits waits.

use crate::{
    arrays::{STATES, listed},
    context::{Context, bare_id},
    output::{Column, Exit, Row, print},
    view,
};
use footplate_api::{
    Client, json,
    types::Outcome,
    v1::{self, Job},
};
use footplate_types::Timestamp;
use std::{io::IsTerminal as _, time::Duration};

/// The most jobs that are shown.
const JOBS_MAX: usize = 10_000;
/// How often `-w` asks.
const REFRESH: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  footplate ps
  footplate ps -w --queue night
  footplate ps -a -o wide
  footplate ps -a --array 0190f3a2";

/// List what is waiting and running
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Show what has ended as well
    #[arg(short, long)]
    pub all: bool,
    /// Only jobs of this queue
    #[arg(long, value_name = "QUEUE", default_value = "", hide_default_value = true)]
    pub queue: String,
    /// Only jobs of this array: its id, or that of any run of it
    #[arg(long, value_name = "RUN", default_value = "", hide_default_value = true)]
    pub array: String,
    /// Show it again every two seconds, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
}

/// Prints the list, once or again and again.
///
/// # Errors
/// No answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    loop {
        let jobs = fetch(&client, &args).await?;
        if args.watch && std::io::stdout().is_terminal() {
            print("\u{1b}[H\u{1b}[2J")?;
        }
        show(&ctx, &jobs)?;
        if !args.watch {
            return Ok(Exit::Done);
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Done),
        }
    }
}

async fn fetch(client: &Client, args: &Args) -> anyhow::Result<Vec<Job>> {
    let states = if args.all { STATES.map(str::to_owned).to_vec() } else { Vec::new() };
    let asked = v1::ListJobsRequest {
        project: client.project().to_owned(),
        queue: args.queue.clone(),
        array: if args.array.is_empty() { String::new() } else { bare_id(&args.array)? },
        states,
        ..v1::ListJobsRequest::default()
    };
    listed(client, asked, JOBS_MAX).await
}

fn show(ctx: &Context, jobs: &[Job]) -> std::io::Result<()> {
    let letters = view::id_letters(jobs.iter().map(|job| job.run_id.as_str()));
    let now = footplate_clock::now();
    let columns = [
        Column::whole("RUN"),
        Column::cut("NAME"),
        Column::whole("QUEUE"),
        Column::whole("PRIO"),
        Column::whole("STATE"),
        Column::whole("ASKS"),
        Column::whole("AGE"),
        Column::cut("WHERE / WHY"),
        Column::cut("NODES").wide(),
        Column::whole("TRY").wide(),
        Column::whole("PREEMPTIBLE").wide(),
        Column::cut("BY").wide(),
        Column::cut("PROJECT").wide(),
    ];
    ctx.output.list(&columns, jobs.iter().map(|job| row(job, letters, now)).collect())
}

fn row(job: &Job, letters: usize, now: Timestamp) -> Row {
    let cells = vec![
        view::short(&job.run_id, letters),
        job.name.clone(),
        job.queue.clone(),
        job.priority.to_string(),
        state(job),
        asks(job),
        view::since(&job.submitted_at, now),
        place(job),
        nodes(job),
        job.attempt.to_string(),
        if job.preemptible { "yes" } else { "no" }.to_owned(),
        job.submitted_by.clone(),
        job.project.clone(),
    ];
    Row { id: job.run_id.clone(), cells, data: json::to_value(job) }
}

/// What it asks: of a gang of roles for each of them.
fn asks(job: &Job) -> String {
    if job.roles.is_empty() {
        return view::shape(job);
    }
    let of_role = |role: &footplate_api::types::GangRole| {
        let each = role.per_node.clone().unwrap_or_default();
        let asks = Job {
            nodes: role.nodes,
            gpus_per_node: each.gpus,
            slots_per_node: each.slots,
            gpu_profile: each.gpu_profile,
            gpu_share: each.gpu_share,
            ..Job::default()
        };
        format!("{} {}", role.name, view::shape(&asks))
    };
    job.roles.iter().map(of_role).collect::<Vec<_>>().join(" + ")
}

fn state(job: &Job) -> String {
    match job.outcome() {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Unspecified => match job.state.as_str() {
            "launched" => "running",
            "placed" => "preparing",
            other => other,
        },
    }
    .to_owned()
}

/// The nodes it stands on.
fn nodes(job: &Job) -> String {
    job.members.iter().map(|member| member.node.as_str()).collect::<Vec<_>>().join(", ")
}

/// The nodes it stands on, or why it waits or ended.
fn place(job: &Job) -> String {
    if !job.reason.is_empty() {
        return job.reason.clone();
    }
    if job.state == "ended" {
        return job.cause.replace('_', " ");
    }
    nodes(job)
}
