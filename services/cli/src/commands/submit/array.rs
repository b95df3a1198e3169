//! Arrays: one call for many jobs of one file.

use super::{Args, told_end};
use crate::{
    call,
    context::{Context, seen},
    jobfile::ArraySection,
    output::Exit,
    view,
    waiting::{Wait, wait},
};
use footplate_api::{Client, types, v1};
use footplate_types::Millis;
use std::time::Instant;

/// What is asked for an array.
pub(super) fn request(client: &Client, args: &Args, array: &ArraySection, spec: types::JobSpec) -> v1::SubmitArrayRequest {
    v1::SubmitArrayRequest {
        project: client.project().to_owned(),
        spec: Some(spec),
        indices: array.indices.clone(),
        at_once: array.at_once,
        // One id for every try of this call: a lost answer gives the same array.
        request_id: args.request_id.clone().unwrap_or_else(|| footplate_clock::request_id().to_string()),
        // A key of the user's fixes the array's id; else ids of one machine sort by time.
        array_id: if args.request_id.is_some() { String::new() } else { footplate_clock::run_id().to_string() },
        queue_anyway: args.queue_anyway,
        dry_run: args.dry_run,
    }
}

/// Submits it; waits for all of its jobs where that is asked for.
pub(super) async fn submit(
    ctx: &Context,
    client: &Client,
    args: &Args,
    array: &ArraySection,
    spec: types::JobSpec,
    masked: &[String],
) -> anyhow::Result<Exit> {
    let message = request(client, args, array, spec);
    let answer = call!(client, jobs.submit_array(message))?;
    if let Some(last) = answer.jobs.last() {
        seen(ctx, client, &last.run_id, answer.sequence).await;
    }
    let jobs: Vec<_> =
        answer.jobs.iter().map(|job| serde_json::json!({"index": job.index, "runId": job.run_id, "sequence": job.sequence})).collect();
    let data = serde_json::json!({"arrayId": answer.array_id, "jobs": jobs, "sequence": answer.sequence, "masked": masked});
    ctx.output.one(&answer.array_id, &data, &format!("{} submitted: an array of {}\n", answer.array_id, array.told()))?;
    if !args.wait {
        return Ok(Exit::Done);
    }
    let began = Instant::now();
    let mut worst = Exit::Done;
    for job in &answer.jobs {
        let timeout = args.timeout.map(Millis::duration).map(|timeout| timeout.saturating_sub(began.elapsed()));
        let ended = wait(ctx, client, &job.run_id, Wait { ended_is_enough: false, timeout }).await?;
        told_end(ctx, &ended);
        worst = view::worse(worst, view::exit_of(&ended));
    }
    Ok(worst)
}
