//! Assignments: what every node should hold, as a function of the folded prefix alone.
//!
//! A node's assignment names each member that stands on it and is not released: prepare, run, or stop. `as_of` is the sequence of the last
//! event that changed what it says, so any leader that has folded past it writes the same bytes. A void placement is in no assignment,
//! ever: nothing of it starts, so nothing of it has to be confirmed gone.

use crate::state::{Attempt, Job, Member, Node, State};
use footplate_events::facts::JobSpec;
use footplate_events::messages::{Assignment, Order, RoleSize, Task, TaskRole};
use footplate_types::NodeName;
use std::collections::BTreeMap;

/// What every node that ever registered should hold, also nothing.
pub fn assignments(state: &State) -> BTreeMap<NodeName, Assignment> {
    state.nodes().iter().map(|(name, node)| (name.clone(), of_node(state, name, node))).collect()
}

/// What one node should hold; `None` when it never registered.
pub fn assignment(state: &State, name: &NodeName) -> Option<Assignment> {
    state.nodes().get(name).map(|node| of_node(state, name, node))
}

fn of_node(state: &State, name: &NodeName, node: &Node) -> Assignment {
    let mut tasks = Vec::with_capacity(node.claims.len());
    for key in node.claims.keys() {
        let Some(job) = state.jobs().get(&key.run) else { continue };
        let Some(attempt) = job.attempt().filter(|attempt| attempt.number == key.attempt) else { continue };
        let Some(member) = attempt.members.iter().find(|member| member.placement.member == key.member) else { continue };
        tasks.push(task(job, attempt, member));
    }
    Assignment { node: name.clone(), as_of: node.assigned_at, tasks }
}

fn task(job: &Job, attempt: &Attempt, member: &Member) -> Task {
    let spec = &job.spec;
    let placement = &member.placement;
    let workers = |member: &Member| member.placement.workers;
    Task {
        project: job.project.clone(),
        run: job.run,
        name: spec.name.clone(),
        attempt: attempt.number,
        member: placement.member,
        epoch: placement.epoch,
        placed_at: attempt.placed.sequence,
        order: order(attempt),
        members: attempt.members.len() as u32,
        world_size: attempt.members.iter().map(workers).sum(),
        first_rank: placement.first_rank,
        workers: placement.workers,
        gpus: placement.gpus.clone(),
        gpu_profile: placement.gpu_profile.clone(),
        gpu_share: placement.gpu_share,
        gpu_memory_bytes: placement.gpu_memory_bytes,
        slots: placement.slots.clone(),
        memory_bytes: placement.memory_bytes,
        launcher: spec.launcher,
        stop: spec.stop,
        launch: spec.launch,
        config: spec.config,
        source: spec.source.clone(),
        checkpoint: attempt.checkpoint.as_ref().map(|known| (known.attempt, known.step, known.manifest)),
        seed: spec.seed,
        objective: spec.objectives.first().cloned(),
        role: placement.role.as_ref().map(|name| role(name, spec, attempt)),
        array: spec.array,
        traceparent: job.chain.trace.as_ref().map(|trace| trace.as_str().to_owned()),
    }
}

/// A member's role, and the ports of all once the gang is launched.
fn role(name: &str, spec: &JobSpec, attempt: &Attempt) -> TaskRole {
    let size = |asked: footplate_events::facts::Asked<'_>| {
        let (members, workers) = (asked.nodes, asked.workers_per_node());
        asked.role.map(|name| RoleSize { name: name.to_owned(), members, workers })
    };
    let ports: Option<Vec<u16>> = attempt.members.iter().map(|member| member.port).collect();
    let ports = ports.filter(|_| attempt.launched.is_some()).unwrap_or_default();
    TaskRole { name: name.to_owned(), roles: spec.asks().filter_map(size).collect(), ports }
}

/// Stop once a stop stands; else run once launched; else prepare.
fn order(attempt: &Attempt) -> Order {
    match (&attempt.stop, &attempt.launched) {
        (Some(stop), _) => Order::Stop { cause: stop.cause, grace: stop.grace },
        (None, Some(launch)) => Order::Run { rendezvous: launch.rendezvous.clone(), peers: launch.peers.clone() },
        (None, None) => Order::Prepare,
    }
}
