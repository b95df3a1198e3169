//! Preemption: whole gangs, least cost, never useless, never snatched back.

use crate::world::*;
use footplate_es::Decision;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Preemption, preemptions};

fn low(nodes: u32, slots: u32) -> JobSpec {
    JobSpec { preemptible: true, ..spec(nodes, slots) }
}

fn high(nodes: u32, slots: u32) -> JobSpec {
    JobSpec { priority: 10, ..spec(nodes, slots) }
}

#[test]
fn the_victim_gets_its_grace_leaves_and_is_requeued_behind_the_preemptor() {
    let mut world = World::new();
    world.slots("n1", 2);
    let victim = world.running(low(1, 2));
    let urgent = world.submit(high(1, 2));
    let said = world.settle();
    let stop = said.iter().find_map(|(run, event)| match event {
        Event::JobStopRequested(stop) if *run == victim => Some(stop.clone()),
        _ => None,
    });
    let stop = stop.unwrap();
    assert_eq!((stop.cause, stop.grace), (StopCause::Preempted, StopPolicy::DEFAULT_GRACE));
    assert!(stop.message.contains(&urgent.to_string()), "{}", stop.message);
    assert_eq!(world.reason(urgent), Some(WaitReason::Preempting));
    world.exits(victim, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_active(urgent) && world.is_pending(victim));
}

#[test]
fn nobody_is_stopped_when_the_preemptor_would_not_fit_even_then() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 2);
    let victim = world.running(low(1, 2));
    let fixed = world.running(spec(1, 2));
    let urgent = world.submit(high(2, 2));
    world.settle();
    assert_eq!((world.stop_cause(victim), world.stop_cause(fixed)), (None, None));
    assert!(matches!(world.reason(urgent), Some(WaitReason::Resources { .. })));
}

#[test]
fn equal_priority_and_work_that_is_not_preemptible_are_spared() {
    let mut world = World::new();
    world.slots("n1", 1);
    let runs = world.running(JobSpec { priority: 10, ..low(1, 1) });
    let same = world.submit(high(1, 1));
    world.settle();
    assert_eq!(world.stop_cause(runs), None);
    assert!(world.is_pending(same));
    let mut world = World::new();
    world.slots("n1", 1);
    let runs = world.running(spec(1, 1));
    world.submit(high(1, 1));
    world.settle();
    assert_eq!(world.stop_cause(runs), None);
}

#[test]
fn the_lowest_priority_goes_first_then_the_youngest() {
    let mut world = World::new();
    world.slots("n1", 3);
    let older = world.running(low(1, 1));
    let younger = world.running(low(1, 1));
    let better = world.running(JobSpec { priority: 5, ..low(1, 1) });
    world.submit(high(1, 1));
    world.settle();
    assert_eq!([older, younger, better].map(|run| world.stop_cause(run)), [None, Some(StopCause::Preempted), None]);
}

#[test]
fn whoever_is_not_needed_is_spared() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 2);
    // The youngest small one goes first in the order, yet alone it makes no room for two slots on one node.
    let pair = world.running(low(1, 2));
    let first = world.running(low(1, 1));
    let second = world.running(JobSpec { priority: 1, ..low(1, 1) });
    world.submit(high(1, 2));
    world.settle();
    let stopped: Vec<_> = [pair, first, second].into_iter().filter(|run| world.stop_cause(*run).is_some()).collect();
    assert_eq!(stopped, [pair], "one gang of the lowest priority is enough");
}

#[test]
fn a_gang_is_preempted_whole_and_nothing_more_is_stopped_while_it_leaves() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    world.slots("n3", 1);
    let gang = world.running(low(2, 1));
    let other = world.running(low(1, 1));
    world.submit(JobSpec { priority: 10, ..spec(2, 1) });
    world.settle();
    let victims = [gang, other].map(|run| world.stop_cause(run).is_some());
    assert!(victims[0], "two nodes are needed: the gang of two must go");
    let before = world.story.sequence();
    world.wait(10_000);
    assert!(world.settle().is_empty(), "still leaving: no further victim");
    assert_eq!(world.story.sequence(), before);
}

