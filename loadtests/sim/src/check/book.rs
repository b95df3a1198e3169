//! The book: what the raw log says, kept by the checkers' own hand.

use super::units::{Piece, Unit, Units, counts};
use super::{Checked, Found};
use crate::instance::Service;
use footplate_events::facts::{JobSpec, Outcome, PerNode, QueueConfigured};
use footplate_events::{Aggregate, Event, Recorded};
use footplate_types::{EventId, GpuUuid, NodeName, NodeShape, QueueName, RequestId, RunId, Taint};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a node: each mark with the sequence since which it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeBook {
    pub(super) epoch: u64,
    pub(super) registered_at: u64,
    pub(super) shape: NodeShape,
    pub(super) lost: Option<u64>,
    pub(super) drained: Option<u64>,
    pub(super) cordoned: Option<u64>,
    pub(super) bad_gpus: BTreeMap<GpuUuid, u64>,
    /// What operators have set.
    pub(super) taints: BTreeMap<Taint, u64>,
}

impl NodeBook {
    /// Since when a GPU of it is bad, or the one of which it is a slice.
    pub(super) fn bad_since(&self, gpu: &GpuUuid) -> Option<u64> {
        let parent = self.shape.gpus.iter().find(|known| known.uuid == *gpu).and_then(|known| known.parent.as_ref());
        [Some(gpu), parent].into_iter().flatten().filter_map(|uuid| self.bad_gpus.get(uuid).copied()).min()
    }

    pub(super) fn is_open(&self) -> bool {
        self.lost.is_none() && self.drained.is_none() && self.cordoned.is_none()
    }
}

/// A member of an attempt.
#[derive(Clone, Debug)]
pub(super) struct MemberBook {
    pub(super) node: NodeName,
    pub(super) epoch: u64,
    pub(super) gpus: Vec<GpuUuid>,
    /// Thousandths of its one GPU; 0: it has its GPUs alone.
    pub(super) share: u32,
    pub(super) pieces: Vec<(Unit, Piece)>,
    pub(super) slots: Vec<u32>,
    pub(super) ready: bool,
    pub(super) released: bool,
    pub(super) succeeded: bool,
}

/// An attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptBook {
    pub(super) number: u32,
    pub(super) members: BTreeMap<u32, MemberBook>,
    pub(super) launched: bool,
    pub(super) stopped: bool,
    pub(super) void: bool,
    /// Whether it was requeued or ended.
    pub(super) closed: bool,
}

impl AttemptBook {
    pub(super) fn is_released(&self) -> bool {
        self.void || self.members.values().all(|member| member.released)
    }
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct JobBook {
    pub(super) spec: JobSpec,
    /// The sequence of its submission.
    pub(super) submitted: u64,
    pub(super) priority: i32,
    pub(super) held: bool,
    /// How it ended; absent while it lives.
    pub(super) outcome: Option<Outcome>,
    pub(super) attempt: Option<AttemptBook>,
    pub(super) attempts: u32,
    /// Whether it was told that its latest start is near, and that its deadline has passed.
    pub(super) told: (bool, bool),
}

impl JobBook {
    pub(super) fn is_pending(&self) -> bool {
        self.outcome.is_none() && self.attempt.as_ref().is_none_or(|attempt| attempt.closed)
    }

    /// Thousandths of GPUs, and slots, of the whole gang.
    pub(super) fn asks(&self) -> (u64, u64) {
        let members = self.members();
        let sum = |units: fn(&PerNode) -> u64| members.iter().map(|(_, each)| units(each)).sum();
        (sum(|each| u64::from(each.gpus) * counts(each)), sum(|each| each.slots.into()))
    }
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(super) struct RequestBook {
    pub(super) run: Option<RunId>,
    pub(super) node: Option<NodeName>,
    pub(super) is_cancel: bool,
    pub(super) is_loss: bool,
}

/// The book of the log.
#[derive(Default)]
pub(super) struct Book {
    pub(super) nodes: BTreeMap<NodeName, NodeBook>,
    /// Settings, and the sequence at which they were set.
    pub(super) queues: BTreeMap<QueueName, (u64, QueueConfigured)>,
    pub(super) jobs: BTreeMap<RunId, JobBook>,
    /// Who claims what of a GPU or a slot of a node.
    pub(super) units: Units,
    pub(super) requests: BTreeMap<RequestId, RequestBook>,
    /// Who holds each service's term.
    terms: BTreeMap<String, String>,
    ids: BTreeMap<EventId, u64>,
    answered: BTreeSet<RequestId>,
}

impl Book {
    pub(super) fn take(&mut self, recorded: &Recorded) -> Checked {
        self.check_writer(recorded)?;
        if let Some(before) = self.ids.insert(recorded.envelope.id, recorded.sequence) {
            let (event, subject) = (recorded.envelope.event.event_type(), &recorded.envelope.subject);
            let detail = format!("{event} of {subject} stands at {before} and again at {}", recorded.sequence);
            return Err(Found::new("repeated", detail, &[&subject.id()]));
        }
        let subject = &recorded.envelope.subject;
        if let Some(name) = subject.node_name() {
            self.take_node(recorded, name);
        } else if let Some(name) = subject.queue_name() {
            if let Event::QueueConfigured(settings) = &recorded.envelope.event {
                self.queues.insert(name, (recorded.sequence, settings.clone()));
            }
        } else if let Some(run) = subject.run_id() {
            self.take_job(recorded, run)?;
        }
        Ok(())
    }

