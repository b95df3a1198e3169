//! What the inventory's leader writes: answers to requests, what agents told, and who is not heard of any more.

use crate::state::{Inventory, RequestKind};
use crate::taints;
use footplate_es::Decision;
use footplate_events::facts::{
    NodeCordoned, NodeDrained, NodeHealthChanged, NodeLost, NodeRefused, NodeRegistered, NodeTainted, NodeUncordoned, NodeUntainted,
};
use footplate_events::messages::{InventoryReport, NodeWatch, Watch};
use footplate_events::{Event, Subject};
use footplate_types::{Epoch, GpuUuid, NodeName, RequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One report as it came from a node's subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// The node of the subject.
    pub node: NodeName,
    /// The generation under which it was written.
    pub epoch: Epoch,
    /// What it says.
    pub report: InventoryReport,
}

/// What to write now, and when to look again at the latest. A repeated call on the folded result writes nothing new.
pub fn decide(
    state: &Inventory,
    reports: &[Reported],
    watch: &Watch,
    now: Duration,
    margin: Duration,
) -> (Vec<Decision>, Option<Duration>) {
    let mut decisions = answers(state);
    decisions.extend(told(state, reports));
    let mentioned: BTreeSet<&NodeName> = reports.iter().map(|reported| &reported.node).collect();
    let (heard, wake) = silence(state, watch, &mentioned, now, margin);
    decisions.extend(heard);
    (decisions, wake)
}

fn answers(state: &Inventory) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let mut lost = BTreeSet::new();
    let mut tainted = BTreeSet::new();
    for (request, asked) in state.pending() {
        // What a later one comes to depends on what the first has left: it is answered once that is folded.
        if matches!(asked.kind, RequestKind::Taint(..) | RequestKind::Untaint(_)) && !tainted.insert(&asked.node) {
            continue;
        }
        let known = state.node(&asked.node).and_then(|node| node.registered.as_ref());
        let event: Event = match (&asked.kind, known) {
            (_, None) => refusal(state, request, &asked.node).into(),
            (RequestKind::Cordon(reason), Some(_)) => NodeCordoned { request: Some(request), reason: reason.clone() }.into(),
            (RequestKind::Uncordon, Some(_)) => NodeUncordoned { request: Some(request) }.into(),
            (RequestKind::Drain(reason), Some(_)) => NodeDrained { request: Some(request), reason: reason.clone() }.into(),
            (RequestKind::Taint(taint, reason), Some(_)) => match taints::lacks_room(state, &asked.node, taint) {
                Some(reason) => NodeRefused { request, reason }.into(),
                None => NodeTainted { request: Some(request), taint: taint.clone(), reason: reason.clone() }.into(),
            },
            (RequestKind::Untaint(taint), Some(_)) => match taints::has_none(state, &asked.node, taint) {
                Some(reason) => NodeRefused { request, reason }.into(),
                None => NodeUntainted { request: Some(request), taint: taint.clone() }.into(),
            },
            (RequestKind::DeclareLost(_, Some(meant)), Some(registered)) if *meant < registered.epoch => {
                over(request, *meant, registered).into()
            }
            (RequestKind::DeclareLost(reason, _), Some(registered)) => {
                if !lost.insert(&asked.node) {
                    continue;
                }
                NodeLost { epoch: registered.epoch, reason: format!("declared lost: {reason}") }.into()
            }
        };
        decisions.push(Decision::new(Subject::node(&asked.node), event, Some(asked.cause.clone())));
    }
    decisions
}

/// The generation that an operator means is over: the machine has come back since.
fn over(request: RequestId, meant: Epoch, registered: &NodeRegistered) -> NodeRefused {
    let reason = format!(
        "generation {} of the node was declared lost, and it has registered under generation {} since; look again, and declare that one when it is gone",
        meant.0, registered.epoch.0
    );
    NodeRefused { request, reason }
}

fn refusal(state: &Inventory, request: RequestId, node: &NodeName) -> NodeRefused {
    let known: Vec<&str> = state.nodes().map(|(name, _)| name.as_str()).take(10).collect();
    let known = if known.is_empty() { "no node has registered yet".to_owned() } else { format!("known nodes: {}", known.join(", ")) };
    NodeRefused { request, reason: format!("node {node} is not known; {known}") }
}

