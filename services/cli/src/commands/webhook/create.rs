//! `webhook create`: tells the secret once.

use crate::{call, context::Context, output::Exit};
use footplate_api::{json, v1};
use footplate_types::WebhookName;

const EXAMPLES: &str = "\
Examples:
  footplate webhook create models https://hooks.example.org/models --type footplate.model.
  footplate webhook create audit https://hooks.example.org/all --from 1";

/// Have the project's events posted to an address; the secret that they are signed with is told once
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name: a-z, 0-9 and -
    #[arg(value_name = "NAME", value_parser = WebhookName::parse)]
    pub name: WebhookName,
    /// Where to: http or https, at an address outside
    #[arg(value_name = "URL")]
    pub url: String,
    /// What the types of wanted events begin with, such as footplate.run.sealed; may be given many times; all events when not given
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// First ledger sequence that is wanted; only what comes after now when not given
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0, hide_default_value = true)]
    pub from: u64,
}

/// Makes it, and tells the secret.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::CreateWebhookRequest {
        project: client.project().to_owned(),
        name: args.name.to_string(),
        url: args.url,
        types: args.types,
        from_sequence: args.from,
        // The secret is derived, so that the answer to a repeat tells it again.
        request_id: footplate_clock::request_id().to_string(),
    };
    let made = call!(client, webhooks.create_webhook(asked))?;
    let (name, from) = (&args.name, made.from_sequence);
    ctx.note(format!("webhook {name} sends from sequence {from} on; what it signs with is told here and never again"));
    ctx.output.one(&made.secret, &json::to_value(&made), &format!("{}\n", made.secret))?;
    Ok(Exit::Done)
}
