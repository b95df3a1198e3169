//! `pipeline submit`: a pipeline file. Captures each source once, stores what every job needs, and submits all of them in one call.

use crate::{
    call,
    capture::{self, Plan, Snapshot},
    commands::submit::{baseline, origin, store, store_source},
    context::{Context, find_run_id, seen},
    jobfile::{AfterItem, Resolved},
    output::{Column, Exit, Row},
    pipelinefile::{self, PipelineFile},
    submission::{Documents, Origin, Refs, capture_request, job_spec, source_ref},
    view,
};
use footplate_api::{Client, json, types, v1};
use std::collections::BTreeMap;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate pipeline submit pipeline.yaml
  footplate pipeline submit pipeline.yaml --set jobs.train.config.lr=0.05 --dry-run
  footplate run wait $(footplate pipeline submit -q pipeline.yaml)

The pipeline file's keys: docs/guides/pipelines.md. All its jobs are queued, or none: with --request-id the same call can be repeated until it is
answered, and there is one of each.";

/// Submit the jobs of a pipeline file: all of them, or none
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Pipeline file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Change a value of the file, such as jobs.train.config.lr=0.05; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Check everything, send nothing that stays
    #[arg(long)]
    pub dry_run: bool,
    /// Idempotency key: the same key gives the same runs
    #[arg(long, value_name = "KEY")]
    pub request_id: Option<String>,
    /// Queue them even if no node that is there now could ever take one of them
    #[arg(long)]
    pub queue_anyway: bool,
    /// Capture no code: the commands need none
    #[arg(long)]
    pub no_source: bool,
}

/// Submits them.
///
/// # Errors
/// A file with faults, a snapshot that may not be taken, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let file = pipelinefile::load(&args.file, &args.sets)?;
    let client = ctx.client_for(ctx.project_or(file.project.as_ref())?)?;
    let mut progress = ctx.progress();
    progress.step("capturing the code");
    let sources = Sources::of(&file, &args, &ctx)?;
    progress.step("storing what the jobs need");
    let mut jobs = Vec::with_capacity(file.jobs.len());
    for (name, job) in &file.jobs {
        jobs.push(part(&client, &args, &file, &sources, name, job).await?);
    }
    progress.step("submitting");
    let message = v1::SubmitPipelineRequest {
        project: client.project().to_owned(),
        jobs,
        // One id for every try of this call: a lost answer gives the same runs.
        request_id: args.request_id.clone().unwrap_or_else(|| footplate_clock::request_id().to_string()),
        dry_run: args.dry_run,
        queue_anyway: args.queue_anyway,
    };
    let answer = call!(client, jobs.submit_pipeline(message))?;
    if let Some(last) = answer.jobs.last().filter(|_| !args.dry_run) {
        seen(&ctx, &client, &last.run_id, answer.sequence).await;
    }
    progress.clear();
    show(&ctx, &file, &answer, args.dry_run)?;
    Ok(Exit::Done)
}

/// The code of the jobs: one snapshot for all that say the same of their source.
struct Sources(BTreeMap<String, Snapshot>);

fn source_key(job: &Resolved) -> String {
    serde_json::to_string(&job.file.source).unwrap_or_default()
}

impl Sources {
    fn of(file: &PipelineFile, args: &Args, ctx: &Context) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        if args.no_source {
            return Ok(Self(all));
        }
        let current = std::env::current_dir()?;
        let folder = args.file.parent().map_or_else(|| current.clone(), |folder| current.join(folder));
        for (_, job) in &file.jobs {
            let key = source_key(job);
            if all.contains_key(&key) {
                continue;
            }
            let plan: Plan = capture::survey(&capture_request(&job.file.source, &current, &folder))?;
            for warning in &plan.warnings {
                ctx.note(format!("note: {warning}"));
            }
            all.insert(key, plan.pack()?);
        }
        Ok(Self(all))
    }

    fn get(&self, job: &Resolved) -> Option<&Snapshot> {
        self.0.get(&source_key(job))
    }
}

