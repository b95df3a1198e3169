//! `webhook resume`.

use super::{WithReason, done};
use crate::{call, context::Context, output::Exit};
use footplate_api::v1;

const EXAMPLES: &str = "\
Examples:
  footplate webhook resume models --reason 'the receiver is mended'";

/// Have a paused webhook send again, beginning with the event that was not taken
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which, and why.
    #[command(flatten)]
    pub asked: WithReason,
}

/// Resumes it.
///
/// # Errors
/// No such webhook, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let (client, WithReason { name, reason }) = (ctx.client()?, args.asked);
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::ResumeWebhookRequest { project: client.project().to_owned(), name: name.to_string(), reason, request_id };
    let answer = call!(client, webhooks.resume_webhook(asked))?;
    done(&ctx, &name, &answer, "sends")
}
