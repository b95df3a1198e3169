//! `NodeService`: what is there, and what operators ask of it.

use crate::Config;
use footplate_api::server::principal;
use footplate_api::v1::{
    GetNodeRequest, GetNodeResponse, ListNodesRequest, ListNodesResponse, Node, NodeGpu, NodeRequest, NodeRequestResponse,
    node_service_server::NodeService,
};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::beats::SharedBeats;
use footplate_eventlog::{AppendError, Ledger, Live};
use footplate_events::facts::{NodeCordonRequested, NodeDrainRequested, NodeLossDeclared, NodeUncordonRequested, cut_text};
use footplate_events::{Envelope, Event, Subject, Trace};
use footplate_gpu_inventory_core::{Inventory, NodeState};
use footplate_types::{EventId, NodeName, PrincipalId, RequestId};
use std::time::Duration;
use tonic::{Request, Response, Status};

/// How often an append that lost a race is decided again.
const TRIES: u32 = 16;

#[derive(Clone)]
pub(crate) struct Nodes {
    ledger: Ledger,
    live: Live<Inventory>,
    beats: SharedBeats,
    clock: SharedClock,
    source: String,
    wait: Duration,
}

impl Nodes {
    pub(crate) fn new(ledger: Ledger, live: Live<Inventory>, beats: SharedBeats, clock: SharedClock, config: &Config) -> Self {
        let source = format!("gpu-inventory/{}", config.instance);
        Self { ledger, live, beats, clock, source, wait: config.wait }
    }

    async fn at_least(&self, wanted: u64) -> Result<(), Status> {
        let reached = self.live.at_least(wanted, self.wait).await;
        reached.map_err(|behind| Refusal::new(&reason::VIEW_BEHIND, behind.to_string()).into())
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
            healthy: !node.unhealthy_gpus.contains_key(&gpu.uuid),
            reason: node.unhealthy_gpus.get(&gpu.uuid).cloned().unwrap_or_default(),
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
            address: registered.address.clone(),
            agent_version: registered.agent_version.clone(),
            reason: mark.map(|mark| mark.reason.clone()).or_else(|| node.unhealthy.clone()).unwrap_or_default(),
            changed_by: mark.map(|mark| mark.by.clone()).unwrap_or_default(),
            last_beat_ms: watch.map(|watch| self.clock.elapsed().saturating_sub(watch.seen_at).as_millis() as u64),
            clock_ahead_ms: registered.clock_ahead_ms,
            sequence: node.sequence,
            held: beat.map(|beat| beat.held.iter().map(|(run, attempt)| format!("{run}-{attempt}")).collect()).unwrap_or_default(),
        }
    }

    /// Records a request and, when asked to, waits for the leader's answer.
    async fn ask(
        &self,
        request: Request<NodeRequest>,
        event: impl Fn(RequestId, String) -> Event + Send,
    ) -> Result<Response<NodeRequestResponse>, Status> {
        let actor = principal(&request)?;
        let request = request.into_inner();
        let name = NodeName::parse(&request.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        self.at_least(0).await?;
        if self.live.read().node(&name).is_none_or(|node| node.registered.is_none()) {
            let known: Vec<String> = self.live.read().nodes().map(|(name, _)| name.to_string()).take(10).collect();
            return Err(Refusal::new(&reason::NODE_NOT_FOUND, format!("node {name} is not known")).allowed(known.join(", ")).into());
        }
        let id = match request.request_id.as_str() {
            "" => footplate_clock::request_id(),
            key => RequestId::derived(&[b"node", name.as_str().as_bytes(), key.as_bytes()]),
        };
        let event_id = EventId::derived(&[id.as_bytes()]);
        let fact = event(id, cut_text(&request.reason));
        let subject = Subject::node_request(&name);
        let sequence = self.append(event_id, subject, fact, actor).await?;
        let mut answer = NodeRequestResponse { sequence, ..NodeRequestResponse::default() };
        if request.wait
            && let Some(refused) = self.answer(&id).await?
        {
            answer.answered = true;
            answer.refused = refused.unwrap_or_default();
        }
        Ok(Response::new(answer))
    }

    async fn append(&self, id: EventId, subject: Subject, event: Event, actor: PrincipalId) -> Result<u64, Status> {
        for _ in 0..TRIES {
            let items = self.ledger.aggregate(&subject).await.map_err(|error| Refusal::new(&reason::BROKER_AWAY, error.to_string()))?;
            let mut expected = 0;
            for item in items {
                if let footplate_eventlog::LedgerItem::Fact(recorded) = item {
                    if recorded.envelope.id == id {
                        return Ok(recorded.sequence);
                    }
                    expected = recorded.sequence;
                }
            }
            let envelope = Envelope {
                id,
                subject: subject.clone(),
                event: event.clone(),
                source: self.source.clone(),
                time: self.clock.now(),
                actor: actor.clone(),
                correlation: id,
                causation: None,
                trace: footplate_service::current_traceparent().and_then(|text| Trace::parse(&text)),
            };
            match self.ledger.append(envelope, expected).await {
                Ok(sequence) => return Ok(sequence),
                Err(AppendError::Conflict { .. }) => {}
                Err(AppendError::Full(why)) => return Err(Refusal::new(&reason::DISK_FULL, why).into()),
                Err(AppendError::Unavailable(why)) => return Err(Refusal::new(&reason::BROKER_AWAY, why).into()),
                Err(error @ AppendError::NotOwned { .. }) => return Err(Refusal::internal(error).into()),
                Err(AppendError::Invalid(invalid)) => return Err(Refusal::from(invalid).into()),
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, "many requests about this node came at once").into())
    }

    /// The leader's answer; `None` when it did not come in time.
    async fn answer(&self, request: &RequestId) -> Result<Option<Option<String>>, Status> {
        let mut changes = self.live.changes();
        let answered = async {
            loop {
                if let Some(answer) = self.live.read().answer(request) {
                    return Some(answer.clone());
                }
                if changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        Ok(tokio::time::timeout(self.wait, answered).await.unwrap_or(None))
    }
}

#[tonic::async_trait]
impl NodeService for Nodes {
    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        self.at_least(request.into_inner().at_least).await?;
        let view_sequence = self.live.position();
        let nodes = self.live.read().nodes().map(|(name, node)| self.show(name, node)).collect();
        Ok(Response::new(ListNodesResponse { nodes, view_sequence }))
    }

    async fn get_node(&self, request: Request<GetNodeRequest>) -> Result<Response<GetNodeResponse>, Status> {
        let request = request.into_inner();
        let name = NodeName::parse(&request.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        self.at_least(request.at_least).await?;
        let state = self.live.read();
        let known = state.node(&name).filter(|node| node.registered.is_some());
        let node = known.ok_or_else(|| Status::from(Refusal::new(&reason::NODE_NOT_FOUND, format!("node {name} is not known"))))?;
        Ok(Response::new(GetNodeResponse { node: Some(self.show(&name, node)) }))
    }

    async fn cordon_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, reason| NodeCordonRequested { request, reason }.into()).await
    }

    async fn uncordon_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, _| NodeUncordonRequested { request }.into()).await
    }

    async fn drain_node(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, reason| NodeDrainRequested { request, reason }.into()).await
    }

    async fn declare_node_lost(&self, request: Request<NodeRequest>) -> Result<Response<NodeRequestResponse>, Status> {
        self.ask(request, |request, reason| NodeLossDeclared { request, reason }.into()).await
    }
}
