//! `queue list`: queues with what is used of what is allowed.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Queue},
};

const EXAMPLES: &str = "\
Examples:
  footplate queue list
  footplate queue list -o json";

/// List queues
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let mut queues = call!(client, queues.list_queues(v1::ListQueuesRequest { at_least: 0 }))?.queues;
    queues.sort_by(|one, other| one.name.cmp(&other.name));
    let columns = [
        Column::whole("QUEUE"),
        Column::whole("WEIGHT"),
        Column::whole("GPUS"),
        Column::whole("SLOTS"),
        Column::whole("RUNNING"),
        Column::whole("PENDING"),
        Column::whole("STATE"),
    ];
    ctx.output.list(&columns, queues.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(queue: &Queue) -> Row {
    let used =
        |used: u32, quota: Option<u32>| format!("{used} of {}", quota.map_or_else(|| "unlimited".to_owned(), |quota| quota.to_string()));
    let state = match (queue.closed, queue.held) {
        (true, _) => "closed",
        (false, true) => "held",
        (false, false) => "open",
    };
    let cells = vec![
        queue.name.clone(),
        queue.weight.to_string(),
        used(queue.used_gpus, queue.quota_gpus),
        used(queue.used_slots, queue.quota_slots),
        queue.running.to_string(),
        queue.pending.to_string(),
        state.to_owned(),
    ];
    Row { id: queue.name.clone(), cells, data: json::to_value(queue) }
}
