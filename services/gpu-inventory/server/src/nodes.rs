//! `NodeService`: what is there, and what operators ask of it.

use footplate_api::server::principal;
use footplate_api::v1::{
    GetNodeRequest, GetNodeResponse, ListNodesRequest, ListNodesResponse, Node, NodeGpu, NodeRequest, NodeRequestResponse, NodeTaint,
    node_service_server::NodeService,
};
use footplate_api::{Refusal, reason};
use footplate_eventlog::beats::SharedBeats;
use footplate_events::facts::{
    NodeCordonRequested, NodeDrainRequested, NodeLossDeclared, NodeTaintRequested, NodeUncordonRequested, NodeUntaintRequested, cut_text,
};
use footplate_events::{Event, Subject};
use footplate_gpu_inventory_core::{Inventory, NodeState};
use footplate_shell::{Shell, TRIES, repeated};
use footplate_types::{Epoch, EventId, NodeName, PrincipalId, RequestId, Taint, Toleration};
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Nodes {
    shell: Shell<Inventory>,
    beats: SharedBeats,
}

/// A node's taints: those that its agent declares, then those that operators have set.
fn taints(node: &NodeState) -> impl Iterator<Item = NodeTaint> {
    let declared = node.registered.iter().flat_map(|registered| &registered.shape.taints);
    let declared = declared.map(|taint| NodeTaint { taint: taint.to_string(), declared: true, ..NodeTaint::default() });
    let of_operators = node.taints.iter().map(|(taint, mark)| NodeTaint {
        taint: taint.to_string(),
        declared: false,
        reason: mark.reason.clone(),
        changed_by: mark.by.clone(),
    });
    declared.chain(of_operators)
}

impl Nodes {
    pub(crate) fn new(shell: Shell<Inventory>, beats: SharedBeats) -> Self {
        Self { shell, beats }
    }

    fn show(&self, name: &NodeName, node: &NodeState) -> Node {
        let beats = self.beats.lock();
        let watch = beats.watch.nodes.get(name);
        let beat = beats.last.get(name);
        let Some(registered) = &node.registered else { return Node { name: name.to_string(), ..Node::default() } };
        let shape = &registered.shape;
        let mark = node.lost.as_ref().or(node.drained.as_ref()).or(node.cordoned.as_ref());
        let gpus = shape.gpus.iter().map(|gpu| NodeGpu {
            uuid: gpu.uuid.to_string(),
            model: gpu.model.to_string(),
            memory_bytes: gpu.memory_bytes,
            island: gpu.island.map(|island| island.0),
            numa: gpu.numa,
            pci: gpu.pci.clone().unwrap_or_default(),
            mig_profile: gpu.mig_profile.clone().unwrap_or_default(),
            parent: gpu.parent.as_ref().map(ToString::to_string).unwrap_or_default(),
            healthy: node.ails(gpu).is_none(),
            reason: node.ails(gpu).unwrap_or_default().to_owned(),
        });
        Node {
            name: name.to_string(),
            state: node.state().to_owned(),
            epoch: registered.epoch.0,
            boot_id: registered.boot_id.clone(),
            gpus: gpus.collect(),
            slots: shape.slots,
            cpus: shape.cpus,
            memory_bytes: shape.memory_bytes,
            disk_bytes: shape.disk_bytes,
            pool: shape.pool.clone().unwrap_or_default(),
            rack: shape.rack.clone().unwrap_or_default(),
            labels: shape.labels.clone().into_iter().collect(),
            taints: taints(node).collect(),
            address: registered.address.clone(),
            agent_version: registered.agent_version.clone(),
            reason: mark.map(|mark| mark.reason.clone()).or_else(|| node.unhealthy.clone()).unwrap_or_default(),
            changed_by: mark.map(|mark| mark.by.clone()).unwrap_or_default(),
            last_beat_ms: watch.map(|watch| self.shell.clock.elapsed().saturating_sub(watch.seen_at).as_millis() as u64),
            clock_ahead_ms: registered.clock_ahead_ms,
            sequence: node.sequence,
            share_gpus: shape.share_gpus,
            held: beat.map(|beat| beat.held.iter().map(|(run, attempt)| format!("{run}-{attempt}")).collect()).unwrap_or_default(),
        }
    }

