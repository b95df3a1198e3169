//! What users of such platforms hit, one test a complaint: the name begins with its number in the list of what was read in the trackers of other
//! schedulers, and says what must hold here. Those that belong to other services are tested there, under the same names.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_events::messages::Order;
use footplate_scheduler_core::assignments;
use footplate_types::*;

mod devices;
mod fairness;
mod gangs;
mod numbers;
mod truth;

fn slots_quota(most: u32) -> Quota {
    Quota { gpus: None, slots: Some(most) }
}

fn configure(world: &mut World, name: &str, settings: QueueConfigured) {
    world.record(Subject::queue(&queue_name(name)), settings);
}

fn job(queue: &str, asked: u32) -> JobSpec {
    JobSpec { queue: queue_name(queue), ..spec(1, asked) }
}

fn loan(queue: &str, asked: u32) -> JobSpec {
    JobSpec { preemptible: true, ..job(queue, asked) }
}

/// Whoever is to prepare does, whoever is to stop obeys; nobody ends by itself. How many stops were obeyed.
fn obey(world: &mut World) -> usize {
    let orders = assignments(&world.state);
    let mut stopped = 0;
    for task in orders.values().flat_map(|assignment| &assignment.tasks) {
        match task.order {
            Order::Prepare => world.ready(task.run, task.member.0),
            Order::Stop { cause, .. } => {
                world.exits(task.run, task.member.0, 143, Some(cause));
                stopped += 1;
            }
            Order::Run { .. } => {}
        }
    }
    stopped
}

/// Looks and obeys for `rounds` rounds of ten minutes. How many members were stopped.
fn live_on(world: &mut World, rounds: usize) -> usize {
    let mut stopped = 0;
    for _ in 0..rounds {
        world.settle();
        stopped += obey(world);
        world.wait(600_000);
    }
    world.settle();
    stopped
}

fn active(world: &World, runs: &[RunId]) -> usize {
    runs.iter().filter(|run| world.is_active(**run)).count()
}
