//! `QueueService`: settings of queues, and what they hold.

use crate::jobs::refused;
use crate::shell::Shell;
use footplate_api::server::principal;
use footplate_api::v1::{ListQueuesRequest, ListQueuesResponse, Queue, SetQueueRequest, WriteResponse, queue_service_server::QueueService};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{QueueConfigured, Quota};
use footplate_events::{Event, Recorded, Subject};
use footplate_scheduler_core::{DEFAULT_QUEUE, Queue as Held, Stage, State, can_close};
use footplate_shell::{TRIES, repeated};
use footplate_types::{EventId, Invalid, QueueName};
use std::collections::BTreeMap;
use tonic::{Request, Response, Status};

/// The largest weight of a queue.
const WEIGHT_MAX: u32 = 1_000_000;

#[derive(Clone)]
pub(crate) struct Queues {
    shell: Shell,
}

impl Queues {
    pub(crate) fn new(shell: Shell) -> Self {
        Self { shell }
    }
}

/// The settings with what the request names changed.
fn changed(settings: &QueueConfigured, request: &SetQueueRequest) -> Result<QueueConfigured, Refusal> {
    let weight = request.weight.unwrap_or(settings.weight);
    if !(1..=WEIGHT_MAX).contains(&weight) {
        return Err(Invalid::new("weight", weight, format!("1 to {WEIGHT_MAX}")).into());
    }
    // Cleared first, then set: so one of the two can be taken away alone.
    let before = if request.clear_quota { Quota { gpus: None, slots: None } } else { settings.quota };
    Ok(QueueConfigured {
        weight,
        quota: Quota { gpus: request.quota_gpus.or(before.gpus), slots: request.quota_slots.or(before.slots) },
        held: request.held.unwrap_or(settings.held),
        closed: request.closed.unwrap_or(settings.closed),
    })
}

fn shown(name: &str, queue: &Held, pending: u32, running: u32) -> Queue {
    let units = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Queue {
        name: name.to_owned(),
        weight: queue.settings.weight,
        quota_gpus: queue.settings.quota.gpus,
        quota_slots: queue.settings.quota.slots,
        held: queue.settings.held,
        closed: queue.settings.closed,
        used_gpus: units(queue.holding.gpus),
        used_slots: units(queue.holding.slots),
        pending,
        running,
        sequence: queue.sequence,
    }
}

/// The settings that the newest of these events left.
fn newest_of(events: &[Recorded]) -> Option<QueueConfigured> {
    events.iter().rev().find_map(|recorded| match &recorded.envelope.event {
        Event::QueueConfigured(settings) => Some(settings.clone()),
        _ => None,
    })
}

fn list(state: &State) -> Vec<Queue> {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for job in state.jobs().values() {
        let (pending, running) = counts.entry(job.spec.queue.as_str()).or_default();
        match job.stage {
            Stage::Pending { .. } => *pending += 1,
            Stage::Active(_) => *running += 1,
        }
    }
    let mut queues: BTreeMap<&str, Held> = state.queues().iter().map(|(name, queue)| (name.as_str(), queue.clone())).collect();
    queues.entry(DEFAULT_QUEUE).or_default();
    let count = |name: &str| counts.get(name).copied().unwrap_or_default();
    queues.iter().map(|(name, queue)| shown(name, queue, count(name).0, count(name).1)).collect()
}

#[tonic::async_trait]
impl QueueService for Queues {
    async fn set_queue(&self, request: Request<SetQueueRequest>) -> Result<Response<WriteResponse>, Status> {
        let actor = principal(&request)?;
        let request = request.into_inner();
        let name = QueueName::parse(&request.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        let subject = Subject::queue(&name);
        let id = match request.request_id.as_str() {
            "" => footplate_clock::event_id(),
            key => EventId::derived(&[b"queue", name.as_str().as_bytes(), key.as_bytes()]),
        };
        for _ in 0..TRIES {
            let (events, expected) = self.shell.aggregate(&subject).await?;
            // What a repeated request asked is told by what stood before it.
            let known = events.iter().position(|recorded| recorded.envelope.id == id);
            if let Some(at) = known {
                let before = newest_of(&events[..at]).unwrap_or_else(|| Held::default().settings);
                let asked = changed(&before, &request)?.into();
                if let Some(sequence) = repeated(&events, id, &asked, &request.request_id)? {
                    return Ok(Response::new(WriteResponse { sequence }));
                }
            }
            let newest = newest_of(&events);
            let before = newest.clone().unwrap_or_else(|| Held::default().settings);
            let after = changed(&before, &request)?;
            if newest.as_ref() == Some(&after) {
                return Ok(Response::new(WriteResponse { sequence: expected }));
            }
            if after.closed && !before.closed {
                self.shell.caught_up().await?;
                can_close(&self.shell.live.read(), &name).map_err(refused)?;
            }
            let envelope = self.shell.envelope(id, subject.clone(), after, actor.clone());
            if let Some(sequence) = self.shell.append(envelope, expected).await? {
                return Ok(Response::new(WriteResponse { sequence }));
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("queue {name} was changed by others at the same time")).into())
    }

    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Result<Response<ListQueuesResponse>, Status> {
        self.shell.at_least(request.into_inner().at_least).await?;
        let queues = list(&self.shell.live.read());
        Ok(Response::new(ListQueuesResponse { queues }))
    }
}
