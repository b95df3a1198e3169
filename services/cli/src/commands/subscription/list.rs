//! `subscription list`.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Subscription},
};

const EXAMPLES: &str = "\
Examples:
  footplate -p vision subscription list";

/// List the subscriptions to the project's events
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let asked = v1::ListSubscriptionsRequest { project: client.project().to_owned(), at_least: 0 };
    let subscriptions = call!(client, subscriptions.list_subscriptions(asked))?.subscriptions;
    let columns = ["SUBSCRIPTION", "EVENTS", "FROM", "ENDS", "MADE BY", "DESCRIPTION"].map(Column::whole);
    ctx.output.list(&columns, subscriptions.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(subscription: &Subscription) -> Row {
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    let from = if subscription.from_sequence == 0 { "then on".to_owned() } else { subscription.from_sequence.to_string() };
    let cells = vec![
        subscription.name.clone(),
        or(&subscription.aggregate, "all"),
        from,
        or(&subscription.expires_at, "never"),
        subscription.created_by.clone(),
        subscription.description.clone(),
    ];
    Row { id: subscription.name.clone(), cells, data: json::to_value(subscription) }
}
