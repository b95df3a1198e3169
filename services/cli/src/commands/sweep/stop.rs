//! `sweep stop`: no more trials.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;

const EXAMPLES: &str = "\
Examples:
  footplate sweep stop 0190f3a2
  footplate sweep stop 0190f3a2 --cancel --reason 'good enough'";

/// Suggest no more trials; those under way run to their end, or are cancelled.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the sweep, or a unique prefix of it
    #[arg(value_name = "SWEEP")]
    pub sweep: String,
    /// Cancel the trials that are under way
    #[arg(long)]
    pub cancel: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for it.
///
/// # Errors
/// No such sweep, a refusal (it is finished), or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::StopSweepRequest {
        project: client.project().to_owned(),
        sweep_id: args.sweep,
        cancel: args.cancel,
        reason: args.reason,
        request_id: footplate_clock::request_id().to_string(),
    };
    let answer = call!(client, sweeps.stop_sweep(asked))?;
    let data = serde_json::json!({"sweepId": answer.sweep_id, "sequence": answer.sequence});
    ctx.output.one(&answer.sweep_id, &data, &format!("{} is being stopped\n", answer.sweep_id))?;
    Ok(Exit::Done)
}