    /// Leader-written events come from whoever holds the service's newest term.
    fn check_writer(&mut self, recorded: &Recorded) -> Checked {
        let envelope = &recorded.envelope;
        let (service, instance) = envelope.source.split_once('/').unwrap_or(("", ""));
        if let Event::TermBegan(began) = &envelope.event {
            self.terms.insert(began.service.to_string(), began.instance.clone());
            return Ok(());
        }
        let is_submission = matches!(envelope.event, Event::JobSubmitted(_));
        if envelope.subject.aggregate.client_written() || is_submission {
            return Ok(());
        }
        let owner = Service::ALL.into_iter().find(|service| service.as_str() == envelope.subject.aggregate.owner());
        let holds = self.terms.get(service).is_some_and(|holder| holder == instance);
        if owner.is_none_or(|owner| owner.as_str() != service) || !holds {
            let detail =
                format!("{} of {} was written by {}, who does not lead", envelope.event.event_type(), envelope.subject, envelope.source);
            return Err(Found::new("term", detail, &[&envelope.subject.id()]));
        }
        Ok(())
    }

    fn take_node(&mut self, recorded: &Recorded, name: NodeName) {
        let at = recorded.sequence;
        let is_request = recorded.envelope.subject.aggregate == Aggregate::NodeRequest;
        let asked = |request, is_loss| (request, RequestBook { run: None, node: Some(name.clone()), is_cancel: false, is_loss });
        let request = match &recorded.envelope.event {
            Event::NodeCordonRequested(fact) => Some(asked(fact.request, false)),
            Event::NodeUncordonRequested(fact) => Some(asked(fact.request, false)),
            Event::NodeDrainRequested(fact) => Some(asked(fact.request, false)),
            Event::NodeTaintRequested(fact) => Some(asked(fact.request, false)),
            Event::NodeUntaintRequested(fact) => Some(asked(fact.request, false)),
            Event::NodeLossDeclared(fact) => Some(asked(fact.request, true)),
            _ => None,
        };
        if let Some((id, request)) = request.filter(|_| is_request) {
            if !self.answered.contains(&id) {
                self.requests.insert(id, request);
            }
            return;
        }
        let node = self.nodes.entry(name.clone()).or_default();
        match &recorded.envelope.event {
            Event::NodeRegistered(fact) if fact.epoch.0 >= node.epoch => {
                if node.epoch != fact.epoch.0 || node.registered_at == 0 {
                    node.registered_at = at;
                }
                node.epoch = fact.epoch.0;
                node.shape = fact.shape.clone();
                node.lost = None;
            }
            Event::NodeHealthChanged(fact) => match (&fact.gpu, fact.healthy) {
                (Some(gpu), true) => drop(node.bad_gpus.remove(gpu)),
                (Some(gpu), false) => drop(node.bad_gpus.insert(gpu.clone(), at)),
                (None, _) => {}
            },
            Event::NodeCordoned(fact) => {
                node.cordoned = Some(at);
                self.answer(fact.request);
            }
            Event::NodeDrained(fact) => {
                node.drained = Some(at);
                self.answer(fact.request);
            }
            Event::NodeUncordoned(fact) => {
                (node.cordoned, node.drained) = (None, None);
                self.answer(fact.request);
            }
            Event::NodeTainted(fact) => {
                node.taints.entry(fact.taint.clone()).or_insert(at);
                self.answer(fact.request);
            }
            Event::NodeUntainted(fact) => {
                node.taints.retain(|taint, _| !fact.taint.tolerates(taint));
                self.answer(fact.request);
            }
            Event::NodeLost(fact) if fact.epoch.0 >= node.epoch => {
                node.lost = Some(at);
                self.requests.retain(|_, request| !(request.is_loss && request.node.as_ref() == Some(&name)));
            }
            Event::NodeRefused(fact) => self.answer(Some(fact.request)),
            _ => {}
        }
    }

    pub(super) fn answer(&mut self, request: Option<RequestId>) {
        if let Some(request) = request {
            self.requests.remove(&request);
            self.answered.insert(request);
        }
    }

    pub(super) fn asked(&mut self, id: RequestId, run: RunId, is_cancel: bool) {
        if !self.answered.contains(&id) {
            self.requests.insert(id, RequestBook { run: Some(run), node: None, is_cancel, is_loss: false });
        }
    }

    /// The settings of a queue; `None` when nobody made it.
    pub(super) fn queue(&self, name: &QueueName) -> Option<(u64, QueueConfigured)> {
        let default = QueueConfigured::default();
        self.queues.get(name).cloned().or_else(|| (name.as_str() == "default").then_some((0, default)))
    }

    pub(super) fn acknowledged(&self, id: EventId, sequence: u64) -> Checked {
        if self.ids.get(&id) == Some(&sequence) {
            return Ok(());
        }
        let detail = format!("event {id} was acknowledged at {sequence} and stands at {:?}", self.ids.get(&id));
        Err(Found::new("acknowledged", detail, &[]))
    }
}
