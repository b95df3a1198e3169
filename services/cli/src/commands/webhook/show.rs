//! `webhook show`: one with its newest deliveries.

use super::{state, types};
use crate::{
    call,
    context::Context,
    output::{Exit, Failure},
};
use footplate_api::{
    json,
    v1::{self, Delivery},
};
use footplate_types::WebhookName;

const EXAMPLES: &str = "\
Examples:
  footplate webhook show models
  footplate webhook show models --deliveries 1000 -o json";

/// Show a webhook and what came of its newest deliveries
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME", value_parser = WebhookName::parse)]
    pub name: WebhookName,
    /// How many deliveries, at most 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub deliveries: u32,
}

/// Prints it.
///
/// # Errors
/// No such webhook, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::GetWebhookRequest {
        project: client.project().to_owned(),
        name: args.name.to_string(),
        at_least: 0,
        deliveries: args.deliveries,
    };
    let answer = call!(client, webhooks.get_webhook(asked))?;
    let data = json::to_value(&answer);
    let webhook = answer.webhook.ok_or_else(|| Failure::not_found(format!("no webhook {}", args.name)))?;
    let mut text = String::new();
    for (key, value) in [
        ("name", webhook.name.clone()),
        ("url", webhook.url.clone()),
        ("types", types(&webhook)),
        ("state", state(&webhook)),
        ("reason", webhook.reason.clone()),
        ("next try", webhook.next_try_at.clone()),
        ("from", webhook.from_sequence.to_string()),
        ("delivered", webhook.delivered_sequence.to_string()),
        ("made", format!("{} by {}", webhook.created_at, webhook.created_by)),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{key:<12}{value}\n"));
        }
    }
    if !answer.deliveries.is_empty() {
        text.push_str("\nnewest deliveries:\n");
        answer.deliveries.iter().for_each(|delivery| text.push_str(&line(delivery)));
    }
    ctx.output.one(&webhook.name, &data, &text)?;
    Ok(Exit::Done)
}

fn line(delivery: &Delivery) -> String {
    let came = if delivery.error.is_empty() { format!("{} taken", delivery.status) } else { delivery.error.clone() };
    let Delivery { at, sequence, r#type, attempt, took_ms, .. } = delivery;
    format!("{at}  {sequence}  {type}  try {attempt}  {took_ms} ms  {came}\n")
}