#[test]
fn what_was_freed_for_the_preemptor_is_not_snatched_by_others() {
    let mut world = World::new();
    world.slots("n1", 2);
    let a = world.running(low(1, 1));
    let b = world.running(low(1, 1));
    let urgent = world.submit(high(1, 2));
    let small = world.submit(spec(1, 1));
    world.settle();
    world.exits(a, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_pending(small) && world.is_pending(urgent) && world.is_pending(a));
    world.exits(b, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_active(urgent));
}

#[test]
fn a_gang_that_is_preempted_before_its_launch_is_never_launched() {
    let mut world = World::new();
    world.slots("n1", 1);
    let victim = world.submit(low(1, 1));
    world.settle();
    world.submit(high(1, 1));
    world.all_ready(victim);
    // Both stand in the ledger at once: whichever is said first, the launch never follows the stop.
    let said = world.settle();
    let launched = said.iter().position(|(run, event)| *run == victim && matches!(event, Event::JobLaunched(_)));
    let stopped = said.iter().position(|(run, event)| *run == victim && matches!(event, Event::JobStopRequested(_)));
    assert!(stopped.is_some());
    assert!(launched.is_none() || launched < stopped, "{said:?}");
    let orders = footplate_scheduler_core::assignments(&world.state);
    let order = &orders[&node_name("n1")].tasks[0].order;
    assert!(matches!(order, footplate_events::messages::Order::Stop { cause: StopCause::Preempted, .. }));
}

#[test]
fn a_queues_own_work_is_preempted_when_its_quota_is_what_binds() {
    let mut world = World::new();
    world.queue("q", 1, None, Some(1));
    world.slots("n1", 4);
    let victim = world.running(JobSpec { queue: queue_name("q"), ..low(1, 1) });
    let bystander = world.running(low(1, 1));
    let urgent = world.submit(JobSpec { queue: queue_name("q"), ..high(1, 1) });
    world.settle();
    assert_eq!((world.stop_cause(victim), world.stop_cause(bystander)), (Some(StopCause::Preempted), None));
    world.exits(victim, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_active(urgent));
}

#[test]
fn a_victim_that_succeeds_before_it_obeys_has_succeeded() {
    let mut world = World::new();
    world.slots("n1", 1);
    let victim = world.running(low(1, 1));
    let urgent = world.submit(high(1, 1));
    world.settle();
    world.exits(victim, 0, 0, None);
    world.settle();
    assert_eq!(world.end(victim).outcome, Outcome::Succeeded);
    assert!(world.is_active(urgent));
}

/// What the next look says, and which rules its preemptions follow.
fn rules(world: &World) -> (Vec<Preemption>, Vec<Decision>) {
    let decisions = world.ruling().decisions;
    (preemptions(&world.state, &decisions), decisions)
}

#[test]
fn a_preemption_tells_which_rule_it_follows() {
    let mut world = World::new();
    let guarantee = Quota { gpus: None, slots: Some(1) };
    world.record(Subject::queue(&queue_name("own")), QueueConfigured { guarantee, ..QueueConfigured::default() });
    world.slots("n1", 2);
    let (first, second) = (world.running(low(1, 1)), world.running(low(1, 1)));
    assert_eq!(rules(&world).0, []);
    world.submit(high(1, 1));
    let (followed, decisions) = rules(&world);
    assert_eq!(followed, [Preemption::Priority]);
    world.append(decisions);
    assert_eq!(world.stop_cause(second), Some(StopCause::Preempted));
    world.submit(JobSpec { queue: queue_name("own"), ..spec(1, 1) });
    let (followed, decisions) = rules(&world);
    assert_eq!(followed, [Preemption::Reclaim]);
    world.append(decisions);
    assert_eq!(world.stop_cause(first), Some(StopCause::Preempted));
    // A stop for another cause is none.
    world.submit(JobSpec { queue: queue_name("own"), priority: 20, ..spec(1, 1) });
    assert_eq!(rules(&world).0, []);
}
