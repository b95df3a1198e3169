//! `lineage`: what a run stands on and what stands on it, as a tree, as JSON, or as a Graphviz graph.

use crate::{
    args::RunArg,
    call,
    context::{Context, find_run_id},
    output::{Exit, Format, print},
};
use footplate_api::{
    json,
    v1::{self, LineageNode},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long the replay may take.
pub(super) const REPLAY: Duration = Duration::from_secs(120);

const EXAMPLES: &str = "\
Examples:
  footplate lineage 0190f3a2
  footplate lineage 0190f3a2 -o dot | dot -Tsvg > lineage.svg";

/// Show what a run stands on and what stands on it, rebuilt from the ledger
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run.
    #[command(flatten)]
    pub run: RunArg,
}

/// Prints the lineage.
///
/// # Errors
/// No such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let run_id = find_run_id(&client, &args.run.run).await?;
    let asked = v1::GetLineageRequest { project: client.project().to_owned(), run_id: run_id.clone() };
    let mut lineage = call!(client, within REPLAY, runs.get_lineage(asked))?;
    in_order(&mut lineage);
    if ctx.output.format == Format::Dot {
        print(&dot(&lineage))?;
        return Ok(Exit::Done);
    }
    ctx.output.one(&run_id, &json::to_value(&lineage), &tree(&lineage, &run_id))?;
    Ok(Exit::Done)
}

/// Things by kind, checkpoints by their step, and then as the ledger says so (so by attempt); edges by whom they leave and in the order of
/// what they lead to.
pub(super) fn in_order(lineage: &mut v1::GetLineageResponse) {
    let step = |node: &LineageNode| node.facts.get("step").and_then(|step| step.parse::<i64>().ok()).unwrap_or(0);
    lineage.nodes.sort_by_cached_key(|node| (node.kind.clone(), step(node), node.sequence, node.id.clone()));
    let places: BTreeMap<&str, usize> = lineage.nodes.iter().enumerate().map(|(place, node)| (node.id.as_str(), place)).collect();
    let place = |id: &str| places.get(id).copied().unwrap_or(usize::MAX);
    lineage.edges.sort_by(|one, other| {
        (place(&one.from), &one.relation, place(&one.to), &one.to).cmp(&(place(&other.from), &other.relation, place(&other.to), &other.to))
    });
}

/// The tree: the run, then along the edges that leave it; below, what leads to it.
fn tree(lineage: &v1::GetLineageResponse, run_id: &str) -> String {
    let root = lineage.nodes.iter().find(|node| node.kind == "run" && node.id.contains(run_id)).map_or(run_id, |node| node.id.as_str());
    tree_of(lineage, root)
}

/// The tree of any thing of a lineage.
pub(super) fn tree_of<'a>(lineage: &'a v1::GetLineageResponse, root: &'a str) -> String {
    let nodes: BTreeMap<&str, &LineageNode> = lineage.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut seen = BTreeSet::from([root]);
    let mut text = format!("{}\n", told(&nodes, root));
    let mut branches = leaving(lineage, root, root);
    branches.extend(
        lineage
            .edges
            .iter()
            .filter(|edge| edge.to == root && edge.from != root)
            .map(|edge| (format!("<- {}", word(&edge.relation)), edge.from.as_str())),
    );
    grow(&Forest { lineage, nodes: &nodes, root }, branches, "", &mut seen, &mut text);
    text.push_str(&format!("(ledger up to sequence {})\n", lineage.view_sequence));
    text
}

/// What a tree is grown from.
struct Forest<'a> {
    lineage: &'a v1::GetLineageResponse,
    nodes: &'a BTreeMap<&'a str, &'a LineageNode>,
    root: &'a str,
}

fn grow<'a>(forest: &Forest<'a>, branches: Vec<(String, &'a str)>, indent: &str, seen: &mut BTreeSet<&'a str>, text: &mut String) {
    let last = branches.len().saturating_sub(1);
    for (at, (relation, id)) in branches.into_iter().enumerate() {
        let (corner, below) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let again = !seen.insert(id);
        text.push_str(&format!("{indent}{corner}{relation} {}{}\n", told(forest.nodes, id), if again { " (above)" } else { "" }));
        if !again {
            grow(forest, leaving(forest.lineage, id, forest.root), &format!("{indent}{below}"), seen, text);
        }
    }
}