/// One job as it is asked for. What it names is another job of the file, else a run.
async fn part(
    client: &Client,
    args: &Args,
    file: &PipelineFile,
    sources: &Sources,
    name: &str,
    job: &Resolved,
) -> anyhow::Result<v1::PipelineJob> {
    let snapshot = sources.get(job);
    let mut refs = if args.dry_run { unstored(job, snapshot)? } else { stored(client, args, job, snapshot).await? };
    refs.1.baseline = baseline(client, job).await?;
    let beside = |after: &&AfterItem| file.jobs.iter().any(|(other, _)| *other == after.run);
    let (within, outside): (Vec<&AfterItem>, Vec<&AfterItem>) = job.file.after.iter().partition(beside);
    for after in outside {
        refs.1.after.push(types::AfterJob { run_id: find_run_id(client, &after.run).await?, when: after.when.wire().into() });
    }
    Ok(v1::PipelineJob {
        name: name.to_owned(),
        spec: Some(job_spec(&refs.0.file, refs.1)),
        after: within.into_iter().map(|after| v1::PipelineAfter { name: after.run.clone(), when: after.when.wire().into() }).collect(),
        // A key of the user's fixes the runs' ids; else ids of one machine sort by time.
        run_id: if args.request_id.is_some() || args.dry_run { String::new() } else { footplate_clock::run_id().to_string() },
    })
}

async fn stored(client: &Client, args: &Args, job: &Resolved, snapshot: Option<&Snapshot>) -> anyhow::Result<(Documents, Refs)> {
    let documents = Documents::of(job, origin(&std::env::current_dir()?, snapshot, args.request_id.is_some()))?;
    let source = match snapshot {
        Some(snapshot) => Some(store_source(client, snapshot).await?),
        None => None,
    };
    let refs = Refs { source, ..store(client, &documents).await? };
    Ok((documents, refs))
}

fn unstored(job: &Resolved, snapshot: Option<&Snapshot>) -> anyhow::Result<(Documents, Refs)> {
    let documents = Documents::of(job, Origin::new())?;
    let refs = Refs { source: snapshot.map(source_ref), ..Refs::unstored(&documents)? };
    Ok((documents, refs))
}

/// One line a job, in the order in which they come.
fn show(ctx: &Context, file: &PipelineFile, answer: &v1::SubmitPipelineResponse, dry_run: bool) -> std::io::Result<()> {
    let after = |name: &str| {
        let job = file.jobs.iter().find(|(known, _)| known == name);
        let told = |after: &AfterItem| match after.when {
            crate::jobfile::AfterEnd::Success => after.run.clone(),
            crate::jobfile::AfterEnd::Failure => format!("{}:failure", after.run),
            crate::jobfile::AfterEnd::Any => format!("{}:any", after.run),
        };
        job.map(|(_, job)| job.file.after.iter().map(told).collect::<Vec<_>>().join(", ")).unwrap_or_default()
    };
    let letters = view::id_letters(answer.jobs.iter().map(|job| job.run_id.as_str()));
    let row = |job: &v1::SubmittedJob| {
        let first = if dry_run { job.remark.clone() } else { view::short(&job.run_id, letters) };
        let cells = if dry_run { vec![job.name.clone(), after(&job.name), first] } else { vec![first, job.name.clone(), after(&job.name)] };
        Row { id: if dry_run { job.name.clone() } else { job.run_id.clone() }, cells, data: json::to_value(job) }
    };
    let columns = if dry_run {
        [Column::whole("JOB"), Column::cut("AFTER"), Column::cut("WHY")]
    } else {
        [Column::whole("RUN"), Column::cut("JOB"), Column::cut("AFTER")]
    };
    ctx.output.list(&columns, answer.jobs.iter().map(row).collect())
}
