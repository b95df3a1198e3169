//! `QueueService`: settings of queues, and what they hold.

use crate::jobs::refused;
use crate::shell::Shell;
use footplate_api::server::principal;
use footplate_api::v1::{
    GetCapacityRequest, GetCapacityResponse, ListQueuesRequest, ListQueuesResponse, Queue, SetQueueRequest, WriteResponse,
    queue_service_server::QueueService,
};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{QueueConfigured, Quota};
use footplate_events::{Event, Recorded, Subject};
use footplate_scheduler_core::{DEFAULT_QUEUE, Queue as Held, Stage, State, can_close, can_configure};
use footplate_shell::{TRIES, repeated};
use footplate_types::{EventId, GpuMilli, Invalid, Millis, QueueName};
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
    let parent = match request.parent.as_deref() {
        None => settings.parent.clone(),
        Some("") => None,
        Some(name) => Some(QueueName::parse(name).map_err(|invalid| Refusal::from(invalid.of("parent")))?),
    };
    // Nothing is told in one way only.
    let guarantee = |asked: Option<u32>, before: Option<u32>| asked.or(before).filter(|amount| *amount > 0);
    let guarantee = Quota {
        gpus: guarantee(request.guarantee_gpus, settings.guarantee.gpus),
        slots: guarantee(request.guarantee_slots, settings.guarantee.slots),
    };
    let weight = request.weight.unwrap_or(settings.weight);
    if !(1..=WEIGHT_MAX).contains(&weight) {
        return Err(Invalid::new("weight", weight, format!("1 to {WEIGHT_MAX}")).into());
    }
    let small_first = request.small_first_ms.map_or(settings.small_first, Millis);
    if small_first.0 > QueueConfigured::SMALL_FIRST_MAX {
        return Err(Invalid::new("small_first_ms", small_first.0, format!("0 to {} (a week)", QueueConfigured::SMALL_FIRST_MAX)).into());
    }
    // Cleared first, then set: so one of the two can be taken away alone.
    let before = if request.clear_quota { Quota { gpus: None, slots: None } } else { settings.quota };
    Ok(QueueConfigured {
        weight,
        quota: Quota { gpus: request.quota_gpus.or(before.gpus), slots: request.quota_slots.or(before.slots) },
        guarantee,
        parent,
        held: request.held.unwrap_or(settings.held),
        closed: request.closed.unwrap_or(settings.closed),
        small_first,
    })
}

fn shown(state: &State, name: &QueueName, queue: &Held, (pending, running): (u32, u32)) -> Queue {
    let units = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let held = state.held_below(name);
    Queue {
        name: name.to_string(),
        weight: queue.settings.weight,
        quota_gpus: queue.settings.quota.gpus,
        quota_slots: queue.settings.quota.slots,
        held: queue.settings.held,
        closed: queue.settings.closed,
        used_gpus: units(held.gpu_milli.div_ceil(GpuMilli::WHOLE.0)),
        used_slots: units(held.slots),
        pending,
        running,
        sequence: queue.sequence,
        parent: queue.settings.parent.as_ref().map(ToString::to_string).unwrap_or_default(),
        guarantee_gpus: queue.settings.guarantee.gpus.unwrap_or(0),
        guarantee_slots: queue.settings.guarantee.slots.unwrap_or(0),
        small_first_ms: queue.settings.small_first.0,
        used_gpu_milli: held.gpu_milli,
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
    let mut counts: BTreeMap<&QueueName, (u32, u32)> = BTreeMap::new();
    for job in state.jobs().values() {
        let (pending, running) = counts.entry(&job.spec.queue).or_default();
        match job.stage {
            Stage::Pending { .. } => *pending += 1,
            Stage::Active(_) => *running += 1,
        }
    }
    let mut queues: BTreeMap<QueueName, Held> = state.queues().clone();
    if let Ok(default) = QueueName::parse(DEFAULT_QUEUE) {
        queues.entry(default).or_default();
    }
    let count = |name: &QueueName| counts.get(name).copied().unwrap_or_default();
    queues.iter().map(|(name, queue)| shown(state, name, queue, count(name))).collect()
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
            let same_tree = (&after.parent, &after.guarantee, &after.quota) == (&before.parent, &before.guarantee, &before.quota);
            // While it was closed others may have taken its place.
            let opens = before.closed && !after.closed;
            if opens || !same_tree {
                self.shell.caught_up().await?;
                can_configure(&self.shell.live.read(), &name, &after).map_err(refused)?;
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

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        Ok(Response::new(crate::capacity::told(&self.shell, request.get_ref()).await?))
    }
}