    /// Records a request and, when asked to, waits for the leader's answer. `event` is told what the request was recorded as before, if it was.
    async fn ask(
        &self,
        request: Request<NodeRequest>,
        event: impl Fn(RequestId, String, Option<&Event>) -> Event + Send + Sync,
    ) -> Result<Response<NodeRequestResponse>, Status> {
        let actor = principal(&request)?;
        let request = request.into_inner();
        let name = NodeName::parse(&request.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        self.shell.at_least(0).await?;
        if self.shell.live.read().node(&name).is_none_or(|node| node.registered.is_none()) {
            let known: Vec<String> = self.shell.live.read().nodes().map(|(name, _)| name.to_string()).take(10).collect();
            return Err(Refusal::new(&reason::NODE_NOT_FOUND, format!("node {name} is not known")).allowed(known.join(", ")).into());
        }
        let id = match request.request_id.as_str() {
            "" => footplate_clock::request_id(),
            key => RequestId::derived(&[b"node", name.as_str().as_bytes(), key.as_bytes()]),
        };
        let event_id = EventId::derived(&[id.as_bytes()]);
        let fact = |first: Option<&Event>| event(id, cut_text(&request.reason), first);
        let subject = Subject::node_request(&name);
        let sequence = self.append((event_id, request.request_id.as_str()), subject, fact, actor).await?;
        let mut answer = NodeRequestResponse { sequence, ..NodeRequestResponse::default() };
        if request.wait
            && let Some(refused) = self.answer(&id).await?
        {
            answer.answered = true;
            answer.refused = refused.unwrap_or_default();
        }
        Ok(Response::new(answer))
    }

    async fn append(
        &self,
        (id, key): (EventId, &str),
        subject: Subject,
        event: impl Fn(Option<&Event>) -> Event + Send + Sync,
        actor: PrincipalId,
    ) -> Result<u64, Refusal> {
        for _ in 0..TRIES {
            let (facts, expected) = self.shell.aggregate(&subject).await?;
            let first = facts.iter().find(|recorded| recorded.envelope.id == id).map(|recorded| &recorded.envelope.event);
            let event = event(first);
            if let Some(sequence) = repeated(&facts, id, &event, key)? {
                return Ok(sequence);
            }
            let envelope = self.shell.envelope(id, subject.clone(), event, actor.clone());
            if let Some(sequence) = self.shell.append(envelope, expected).await? {
                return Ok(sequence);
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, "many requests about this node came at once"))
    }

    /// The leader's answer; `None` when it did not come in time.
    async fn answer(&self, request: &RequestId) -> Result<Option<Option<String>>, Status> {
        let mut changes = self.shell.live.changes();
        let answered = async {
            loop {
                if let Some(answer) = self.shell.live.read().answer(request) {
                    return Some(answer.clone());
                }
                if changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        Ok(tokio::time::timeout(self.shell.wait, answered).await.unwrap_or(None))
    }
}

#[tonic::async_trait]
impl NodeService for Nodes {
    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        self.shell.at_least(request.into_inner().at_least).await?;
        let view_sequence = self.shell.live.position();
        let nodes = self.shell.live.read().nodes().map(|(name, node)| self.show(name, node)).collect();
        Ok(Response::new(ListNodesResponse { nodes, view_sequence }))
    }

    async fn get_node(&self, request: Request<GetNodeRequest>) -> Result<Response<GetNodeResponse>, Status> {
        let request = request.into_inner();
        let name = NodeName::parse(&request.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        self.shell.at_least(request.at_least).await?;
        let state = self.shell.live.read();
        let known = state.node(&name).filter(|node| node.registered.is_some());
        let node = known.ok_or_else(|| Status::from(Refusal::new(&reason::NODE_NOT_FOUND, format!("node {name} is not known"))))?;
        Ok(Response::new(GetNodeResponse { node: Some(self.show(&name, node)) }))
    }

    async fn cordon_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, reason, _| NodeCordonRequested { request, reason }.into()).await
    }

    async fn uncordon_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, _, _| NodeUncordonRequested { request }.into()).await
    }

    async fn drain_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, reason, _| NodeDrainRequested { request, reason }.into()).await
    }

    async fn taint_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        let taint = Taint::parse(&request.get_ref().taint).map_err(Refusal::from)?;
        self.ask(request, move |request, reason, _| NodeTaintRequested { request, taint: taint.clone(), reason }.into()).await
    }

    async fn untaint_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        let taint = Toleration::parse(&request.get_ref().taint).map_err(|invalid| Refusal::from(invalid.of("taint")))?;
        self.ask(request, move |request, _, _| NodeUntaintRequested { request, taint: taint.clone() }.into()).await
    }

    async fn declare_node_lost(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        let asked = request.get_ref();
        let known = NodeName::parse(&asked.name).ok().and_then(|name| Some(self.shell.live.read().node(&name)?.registered.as_ref()?.epoch));
        let (is_named, epoch) = (asked.epoch.is_some(), asked.epoch.map(Epoch).or(known));
        let event = |request, reason, first: Option<&Event>| {
            // Told again without one, it means the generation that it meant at first.
            let first = match first {
                Some(Event::NodeLossDeclared(first)) if !is_named => first.epoch,
                _ => epoch,
            };
            NodeLossDeclared { request, reason, epoch: first }.into()
        };
        self.ask(request, event).await
    }
}