/// Where the edges from a thing lead; back to the root is left out, since it stands above.
fn leaving<'a>(lineage: &'a v1::GetLineageResponse, id: &str, root: &str) -> Vec<(String, &'a str)> {
    let edges = lineage.edges.iter().filter(|edge| edge.from == id && edge.to != root);
    edges.map(|edge| (word(&edge.relation), edge.to.as_str())).collect()
}

fn word(relation: &str) -> String {
    relation.replace('_', " ")
}

/// A node in one line: its kind, its label, its facts, and the sequence that says so.
fn told(nodes: &BTreeMap<&str, &LineageNode>, id: &str) -> String {
    let Some(node) = nodes.get(id) else { return id.to_owned() };
    let facts: BTreeMap<_, _> = node.facts.iter().collect();
    let facts: Vec<String> = facts.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let at = if node.sequence > 0 { format!(" @{}", node.sequence) } else { String::new() };
    format!("{} {}{facts}{at}", node.kind, node.label)
}

pub(super) fn dot(lineage: &v1::GetLineageResponse) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let mut text = String::from("digraph lineage {\n  rankdir=LR;\n  node [shape=box];\n");
    for node in &lineage.nodes {
        text.push_str(&format!("  {} [label={}];\n", quoted(&node.id), quoted(&format!("{}\n{}", node.kind, node.label))));
    }
    for edge in &lineage.edges {
        text.push_str(&format!("  {} -> {} [label={}];\n", quoted(&edge.from), quoted(&edge.to), quoted(&word(&edge.relation))));
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_api::v1::LineageEdge;

    fn lineage() -> v1::GetLineageResponse {
        let node = |id: &str, kind: &str, label: &str| LineageNode {
            id: id.into(),
            kind: kind.into(),
            label: label.into(),
            ..LineageNode::default()
        };
        let edge = |from: &str, relation: &str, to: &str| LineageEdge { from: from.into(), to: to.into(), relation: relation.into() };
        v1::GetLineageResponse {
            nodes: vec![
                node("run:ab", "run", "digits"),
                node("source:1", "source", "main \"x\""),
                node("attempt:1", "attempt", "1"),
                node("run:cd", "run", "again"),
            ],
            edges: vec![
                edge("run:ab", "used", "source:1"),
                edge("run:ab", "produced", "attempt:1"),
                edge("attempt:1", "used", "source:1"),
                edge("run:cd", "repeats", "run:ab"),
            ],
            view_sequence: 9,
        }
    }

    #[test]
    fn the_tree_shows_each_thing_once_whole_and_what_leads_to_the_run() {
        let text = tree(&lineage(), "ab");
        let wanted = "run digits\n├─ used source main \"x\"\n├─ produced attempt 1\n│  └─ used source main \"x\" (above)\n└─ <- repeats run again\n(ledger up to sequence 9)\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn checkpoints_stand_in_the_order_of_their_steps_and_then_of_the_attempts() {
        let checkpoint = |id: &str, step: u64, sequence: u64| LineageNode {
            id: id.into(),
            kind: "checkpoint".into(),
            label: format!("step {step}"),
            facts: [("step".to_owned(), step.to_string())].into(),
            sequence,
        };
        let mut lineage = lineage();
        for (id, step, sequence) in [("checkpoint:a", 10, 7), ("checkpoint:z", 9, 6), ("checkpoint:b", 9, 8)] {
            lineage.nodes.push(checkpoint(id, step, sequence));
            lineage.edges.push(LineageEdge { from: "attempt:1".into(), to: id.into(), relation: "produced".into() });
        }
        in_order(&mut lineage);
        let produced: Vec<&str> = lineage
            .edges
            .iter()
            .filter(|edge| edge.from == "attempt:1" && edge.relation == "produced")
            .map(|edge| edge.to.as_str())
            .collect();
        assert_eq!(produced, ["checkpoint:z", "checkpoint:b", "checkpoint:a"]);
    }

    #[test]
    fn the_graph_quotes_what_it_must() {
        let text = dot(&lineage());
        assert!(
            text.contains("\"source:1\" [label=\"source\\nmain \\\"x\\\"\"];")
                && text.contains("\"run:cd\" -> \"run:ab\" [label=\"repeats\"];"),
            "{text}"
        );
    }
}
