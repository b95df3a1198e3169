//! `webhook replay`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::WebhookName;

const EXAMPLES: &str = "\
Examples:
  footplate webhook replay models --from 1042";

/// Have a webhook send again from a ledger sequence on, then go on with what comes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME", value_parser = WebhookName::parse)]
    pub name: WebhookName,
    /// First ledger sequence that is wanted
    #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: u64,
}

/// Replays.
///
/// # Errors
/// No such webhook, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let (client, name) = (ctx.client()?, args.name.to_string());
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::ReplayWebhookRequest { project: client.project().to_owned(), name: name.clone(), from_sequence: args.from, request_id };
    let answer = call!(client, webhooks.replay_webhook(asked))?;
    let data = serde_json::json!({"name": name, "from": args.from, "sequence": answer.sequence});
    ctx.output.one(&name, &data, &format!("{name} sends from {} on\n", args.from))?;
    Ok(Exit::Done)
}
