//! The inventory's view: every node, and the requests that wait for an answer. A pure fold of the ledger.

use footplate_es::{Cause, Evolve, Project};
use footplate_events::facts::NodeRegistered;
use footplate_events::{Event, Recorded};
use footplate_types::{Epoch, Gpu, GpuUuid, NodeName, RequestId, Taint, Toleration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Why a node is marked, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Why.
    pub reason: String,
    /// Who asked.
    pub by: String,
    /// The ledger sequence.
    pub at: u64,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// What it told of itself last; absent when it is known by requests alone.
    pub registered: Option<NodeRegistered>,
    /// It takes no new work.
    pub cordoned: Option<Mark>,
    /// It is being emptied.
    pub drained: Option<Mark>,
    /// What operators have set to keep off jobs that do not tolerate it.
    #[serde(default)]
    pub taints: BTreeMap<Taint, Mark>,
    /// It is not heard of any more.
    pub lost: Option<Mark>,
    /// The node as a whole is unhealthy; why.
    pub unhealthy: Option<String>,
    /// GPUs that are unhealthy; why.
    pub unhealthy_gpus: BTreeMap<GpuUuid, String>,
    /// The ledger sequence of the last event about it.
    pub sequence: u64,
}

impl NodeState {
    /// What ails a GPU of it, or the GPU of which that is a slice; `None` when it may be used.
    pub fn ails(&self, gpu: &Gpu) -> Option<&str> {
        let of = |uuid: &GpuUuid| self.unhealthy_gpus.get(uuid).map(String::as_str);
        of(&gpu.uuid).or_else(|| gpu.parent.as_ref().and_then(of))
    }

    /// The word for its state in the API.
    pub const fn state(&self) -> &'static str {
        if self.registered.is_none() {
            "unknown"
        } else if self.lost.is_some() {
            "lost"
        } else if self.drained.is_some() {
            "drained"
        } else if self.cordoned.is_some() {
            "cordoned"
        } else if self.unhealthy.is_some() {
            "unhealthy"
        } else {
            "ready"
        }
    }
}

/// What an operator asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// No new work.
    Cordon(String),
    /// Work again.
    Uncordon,
    /// Empty it.
    Drain(String),
    /// Keep off who does not tolerate it; why.
    Taint(Taint, String),
    /// Let them in again.
    Untaint(Toleration),
    /// It is gone.
    DeclareLost(String, Option<Epoch>),
}

/// A request that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingRequest {
    /// About which node.
    pub node: NodeName,
    /// What is asked.
    pub kind: RequestKind,
    /// What the answer follows from.
    pub cause: Cause,
    /// The ledger sequence: requests are answered in this order.
    pub at: u64,
}

/// The inventory's view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    nodes: BTreeMap<NodeName, NodeState>,
    pending: BTreeMap<RequestId, PendingRequest>,
    answered: BTreeMap<RequestId, Option<String>>,
}

impl Inventory {
    /// One node.
    pub fn node(&self, name: &NodeName) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// All nodes that ever registered, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeState)> {
        self.nodes.iter().filter(|(_, node)| node.registered.is_some())
    }

    /// Requests without an answer, oldest first.
    pub fn pending(&self) -> Vec<(RequestId, &PendingRequest)> {
        let mut pending: Vec<_> = self.pending.iter().map(|(id, request)| (*id, request)).collect();
        pending.sort_by_key(|(_, request)| request.at);
        pending
    }

    /// The answer to a request: `Some(None)` = done, `Some(Some(reason))` = refused, `None` = none yet.
    pub fn answer(&self, request: &RequestId) -> Option<&Option<String>> {
        self.answered.get(request)
    }

    fn answered(&mut self, request: Option<RequestId>, refused: Option<String>) {
        if let Some(request) = request {
            self.pending.remove(&request);
            self.answered.entry(request).or_insert(refused);
        }
    }

    fn ask(&mut self, recorded: &Recorded, node: NodeName, request: RequestId, kind: RequestKind) {
        if !self.answered.contains_key(&request) {
            let cause = Cause::of(&recorded.envelope);
            self.pending.entry(request).or_insert(PendingRequest { node, kind, cause, at: recorded.sequence });
        }
    }
}

