//! `node list`: nodes, what they offer, and how they are.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
};
use footplate_api::{
    json,
    v1::{self, Node},
};
use footplate_types::ByteSize;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Examples:
  footplate node list
  footplate node list -o wide
  footplate node list -o json | jq '.[].gpus[] | select(.healthy | not)'";

/// List nodes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list.
///
/// # Errors
/// No answer.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let mut nodes = call!(client, nodes.list_nodes(v1::ListNodesRequest { at_least: 0 }))?.nodes;
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let columns = [
        Column::whole("NODE"),
        Column::whole("STATE"),
        Column::cut("OFFERS"),
        Column::whole("CPUS"),
        Column::whole("MEMORY"),
        Column::whole("RUNS"),
        Column::whole("BEAT"),
        Column::cut("REASON"),
        Column::whole("POOL").wide(),
        Column::whole("RACK").wide(),
        Column::cut("TAINTS").wide(),
        Column::whole("EPOCH").wide(),
        Column::whole("SKEW").wide(),
        Column::cut("ADDRESS").wide(),
        Column::whole("AGENT").wide(),
    ];
    ctx.output.list(&columns, nodes.iter().map(row).collect())?;
    Ok(Exit::Done)
}

fn row(node: &Node) -> Row {
    let by = if node.changed_by.is_empty() || node.reason.is_empty() { String::new() } else { format!(" ({})", node.changed_by) };
    let cells = vec![
        node.name.clone(),
        node.state.clone(),
        offers(node),
        node.cpus.to_string(),
        ByteSize(node.memory_bytes).to_string(),
        node.held.len().to_string(),
        node.last_beat_ms.map_or_else(|| "-".to_owned(), |millis| crate::output::length(millis / 1_000)),
        format!("{}{by}", node.reason),
        node.pool.clone(),
        node.rack.clone(),
        node.taints.iter().map(|taint| taint.taint.as_str()).collect::<Vec<_>>().join(", "),
        node.epoch.to_string(),
        node.clock_ahead_ms.map_or_else(|| "-".to_owned(), |ahead| format!("{ahead}ms")),
        node.address.clone(),
        node.agent_version.clone(),
    ];
    Row { id: node.name.clone(), cells, data: json::to_value(node) }
}

/// `8x H100, shared (1 unhealthy)`, or `4 slots`.
fn offers(node: &Node) -> String {
    if node.gpus.is_empty() {
        return format!("{} slots", node.slots);
    }
    let mut models: BTreeMap<String, usize> = BTreeMap::new();
    for gpu in &node.gpus {
        let slice = if gpu.mig_profile.is_empty() { String::new() } else { format!(" {}", gpu.mig_profile) };
        *models.entry(format!("{}{slice}", gpu.model)).or_default() += 1;
    }
    let shared = if node.share_gpus { ", shared" } else { "" };
    let offered: Vec<String> = models.into_iter().map(|(model, count)| format!("{count}x {model}")).collect();
    let ill = node.gpus.iter().filter(|gpu| !gpu.healthy).count();
    let ill = if ill > 0 { format!(" ({ill} unhealthy)") } else { String::new() };
    format!("{}{shared}{ill}", offered.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_api::v1::NodeGpu;

    #[test]
    fn what_a_node_offers_is_told_by_kind_with_the_unhealthy_ones() {
        let gpu = |model: &str, healthy| NodeGpu { model: model.into(), healthy, ..NodeGpu::default() };
        let node = Node { gpus: vec![gpu("H100", true), gpu("H100", false), gpu("A100", true)], ..Node::default() };
        assert_eq!(offers(&node), "1x A100, 2x H100 (1 unhealthy)");
        assert_eq!(offers(&Node { share_gpus: true, ..node }), "1x A100, 2x H100, shared (1 unhealthy)");
        assert_eq!(offers(&Node { slots: 4, ..Node::default() }), "4 slots");
    }
}