/// What agents told and is not known yet. Of several registrations of one node the last counts.
fn told(state: &Inventory, reports: &[Reported]) -> Vec<Decision> {
    let mut registered: BTreeMap<&NodeName, &NodeRegistered> = BTreeMap::new();
    let mut health: Vec<(&NodeName, &NodeHealthChanged)> = Vec::new();
    for reported in reports {
        match &reported.report {
            InventoryReport::Registered { registered: fact } if fact.epoch == reported.epoch => {
                registered.insert(&reported.node, fact);
            }
            InventoryReport::Registered { .. } => {}
            InventoryReport::HealthChanged { changed } => health.push((&reported.node, changed)),
        }
    }
    let mut decisions = Vec::new();
    for (node, fact) in registered {
        let known = state.node(node);
        let current = known.and_then(|known| known.registered.as_ref());
        let is_old = current.is_some_and(|current| current.epoch > fact.epoch);
        let is_same = current.is_some_and(|current| same_node(current, fact)) && known.is_some_and(|known| known.lost.is_none());
        if !is_old && !is_same {
            decisions.push(Decision::new(Subject::node(node), fact.clone(), None));
        }
    }
    // In order, against what the reports before say: unhealthy and healthy again in one look are two facts, or none.
    let mut unhealthy: BTreeMap<(&NodeName, Option<&GpuUuid>), bool> = BTreeMap::new();
    for (ordinal, (node, fact)) in health.into_iter().enumerate() {
        let known = state.node(node);
        let was = unhealthy.entry((node, fact.gpu.as_ref())).or_insert_with(|| match &fact.gpu {
            Some(gpu) => known.is_some_and(|known| known.unhealthy_gpus.contains_key(gpu)),
            None => known.is_some_and(|known| known.unhealthy.is_some()),
        });
        if *was == fact.healthy {
            *was = !fact.healthy;
            let mut decision = Decision::new(Subject::node(node), fact.clone(), None);
            decision.ordinal = ordinal as u32;
            decisions.push(decision);
        }
    }
    decisions
}

/// Whether a registration says nothing new: clocks and free disk move, they are no news.
fn same_node(known: &NodeRegistered, told: &NodeRegistered) -> bool {
    let settled = |fact: &NodeRegistered| {
        let mut fact = fact.clone();
        fact.clock_ahead_ms = None;
        fact.shape.disk_bytes = 0;
        fact
    };
    settled(known) == settled(told)
}

/// Nodes whose lease ran out or whose generation was fenced are lost; lost ones that are heard of again in the same generation are back.
fn silence(
    state: &Inventory,
    watch: &Watch,
    mentioned: &BTreeSet<&NodeName>,
    now: Duration,
    margin: Duration,
) -> (Vec<Decision>, Option<Duration>) {
    let mut decisions = Vec::new();
    let mut wake: Option<Duration> = None;
    for (name, node) in state.nodes().filter(|(name, _)| !mentioned.contains(name)) {
        let Some(registered) = &node.registered else { continue };
        let Some(NodeWatch { seen, seen_at }) = watch.nodes.get(name) else { continue };
        let lost = |reason: String| Decision {
            ordinal: seen.sequence as u32,
            ..Decision::new(Subject::node(name), NodeLost { epoch: registered.epoch, reason }, None)
        };
        let expired = !seen.lease.is_zero() && now >= *seen_at + seen.lease + margin;
        match (&node.lost, seen.epoch > registered.epoch) {
            (None, true) => decisions.push(lost(format!("its generation {} is over", registered.epoch))),
            (None, false) if expired => {
                decisions.push(lost(format!("no beat for {} ms", now.saturating_sub(*seen_at).as_millis())));
            }
            (None, false) if !seen.lease.is_zero() => {
                let wait = (*seen_at + seen.lease + margin).saturating_sub(now);
                wake = Some(wake.map_or(wait, |known| known.min(wait)));
            }
            (Some(mark), false) if !seen.is_fence && !expired && !mark.reason.starts_with("declared lost") => {
                let same_boot = seen.boot_id.as_ref() == Some(&registered.boot_id);
                if same_boot && seen.epoch == registered.epoch {
                    decisions.push(Decision::new(Subject::node(name), registered.clone(), None));
                }
            }
            _ => {}
        }
    }
    (decisions, wake)
}
