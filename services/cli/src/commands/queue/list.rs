//! `queue list`: the tree of queues with what is used of what is allowed.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Queue},
};
use footplate_types::GpuMilli;

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
    let tree = tree(&queues);
    let columns = [
        Column::whole("QUEUE"),
        Column::whole("WEIGHT"),
        Column::whole("GPUS"),
        Column::whole("SLOTS"),
        Column::whole("GUARANTEED"),
        Column::whole("RUNNING"),
        Column::whole("PENDING"),
        Column::whole("STATE"),
    ];
    ctx.output.list(&columns, tree.into_iter().map(|(depth, queue)| row(depth, queue)).collect())?;
    Ok(Exit::Done)
}

/// The queues with their depth, each behind the one above it. One whose way up leads nowhere stands at the top, as it does for the scheduler.
fn tree(queues: &[Queue]) -> Vec<(usize, &Queue)> {
    let named = |name: &str| queues.iter().find(|queue| queue.name == name);
    let line = |queue: &Queue| {
        let mut line = vec![queue.name.clone()];
        let mut above = queue.parent.clone();
        while !above.is_empty() {
            let Some(next) = named(&above).filter(|next| !line.contains(&next.name)) else { return vec![queue.name.clone()] };
            line.push(next.name.clone());
            above = next.parent.clone();
        }
        line.reverse();
        line
    };
    let mut all: Vec<(Vec<String>, &Queue)> = queues.iter().map(|queue| (line(queue), queue)).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all.into_iter().map(|(line, queue)| (line.len() - 1, queue)).collect()
}

fn row(depth: usize, queue: &Queue) -> Row {
    let used =
        |used: String, quota: Option<u32>| format!("{used} of {}", quota.map_or_else(|| "unlimited".to_owned(), |quota| quota.to_string()));
    let state = match (queue.closed, queue.held) {
        (true, _) => "closed",
        (false, true) => "held",
        (false, false) => "open",
    };
    let own = [(queue.guarantee_gpus, "gpus"), (queue.guarantee_slots, "slots")];
    let own: Vec<String> = own.iter().filter(|(amount, _)| *amount > 0).map(|(amount, what)| format!("{amount} {what}")).collect();
    let cells = vec![
        format!("{}{}", "  ".repeat(depth), queue.name),
        queue.weight.to_string(),
        used(GpuMilli(queue.used_gpu_milli).to_string(), queue.quota_gpus),
        used(queue.used_slots.to_string(), queue.quota_slots),
        if own.is_empty() { "-".to_owned() } else { own.join(", ") },
        queue.running.to_string(),
        queue.pending.to_string(),
        state.to_owned(),
    ];
    Row { id: queue.name.clone(), cells, data: json::to_value(queue) }
}
