//! Taints that operators set on nodes and take off again: which requests are refused, in words.

use crate::state::Inventory;
use footplate_events::facts::PlacementAsk;
use footplate_types::{NodeName, Taint, Toleration};

/// Why an operator's taint cannot be set; `None` when it can. One that is there already is set again, with its new reason.
pub(crate) fn lacks_room(state: &Inventory, node: &NodeName, taint: &Taint) -> Option<String> {
    let known = &state.node(node)?.taints;
    let most = PlacementAsk::TAINTS_MAX;
    (known.len() >= most && !known.contains_key(taint))
        .then(|| format!("node {node} has {most} taints of operators, which is the most; take one off first (node untaint)"))
}

/// Why there is nothing to take off; `None` when there is.
pub(crate) fn has_none(state: &Inventory, node: &NodeName, asked: &Toleration) -> Option<String> {
    let known = state.node(node)?;
    if known.taints.keys().any(|taint| asked.tolerates(taint)) {
        return None;
    }
    let declared = known.registered.iter().flat_map(|registered| &registered.shape.taints);
    if let Some(taint) = declared.clone().find(|taint| asked.tolerates(taint)) {
        return Some(format!("taint {taint} of node {node} is declared by its agent; take it out of agent.taints there"));
    }
    let all: Vec<String> = known.taints.keys().chain(declared).map(ToString::to_string).collect();
    let all = if all.is_empty() { "it has none".to_owned() } else { format!("it has {}", all.join(", ")) };
    Some(format!("node {node} has no taint {asked}; {all}"))
}
