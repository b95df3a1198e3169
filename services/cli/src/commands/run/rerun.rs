//! `run rerun`: the same again. Code, data, config and environment are those that the run was submitted with, unless set otherwise.

use crate::{
    call,
    context::{Context, find_run, seen},
    jobfile,
    output::{Exit, Failure},
    submission::{Documents, Refs, get, job_spec},
    waiting::{Wait, wait},
};
use footplate_api::{Client, types, v1};
use footplate_events::messages::LaunchDocument;
use footplate_types::Millis;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  footplate run rerun 0190f3a2
  footplate run rerun 0190f3a2 --set config.lr=0.05 --set name=lower-lr --wait";

/// Submit the same again: same code, same config, unless set otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the run, or a unique prefix of it
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Change a value of the job file, such as config.lr=0.05; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Wait until the new run is sealed
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this long
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse, requires = "wait")]
    pub timeout: Option<Millis>,
    /// Idempotency key: the same key gives the same run
    #[arg(long, value_name = "KEY")]
    pub request_id: Option<String>,
    /// Queue it even if no node that is there now could ever take it
    #[arg(long)]
    pub queue_anyway: bool,
}

/// Submits it again.
///
/// # Errors
/// No such run, a run without a job, a change that makes no job, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let found = find_run(&client, &args.run).await?;
    if !found.has_job {
        return Err(Failure::new(Exit::Refused, format!("{} was logged from outside and has no job to submit again", found.run_id)).into());
    }
    let asked = v1::GetJobRequest { project: client.project().to_owned(), run_id: found.run_id.clone(), at_least: 0 };
    let job = call!(client, jobs.get_job(asked))?.job.unwrap_or_default();
    let original = job.spec.ok_or_else(|| Failure::new(Exit::Failed, format!("the scheduler knows no spec of {}", found.run_id)))?;
    // Whoever asks for it again waits for nobody: what the first one came after is over, or is another run's affair.
    let original = types::JobSpec { after: Vec::new(), ..original };
    let spec = if args.sets.is_empty() { original } else { changed(&client, original, &args.sets).await? };
    let message = v1::SubmitJobRequest {
        project: client.project().to_owned(),
        spec: Some(types::JobSpec { rerun_of: found.run_id.clone(), ..spec }),
        request_id: args.request_id.clone().unwrap_or_else(|| footplate_clock::request_id().to_string()),
        // A key of the user's fixes the run's id; else ids of one machine sort by time.
        run_id: if args.request_id.is_some() { String::new() } else { footplate_clock::run_id().to_string() },
        queue_anyway: args.queue_anyway,
        ..v1::SubmitJobRequest::default()
    };
    let answer = call!(client, jobs.submit_job(message))?;
    seen(&ctx, &client, &answer.run_id, answer.sequence).await;
    let data = serde_json::json!({"runId": answer.run_id, "sequence": answer.sequence, "rerunOf": found.run_id});
    ctx.output.one(&answer.run_id, &data, &format!("{} submitted: {} again\n", answer.run_id, found.run_id))?;
    if !args.wait {
        return Ok(Exit::Done);
    }
    let timeout = args.timeout.map(Millis::duration);
    let ended = wait(&ctx, &client, &answer.run_id, Wait { ended_is_enough: false, timeout }).await?;
    super::super::submit::told_end(&ctx, &ended);
    Ok(crate::view::exit_of(&ended))
}

/// The spec with changes of the job file: documents are made anew, code and data stay.
async fn changed(client: &Client, original: types::JobSpec, sets: &[String]) -> anyhow::Result<types::JobSpec> {
    if !original.masked.is_empty() {
        let message = format!(
            "{} of this job are masked in its record, so it cannot be changed from there; submit its job file again",
            original.masked.join(", ")
        );
        return Err(Failure::new(Exit::Refused, message).into());
    }
    let reference = original
        .document
        .ok_or_else(|| Failure::new(Exit::Refused, "the job was submitted without a job file; there is nothing to change"))?;
    let document: Value = serde_json::from_slice(&get(client, &reference).await?)?;
    let Value::Object(mut document) = document else {
        return Err(Failure::new(Exit::Failed, "the recorded job file is no document").into());
    };
    document.shift_remove("after");
    // It stays the one of its array that it was.
    document.shift_remove("array");
    let job = jobfile::resolve(document, sets)?;
    let launch = original.launch.ok_or_else(|| Failure::new(Exit::Failed, "the job names no launch document"))?;
    let launch: LaunchDocument = serde_json::from_slice(&get(client, &launch).await?)?;
    let documents = Documents::of(&job, launch.origin)?;
    let baseline = original.why.map(|why| why.baseline).unwrap_or_default();
    let after = super::super::submit::after(client, &job).await?;
    let refs = Refs { source: original.source, baseline, after, ..super::super::submit::store(client, &documents).await? };
    Ok(types::JobSpec { array: original.array, ..job_spec(&documents.file, refs) })
}
