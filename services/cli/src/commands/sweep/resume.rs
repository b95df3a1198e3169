//! `sweep resume`: on after a stop, or with more trials.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;

const EXAMPLES: &str = "\
Examples:
  footplate sweep resume 0190f3a2
  footplate sweep resume 0190f3a2 --trials 100";

/// Go on after a stop, or with more trials.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the sweep, or a unique prefix of it
    #[arg(value_name = "SWEEP")]
    pub sweep: String,
    /// Trials in all from now on
    #[arg(long, value_name = "COUNT")]
    pub trials: Option<u32>,
}

/// Asks for it.
///
/// # Errors
/// No such sweep, a refusal (nothing more is asked of it), or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::ResumeSweepRequest {
        project: client.project().to_owned(),
        sweep_id: args.sweep,
        trials: args.trials,
        request_id: footplate_clock::request_id().to_string(),
    };
    let answer = call!(client, sweeps.resume_sweep(asked))?;
    let data = serde_json::json!({"sweepId": answer.sweep_id, "sequence": answer.sequence});
    ctx.output.one(&answer.sweep_id, &data, &format!("{} goes on\n", answer.sweep_id))?;
    Ok(Exit::Done)
}
