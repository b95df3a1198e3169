//! `webhook test`.

use crate::{call, context::Context, output::Exit};
use footplate_api::{json, v1};
use footplate_types::WebhookName;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  footplate webhook test models && echo taken";

/// Longer than a receiver is given.
const WITHIN: Duration = Duration::from_secs(20);

/// Post a test event at once, and show what came of it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME", value_parser = WebhookName::parse)]
    pub name: WebhookName,
}

/// Tests it; ends with 1 when the receiver did not take the event.
///
/// # Errors
/// No such webhook, or no answer of the platform.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let (client, name) = (ctx.client()?, args.name.to_string());
    let asked = v1::TestWebhookRequest { project: client.project().to_owned(), name: name.clone() };
    let answer = call!(client, within WITHIN, webhooks.test_webhook(asked))?;
    let came = if answer.delivered { format!("taken: {}", answer.status) } else { format!("not taken: {}", answer.error) };
    let body = if answer.body.is_empty() { String::new() } else { format!("{}\n", answer.body.trim_end()) };
    ctx.output.one(&answer.id, &json::to_value(&answer), &format!("{came}, in {} ms\n{body}", answer.took_ms))?;
    Ok(if answer.delivered { Exit::Done } else { Exit::Failed })
}
