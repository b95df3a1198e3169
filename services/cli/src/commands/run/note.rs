//! `run note`: a hypothesis, a conclusion, a note.

use crate::{
    call,
    context::{Context, find_run_id, seen},
    output::{Exit, Failure},
};
use footplate_api::v1;

const EXAMPLES: &str = "\
Examples:
  footplate run note 0190f3a2 'the loss spike at step 900 is the bad shard'
  footplate run note 0190f3a2 --conclusion 'no gain: 0.761 against 0.762'";

/// Write down a hypothesis, a conclusion or a note. What is not given stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the run, or a unique prefix of it
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The note
    #[arg(value_name = "TEXT")]
    pub note: Option<String>,
    /// The expectation that is being tested
    #[arg(long, value_name = "TEXT")]
    pub hypothesis: Option<String>,
    /// What was learned
    #[arg(long, value_name = "TEXT")]
    pub conclusion: Option<String>,
}

/// Writes it down.
///
/// # Errors
/// Nothing to write, no such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    if args.note.is_none() && args.hypothesis.is_none() && args.conclusion.is_none() {
        return Err(Failure::usage("nothing to write down; give a text, --hypothesis or --conclusion").into());
    }
    let client = ctx.client()?;
    let run_id = find_run_id(&client, &args.run).await?;
    let message = v1::NoteRunRequest {
        project: client.project().to_owned(),
        run_id: run_id.clone(),
        hypothesis: args.hypothesis,
        conclusion: args.conclusion,
        note: args.note,
        request_id: footplate_clock::request_id().to_string(),
    };
    let answer = call!(client, runs.note_run(message))?;
    seen(&ctx, &client, &run_id, answer.sequence).await;
    ctx.output.one(&run_id, &serde_json::json!({"runId": run_id, "sequence": answer.sequence}), &format!("{run_id} noted\n"))?;
    Ok(Exit::Done)
}
