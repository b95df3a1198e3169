//! What is asked of the nodes, which lie idle, and which would help: the core's account in the API's words.

use crate::shell::Shell;
use footplate_api::server::named_project;
use footplate_api::v1::{
    Demand as ShownDemand, GetCapacityRequest, GetCapacityResponse, GpusOfKind, IdleNode, MoreNodes, NodeKind, PlacedAsk, QueueAsk,
};
use footplate_api::{Refusal, types};
use footplate_scheduler_core::{Capacity, Demand, Idle, Job, Kind, Stage, State, capacity};
use footplate_types::{GpuMilli, NodeShape, ProjectName};
use futures::{StreamExt, stream};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most idle nodes that are named, the one first that has been idle longest.
const IDLE_MAX: usize = 100;
/// The most placed jobs that are told, the one first that asks the most.
const JOBS_MAX: usize = 100;
/// Kinds of nodes that are told to help a demand.
const HELP_MAX: usize = 3;
/// Events that are looked up at once, of which the time since when a node is idle is known.
const LOOKED_UP_AT_ONCE: usize = 16;

/// The account of the view as it stands.
pub(crate) async fn told(shell: &Shell, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Refusal> {
    let project = if request.project.is_empty() { None } else { Some(named_project(&request.project)?) };
    shell.at_least(request.at_least).await?;
    let (mut told, jobs, placed_jobs, view_sequence) = {
        let (state, view) = shell.live.read_at();
        let (jobs, count) = placed(&state, project.as_ref());
        (capacity(&state), jobs, count, view)
    };
    let idle_nodes = told.idle.len() as u64;
    told.idle.truncate(IDLE_MAX);
    let named = std::mem::take(&mut told.idle).into_iter();
    let idle = stream::iter(named).map(|idle| idle_node(shell.clone(), idle)).buffered(LOOKED_UP_AT_ONCE).collect().await;
    Ok(GetCapacityResponse {
        view_sequence,
        queues: queues(&told),
        jobs,
        placed_jobs,
        kinds: told.kinds.iter().map(kind).collect(),
        idle,
        idle_nodes,
        demands: told.demands.iter().map(demand).collect(),
        demands_beyond: told.beyond,
    })
}

/// What the placed jobs of a project (of all) ask, and how many they are.
fn placed(state: &State, project: Option<&ProjectName>) -> (Vec<PlacedAsk>, u64) {
    let mut first: BTreeSet<(Reverse<(u64, u64)>, u64)> = BTreeSet::new();
    let mut known: BTreeMap<u64, &Job> = BTreeMap::new();
    let mut count = 0;
    for job in state.jobs().values() {
        let Stage::Active(_) = job.stage else { continue };
        if project.is_some_and(|project| job.project != *project) {
            continue;
        }
        count += 1;
        first.insert((Reverse((job.gpu_milli(), job.slots())), job.submitted.sequence));
        known.insert(job.submitted.sequence, job);
        if first.len() > JOBS_MAX
            && let Some((_, last)) = first.pop_last()
        {
            known.remove(&last);
        }
    }
    let ask = |job: &&Job| PlacedAsk {
        run_id: job.run.to_string(),
        project: job.project.to_string(),
        name: job.spec.name.to_string(),
        queue: job.spec.queue.to_string(),
        gpus: whole(job.gpu_milli()),
        slots: job.slots(),
        placed_at: job.attempt().map(|attempt| attempt.placed.at.to_string()).unwrap_or_default(),
        gpu_milli: job.gpu_milli(),
    };
    (first.iter().filter_map(|(_, at)| known.get(at)).map(ask).collect(), count)
}

/// Thousandths of a GPU as GPUs, rounded up.
const fn whole(milli: u64) -> u64 {
    milli.div_ceil(GpuMilli::WHOLE.0)
}

fn queues(told: &Capacity) -> Vec<QueueAsk> {
    let ask = |(name, asked): (&footplate_types::QueueName, &footplate_scheduler_core::Asked)| QueueAsk {
        queue: name.to_string(),
        placed_jobs: asked.placed_jobs,
        placed_gpus: whole(asked.placed.gpu_milli),
        placed_slots: asked.placed.slots,
        pending_jobs: asked.pending_jobs,
        pending_gpus: whole(asked.pending.gpu_milli),
        pending_slots: asked.pending.slots,
        placed_gpu_milli: asked.placed.gpu_milli,
        pending_gpu_milli: asked.pending.gpu_milli,
    };
    told.queues.iter().map(ask).collect()
}

fn gpus(shape: &NodeShape) -> Vec<GpusOfKind> {
    let mut counts: BTreeMap<(String, u64, String), u32> = BTreeMap::new();
    for gpu in &shape.gpus {
        *counts.entry((gpu.model.to_string(), gpu.memory_bytes, gpu.mig_profile.clone().unwrap_or_default())).or_default() += 1;
    }
    let of_kind = |((model, memory_bytes, mig_profile), count)| GpusOfKind { model, memory_bytes, count, mig_profile };
    counts.into_iter().map(of_kind).collect()
}

fn kind(kind: &Kind) -> NodeKind {
    let shape = &kind.shape;
    NodeKind {
        pool: shape.pool.clone().unwrap_or_default(),
        gpus: gpus(shape),
        slots: shape.slots,
        cpus: shape.cpus,
        memory_bytes: shape.memory_bytes,
        nodes: kind.nodes,
        idle: kind.idle,
        share_gpus: shape.share_gpus,
    }
}

async fn idle_node(shell: Shell, idle: Idle) -> IdleNode {
    // A ledger that cannot be read now leaves the time out, and not the node.
    let looked_up = shell.ledger.read("fp.ledger.>", idle.since, 1).await.ok().and_then(|(items, _)| items.into_iter().next());
    let since = match looked_up {
        Some(footplate_eventlog::LedgerItem::Fact(recorded)) if recorded.sequence == idle.since => recorded.recorded_at.to_string(),
        _ => String::new(),
    };
    IdleNode {
        node: idle.node.to_string(),
        pool: idle.shape.pool.clone().unwrap_or_default(),
        gpus: idle.shape.gpus.len() as u32,
        slots: idle.shape.slots,
        idle_since: since,
        since_sequence: idle.since,
    }
}

fn demand(demand: &Demand) -> ShownDemand {
    let place = &demand.spec.placement;
    let help = |help: &footplate_scheduler_core::Help| MoreNodes { kind: help.kind as u32, for_one: help.for_one, for_all: help.for_all };
    ShownDemand {
        jobs: demand.jobs,
        resources: Some(types::ResourceAsk {
            nodes: demand.spec.resources.nodes,
            per_node: Some(footplate_wire::per_node_to_wire(&demand.spec.resources.per_node)),
        }),
        pool: place.pool.clone().unwrap_or_default(),
        only_named_nodes: !place.nodes.is_empty(),
        queues: demand.queues.iter().map(|(queue, jobs)| (queue.to_string(), *jobs)).collect(),
        waiting_since: demand.oldest.at.to_string(),
        nodes_with_room: demand.fitting,
        more: demand.help.iter().take(HELP_MAX).map(help).collect(),
    }
}
