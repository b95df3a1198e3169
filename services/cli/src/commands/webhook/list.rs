//! `webhook list`.

use super::{state, types};
use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Webhook},
};

const EXAMPLES: &str = "\
Examples:
  footplate webhook list
  footplate webhook list -p vision -o json";

/// List the project's webhooks, and what each is doing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(_args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::ListWebhooksRequest { project: client.project().to_owned(), at_least: 0 };
    let webhooks = call!(client, webhooks.list_webhooks(asked))?.webhooks;
    let columns = [Column::whole("NAME"), Column::whole("STATE"), Column::whole("DELIVERED"), Column::whole("TYPES"), Column::whole("URL")];
    ctx.output.list(&columns, webhooks.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(webhook: &Webhook) -> Row {
    let cells = vec![webhook.name.clone(), state(webhook), webhook.delivered_sequence.to_string(), types(webhook), webhook.url.clone()];
    Row { id: webhook.name.clone(), cells, data: json::to_value(webhook) }
}
