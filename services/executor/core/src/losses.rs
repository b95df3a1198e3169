//! Who is lost: leases watched on the watcher's own clock, fences, and the members that fall with them.
//!
//! A member is lost only when its node's generation is over: the beat subject shows a higher one (the fence itself, or the agent beating
//! under it, as it does once the machine was started anew), or the ledger holds a registration with another boot id after the placement.
//! Silence alone loses nobody: after the lease, the kill time and a margin it leads to a fence, and the fence to the loss.

use crate::Executor;
use footplate_es::Decision;
use footplate_events::Subject;
use footplate_events::facts::{AttemptLost, LossEvidence, MemberLost};
use footplate_events::messages::{NodeWatch, Watch};
use footplate_types::{AttemptId, Epoch, NodeName};
use std::collections::BTreeMap;
use std::time::Duration;

/// Nodes whose generation is to be fenced now: (node, the beat subject's expected last sequence, the generation that opens, why). Only nodes that
/// hold members of the generation that ends. And when to look again at the latest.
#[allow(clippy::type_complexity)]
pub fn due_fences(
    state: &Executor,
    watch: &Watch,
    now: Duration,
    margin: Duration,
) -> (Vec<(NodeName, u64, Epoch, String)>, Option<Duration>) {
    let mut due = Vec::new();
    let mut wake: Option<Duration> = None;
    // A declaration fences at once, busy or not: fenced later it would hit work that was placed after the node came back. It speaks of the
    // generation that was known when it was made: a node that beats under a later one has come back since, and lives.
    for (node, request, of) in state.declared_lost() {
        let Some(NodeWatch { seen, .. }) = watch.nodes.get(node) else { continue };
        let is_of_this_generation = of.is_none_or(|of| seen.epoch <= of);
        if !seen.is_fence && is_of_this_generation {
            due.push((node.clone(), seen.sequence, Epoch(seen.epoch.0 + 1), format!("declared lost by request {request}")));
        }
    }
    for node in state.busy_nodes() {
        let Some(NodeWatch { seen, seen_at }) = watch.nodes.get(node) else { continue };
        let holds = state.unreleased_on(node).any(|(_, _, member)| member.epoch >= seen.epoch);
        let is_declared = state.node(node).is_some_and(|node| node.declared_lost.is_some());
        if seen.is_fence || !holds || is_declared {
            continue;
        }
        let next = Epoch(seen.epoch.0 + 1);
        if seen.lease.is_zero() {
            continue;
        }
        let deadline = *seen_at + seen.lease + seen.kill + margin;
        if now >= deadline {
            let silent = now.saturating_sub(*seen_at).as_millis();
            due.push((node.clone(), seen.sequence, next, format!("no beat for {silent} ms")));
        } else {
            let wait = deadline - now;
            wake = Some(wake.map_or(wait, |known| known.min(wait)));
        }
    }
    (due, wake)
}

/// The members that are lost by what stands on the beat subjects, one event an attempt.
pub fn losses(state: &Executor, watch: &Watch) -> Vec<Decision> {
    let mut lost: BTreeMap<AttemptId, Vec<MemberLost>> = BTreeMap::new();
    for node in state.busy_nodes() {
        let seen = watch.nodes.get(node).map_or(Epoch(0), |watch| watch.seen.epoch);
        let seen_boot = watch.nodes.get(node).and_then(|watch| watch.seen.boot_id.as_ref());
        for (id, index, member) in state.unreleased_on(node) {
            let declared = state.node(node).is_some_and(|node| node.declared_lost.is_some());
            let evidence = if seen > member.epoch {
                let is_rebooted = seen_boot.is_some_and(|boot| member.boot_id.as_ref().is_some_and(|known| known != boot));
                match (declared, is_rebooted) {
                    (true, _) => LossEvidence::Declared,
                    (false, true) => LossEvidence::Rebooted,
                    (false, false) => LossEvidence::LeaseExpired,
                }
            } else if state.node(node).is_some_and(|known| member.boot_id.as_ref().is_some_and(|boot| *boot != known.boot_id)) {
                LossEvidence::Rebooted
            } else {
                continue;
            };
            let fact = MemberLost { member: index, node: node.clone(), epoch: member.epoch, evidence };
            lost.entry(id).or_default().push(fact);
        }
    }
    let mut decisions = Vec::new();
    for (id, members) in lost {
        let Some(attempt) = state.attempt(&id) else { continue };
        let ordinal = members.first().map_or(0, |member| member.member.0);
        let mut decision = Decision::new(Subject::attempt(&attempt.project, id), AttemptLost { members }, Some(attempt.cause.clone()));
        decision.ordinal = ordinal;
        decisions.push(decision);
    }
    decisions
}
