//! `webhook delete`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::WebhookName;

const EXAMPLES: &str = "\
Examples:
  footplate webhook delete models --reason 'the team reads NATS now'";

/// Take a webhook away: nothing more is sent to it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME", value_parser = WebhookName::parse)]
    pub name: WebhookName,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Deletes it.
///
/// # Errors
/// No such webhook, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let (client, name) = (ctx.client()?, args.name.to_string());
    let request_id = footplate_clock::request_id().to_string();
    let asked = v1::DeleteWebhookRequest { project: client.project().to_owned(), name: name.clone(), reason: args.reason, request_id };
    let answer = call!(client, webhooks.delete_webhook(asked))?;
    let data = serde_json::json!({"name": name, "sequence": answer.sequence});
    ctx.output.one(&name, &data, &format!("{name} deleted\n"))?;
    Ok(Exit::Done)
}
