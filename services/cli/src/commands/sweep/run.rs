//! `sweep run`: a sweep file. Captures the code once, stores what trials have in common, and begins the search.

use super::{exit_of, tally, wait};
use crate::{
    call,
    capture::{self, Plan},
    commands::submit::{after, baseline, origin, store, store_source},
    context::Context,
    output::Exit,
    submission::{Documents, Refs, capture_request, job_spec},
    sweepfile,
};
use footplate_api::v1;
use footplate_types::Millis;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate sweep run sweep.yaml
  footplate sweep run sweep.yaml --set config.epochs=3 --wait
  footplate sweep run sweep.yaml --dry-run

The sweep file's keys: docs/guides/sweeps.md. Exit codes of --wait: 0 a best trial was found, 7 no trial has a value, 8 it was stopped.";

/// Begin a sweep that a file describes.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Sweep file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Change a value of the job of a trial, such as config.epochs=3; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Check everything, begin nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until nothing more is to come of it
    #[arg(short, long)]
    pub wait: bool,
    /// With --wait: give up after this long
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse, requires = "wait")]
    pub timeout: Option<Millis>,
    /// Idempotency key: the same key gives the same sweep
    #[arg(long, value_name = "KEY")]
    pub request_id: Option<String>,
    /// Begin even if no node that is there now could ever take a trial
    #[arg(long)]
    pub queue_anyway: bool,
    /// Capture no code: the command needs none
    #[arg(long)]
    pub no_source: bool,
}

/// Begins it.
///
/// # Errors
/// A sweep file with faults, a snapshot that may not be taken, a refusal, no answer, or the time-out.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let file = sweepfile::load(&args.file, &args.sets)?;
    let client = ctx.client_for(ctx.project_or(file.project.as_ref())?)?;
    let current = std::env::current_dir()?;
    let folder = args.file.parent().map_or_else(|| current.clone(), |folder| current.join(folder));
    let mut progress = ctx.progress();
    progress.step("capturing the code");
    let request = capture_request(&file.job.file.source, &current, &folder);
    let plan = if args.no_source { None } else { Some(capture::survey(&request)?) };
    for warning in plan.iter().flat_map(|plan| &plan.warnings) {
        ctx.note(format!("note: {warning}"));
    }
    let snapshot = plan.map(Plan::pack).transpose()?;
    let documents = Documents::of(&file.job, origin(&current, snapshot.as_ref(), args.request_id.is_some()))?;
    progress.step("storing what trials have in common");
    let baseline = baseline(&client, &file.job).await?;
    let source = match &snapshot {
        Some(snapshot) => Some(store_source(&client, snapshot).await?),
        None => None,
    };
    // Which the service refuses by name: nothing of a file is passed over.
    let after = after(&client, &file.job).await?;
    let job = job_spec(&documents.file, Refs { source, baseline, after, ..store(&client, &documents).await? });
    // What the scheduler would refuse of every trial is told before the first.
    let project = client.project().to_owned();
    let asked = v1::SubmitJobRequest {
        project: project.clone(),
        spec: Some(job.clone()),
        dry_run: true,
        queue_anyway: args.queue_anyway,
        ..v1::SubmitJobRequest::default()
    };
    call!(client, jobs.submit_job(asked))?;
    progress.step("beginning");
    let asked = v1::CreateSweepRequest {
        project,
        spec: Some(file.spec(job)),
        // One id for every try of this call: a lost answer gives the same sweep.
        request_id: args.request_id.clone().unwrap_or_else(|| footplate_clock::request_id().to_string()),
        dry_run: args.dry_run,
    };
    let answer = call!(client, sweeps.create_sweep(asked))?;
    progress.clear();
    let data = serde_json::json!({"sweepId": answer.sweep_id, "sequence": answer.sequence, "points": answer.points});
    let points = answer.points.map(|points| format!(", a grid of {points} points")).unwrap_or_default();
    if args.dry_run {
        ctx.output.one("", &data, &format!("it could begin{points}\n"))?;
        return Ok(Exit::Done);
    }
    ctx.output.one(&answer.sweep_id, &data, &format!("{} begun{points}\n", answer.sweep_id))?;
    if !args.wait {
        return Ok(Exit::Done);
    }
    let sweep = wait(&ctx, &client, &answer.sweep_id, answer.sequence, args.timeout.map(Millis::duration)).await?;
    ctx.note(format!("{} {}: {}", sweep.sweep_id, sweep.state, tally(&sweep)));
    if let Some(best) = &sweep.best {
        ctx.note(format!("best: trial {}, run {}, {}: {}", best.number, best.run_id, super::value(best), super::point(best)));
    }
    Ok(exit_of(&sweep))
}