impl Evolve for Inventory {
    fn evolve(&mut self, recorded: &Recorded) {
        let Some(name) = recorded.envelope.subject.node_name() else { return };
        let mark = |reason: &str| Some(Mark { reason: reason.to_owned(), by: recorded.envelope.actor.to_string(), at: recorded.sequence });
        match &recorded.envelope.event {
            Event::NodeCordonRequested(fact) => return self.ask(recorded, name, fact.request, RequestKind::Cordon(fact.reason.clone())),
            Event::NodeUncordonRequested(fact) => return self.ask(recorded, name, fact.request, RequestKind::Uncordon),
            Event::NodeDrainRequested(fact) => return self.ask(recorded, name, fact.request, RequestKind::Drain(fact.reason.clone())),
            Event::NodeTaintRequested(fact) => {
                return self.ask(recorded, name, fact.request, RequestKind::Taint(fact.taint.clone(), fact.reason.clone()));
            }
            Event::NodeUntaintRequested(fact) => return self.ask(recorded, name, fact.request, RequestKind::Untaint(fact.taint.clone())),
            Event::NodeLossDeclared(fact) => {
                return self.ask(recorded, name, fact.request, RequestKind::DeclareLost(fact.reason.clone(), fact.epoch));
            }
            _ => {}
        }
        let node = self.nodes.entry(name.clone()).or_default();
        node.sequence = recorded.sequence;
        let mut answer = (None, None);
        match &recorded.envelope.event {
            Event::NodeRegistered(fact) => {
                node.lost = None;
                node.unhealthy_gpus.retain(|uuid, _| fact.shape.gpus.iter().any(|gpu| gpu.is_of(uuid)));
                node.registered = Some(fact.clone());
            }
            Event::NodeHealthChanged(fact) => match (&fact.gpu, fact.healthy) {
                (Some(gpu), true) => {
                    node.unhealthy_gpus.remove(gpu);
                }
                (Some(gpu), false) => {
                    node.unhealthy_gpus.insert(gpu.clone(), fact.reason.clone());
                }
                (None, true) => node.unhealthy = None,
                (None, false) => node.unhealthy = Some(fact.reason.clone()),
            },
            Event::NodeCordoned(fact) => {
                node.cordoned = mark(&fact.reason);
                answer = (fact.request, None);
            }
            Event::NodeUncordoned(fact) => {
                node.cordoned = None;
                node.drained = None;
                answer = (fact.request, None);
            }
            Event::NodeDrained(fact) => {
                node.drained = mark(&fact.reason);
                answer = (fact.request, None);
            }
            Event::NodeTainted(fact) => {
                node.taints.extend(mark(&fact.reason).map(|mark| (fact.taint.clone(), mark)));
                answer = (fact.request, None);
            }
            Event::NodeUntainted(fact) => {
                node.taints.retain(|taint, _| !fact.taint.tolerates(taint));
                answer = (fact.request, None);
            }
            Event::NodeLost(fact) => {
                node.lost = mark(&fact.reason);
                let open: Vec<RequestId> = self
                    .pending
                    .iter()
                    .filter(|(_, request)| request.node == name && matches!(request.kind, RequestKind::DeclareLost(..)))
                    .map(|(id, _)| *id)
                    .collect();
                for request in open {
                    self.answered(Some(request), None);
                }
            }
            Event::NodeRefused(fact) => answer = (Some(fact.request), Some(fact.reason.clone())),
            _ => {}
        }
        self.answered(answer.0, answer.1);
    }
}

impl Project for Inventory {
    fn fingerprint(&self) -> String {
        let mut out = String::new();
        for (name, node) in &self.nodes {
            let _ = writeln!(out, "node {name} {node:?}");
        }
        let _ = writeln!(out, "pending {:?}", self.pending);
        let _ = writeln!(out, "answered {:?}", self.answered);
        out
    }
}
