//! Nodes: registered, healthy or not, cordoned, drained, lost. None of it releases a claim.

use crate::state::{Mark, Node, Stamp, State};
use footplate_events::Envelope;
use footplate_events::facts::{NodeHealthChanged, NodeLost, NodeRegistered, NodeTainted, NodeUntainted};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    pub(super) fn node_registered(&mut self, envelope: &Envelope, stamp: Stamp, fact: &NodeRegistered) {
        let Some(name) = envelope.subject.node_name() else { return };
        let shape = Arc::new(fact.shape.clone());
        match self.nodes.get_mut(&name) {
            Some(node) if fact.epoch < node.epoch => {}
            Some(node) => {
                node.unhealthy_gpus.retain(|uuid, _| shape.gpus.iter().any(|gpu| gpu.is_of(uuid)));
                if fact.epoch > node.epoch {
                    node.raised_at = stamp.sequence;
                    node.pardon();
                }
                node.changed_at = stamp.sequence;
                node.epoch = fact.epoch;
                node.boot_id.clone_from(&fact.boot_id);
                node.declared_taints.clone_from(&shape.taints);
                node.shape = shape;
                node.gather_taints();
                node.address.clone_from(&fact.address);
                node.registered = stamp;
                node.lost = None;
            }
            None => {
                let node = Node {
                    epoch: fact.epoch,
                    boot_id: fact.boot_id.clone(),
                    declared_taints: shape.taints.clone(),
                    taints: BTreeMap::new(),
                    shape,
                    address: fact.address.clone(),
                    registered: stamp,
                    cordoned: None,
                    drained: None,
                    lost: None,
                    unhealthy: None,
                    blamed: Vec::new(),
                    quarantined: None,
                    unhealthy_gpus: BTreeMap::new(),
                    claims: BTreeMap::new(),
                    assigned_at: stamp.sequence,
                    changed_at: stamp.sequence,
                    raised_at: stamp.sequence,
                };
                self.nodes.insert(name, node);
                self.joined_at = stamp.sequence;
            }
        }
    }

    pub(super) fn node_health_changed(&mut self, envelope: &Envelope, stamp: Stamp, fact: &NodeHealthChanged) {
        let Some(node) = envelope.subject.node_name().and_then(|name| self.nodes.get_mut(&name)) else { return };
        node.changed_at = stamp.sequence;
        let mark = Mark { stamp, reason: fact.reason.clone() };
        match (&fact.gpu, fact.healthy) {
            (None, true) => node.unhealthy = None,
            (None, false) => node.unhealthy = Some(mark),
            (Some(gpu), true) => {
                node.unhealthy_gpus.remove(gpu);
            }
            (Some(gpu), false) => {
                node.unhealthy_gpus.insert(gpu.clone(), mark);
            }
        }
    }

    pub(super) fn node_marked(&mut self, envelope: &Envelope, set: impl Fn(&mut Node, Mark), stamp: Stamp, reason: &str) {
        if let Some(node) = envelope.subject.node_name().and_then(|name| self.nodes.get_mut(&name)) {
            node.changed_at = stamp.sequence;
            set(node, Mark { stamp, reason: reason.to_owned() });
        }
    }

    pub(super) fn node_uncordoned(&mut self, envelope: &Envelope, stamp: Stamp) {
        if let Some(node) = envelope.subject.node_name().and_then(|name| self.nodes.get_mut(&name)) {
            node.changed_at = stamp.sequence;
            node.pardon();
            node.cordoned = None;
            node.drained = None;
        }
    }

    pub(super) fn node_tainted(&mut self, envelope: &Envelope, stamp: Stamp, fact: &NodeTainted) {
        let Some(node) = envelope.subject.node_name().and_then(|name| self.nodes.get_mut(&name)) else { return };
        node.changed_at = stamp.sequence;
        node.taints.insert(fact.taint.clone(), Mark { stamp, reason: fact.reason.clone() });
        node.gather_taints();
    }

    pub(super) fn node_untainted(&mut self, envelope: &Envelope, stamp: Stamp, fact: &NodeUntainted) {
        let Some(node) = envelope.subject.node_name().and_then(|name| self.nodes.get_mut(&name)) else { return };
        node.changed_at = stamp.sequence;
        node.taints.retain(|taint, _| !fact.taint.tolerates(taint));
        node.gather_taints();
    }

    pub(super) fn node_lost(&mut self, envelope: &Envelope, stamp: Stamp, fact: &NodeLost) {
        let Some(node) = envelope.subject.node_name().and_then(|name| self.nodes.get_mut(&name)) else { return };
        if fact.epoch >= node.epoch {
            node.changed_at = stamp.sequence;
            node.lost = Some(Mark { stamp, reason: fact.reason.clone() });
        }
    }
}
