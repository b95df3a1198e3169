//! `run cancel`: asks that runs end; the scheduler's leader answers.

use crate::{
    call,
    context::{Context, bare_id, find_run_id},
    output::{Exit, Failure, tell},
};
use footplate_api::{Client, json, v1};
use std::time::Duration;

/// How long the leader may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  footplate run cancel 0190f3a2
  footplate run cancel 0190f3a2 --reason 'diverged' && footplate run wait 0190f3a2
  footplate run cancel --array 0190f3a2";

/// Cancel runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids of runs, or unique prefixes of them
    #[arg(required_unless_present = "array", value_name = "RUN")]
    pub runs: Vec<String>,
    /// Every run of this array that has not ended: its id, or that of any run of it
    #[arg(long, value_name = "RUN", conflicts_with = "runs")]
    pub array: Option<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for each in turn.
///
/// # Errors
/// No such run, a refusal (it has ended), or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    if let Some(array) = &args.array {
        return cancel_array(&ctx, &client, array, &args.reason).await;
    }
    for named in &args.runs {
        let run_id = find_run_id(&client, named).await?;
        let message = v1::JobRequest {
            project: client.project().to_owned(),
            run_id: run_id.clone(),
            reason: args.reason.clone(),
            request_id: footplate_clock::request_id().to_string(),
            wait: true,
        };
        let answer = call!(client, within ANSWER, jobs.cancel_job(message))?;
        answered(&run_id, &answer, "cancellation")?;
        ctx.output.one(
            &run_id,
            &serde_json::json!({"runId": run_id, "sequence": answer.sequence}),
            &format!("{run_id} is being cancelled\n"),
        )?;
    }
    Ok(Exit::Done)
}

async fn cancel_array(ctx: &Context, client: &Client, named: &str, reason: &str) -> anyhow::Result<Exit> {
    let message = v1::JobRequest {
        project: client.project().to_owned(),
        run_id: bare_id(named)?,
        reason: reason.to_owned(),
        request_id: footplate_clock::request_id().to_string(),
        wait: true,
    };
    let answer = call!(client, within ANSWER, jobs.cancel_array(message))?;
    if answer.answered < answer.asked {
        tell(format!(
            "{}: {} of {} cancellations are recorded and will be answered when the scheduler leads again",
            answer.array_id,
            answer.asked - answer.answered,
            answer.asked
        ));
    }
    ctx.output.one(
        &answer.array_id,
        &json::to_value(&answer),
        &format!("{}: {} runs are being cancelled\n", answer.array_id, answer.asked),
    )?;
    Ok(Exit::Done)
}

/// What the leader said: a refusal is a failure; no answer yet is told.
pub(crate) fn answered(run_id: &str, answer: &v1::JobRequestResponse, what: &str) -> Result<(), Failure> {
    if !answer.refused.is_empty() {
        return Err(Failure::new(Exit::Refused, format!("{run_id}: {}", answer.refused)));
    }
    if !answer.answered {
        tell(format!(
            "{run_id}: the {what} is recorded (ledger sequence {}) and will be answered when the scheduler leads again",
            answer.sequence
        ));
    }
    Ok(())
}
