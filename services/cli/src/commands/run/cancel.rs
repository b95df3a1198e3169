//! `run cancel`: asks that runs end; the scheduler's leader answers.

use crate::{
    call,
    context::{Context, find_run_id},
    output::{Exit, Failure, tell},
};
use footplate_api::v1;
use std::time::Duration;

/// How long the leader may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  footplate run cancel 0190f3a2
  footplate run cancel 0190f3a2 --reason 'diverged' && footplate run wait 0190f3a2";

/// Cancel runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids of runs, or unique prefixes of them
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
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
