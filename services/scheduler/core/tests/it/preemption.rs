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

/// It saves a checkpoint.
fn saves(world: &mut World, run: footplate_types::RunId) {
    let attempt = footplate_types::AttemptId { run, attempt: world.state.jobs()[&run].last_attempt };
    let manifest = DocumentRef { digest: footplate_types::Digest::of(b"manifest"), bytes: 1 };
    let saved = AttemptCheckpointed { step: 1, rank: footplate_types::Rank(0), manifest, bytes: 1, metadata: String::new() };
    world.record(footplate_events::Subject::attempt(&project(), attempt), saved);
}

#[test]
fn whoever_loses_least_goes_who_saved_last_who_is_small_who_was_not_stopped_before() {
    let mut world = World::new();
    world.slots("n1", 2);
    let older = world.running(low(1, 1));
    world.wait(60_000);
    let younger = world.running(low(1, 1));
    world.wait(60_000);
    saves(&mut world, older);
    world.wait(1_000);
    world.submit(high(1, 1));
    world.settle();
    assert_eq!([older, younger].map(|run| world.stop_cause(run)), [Some(StopCause::Preempted), None], "a second is lost, not two minutes");

    let mut world = World::new();
    world.slots("n1", 4);
    world.slots("n2", 1);
    let large = world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n1")], ..PlacementAsk::default() }, ..low(1, 4) });
    world.wait(1_000);
    let small = world.running(low(1, 1));
    world.wait(2_000);
    world.submit(high(1, 1));
    world.settle();
    assert_eq!([large, small].map(|run| world.stop_cause(run)), [None, Some(StopCause::Preempted)], "12 against 2 seconds of slots");

    let mut world = World::new();
    world.slots("n1", 1);
    let twice = world.running(low(1, 1));
    let urgent = world.submit(high(1, 1));
    world.settle();
    world.exits(twice, 0, 0, Some(StopCause::Preempted));
    world.settle();
    world.all_ready(urgent);
    world.settle();
    world.slots("n2", 1);
    world.settle();
    world.all_ready(twice);
    world.settle();
    world.slots("n3", 1);
    world.wait(1_000);
    let once = world.running(low(1, 1));
    world.wait(1_500);
    world.submit(high(1, 1));
    world.settle();
    assert_eq!([twice, once].map(|run| world.stop_cause(run)), [None, Some(StopCause::Preempted)], "it was stopped once already");
}

#[test]
fn work_runs_as_long_as_it_was_promised_and_is_stopped_then() {
    let mut world = World::new();
    world.slots("n1", 1);
    let limits = Limits { min_run: footplate_types::Millis(600_000), ..Limits::default() };
    let promised = world.running(JobSpec { limits, ..low(1, 1) });
    let urgent = world.submit(high(1, 1));
    world.settle();
    assert_eq!(world.stop_cause(promised), None);
    assert!(matches!(world.reason(urgent), Some(WaitReason::Resources { .. })));
    assert_eq!(world.ruling().wake_in, Some(footplate_types::Millis(600_000)), "it looks again when the promise is kept");
    world.wait(600_000);
    world.settle();
    assert_eq!(world.stop_cause(promised), Some(StopCause::Preempted));
}

#[test]
fn a_priority_of_another_queue_spares_nobody() {
    let mut world = World::new();
    world.slots("n1", 2);
    let set = |world: &mut World, name: &str, own: u32| {
        let settings = QueueConfigured { guarantee: Quota { gpus: None, slots: Some(own) }, ..QueueConfigured::default() };
        world.record(footplate_events::Subject::queue(&queue_name(name)), settings);
    };
    set(&mut world, "q", 1);
    set(&mut world, "r", 0);
    set(&mut world, "s", 0);
    let grand = world.running(JobSpec { queue: queue_name("r"), priority: 1_000, ..low(1, 1) });
    world.wait(1_000);
    saves(&mut world, grand);
    let humble = world.running(JobSpec { queue: queue_name("s"), ..low(1, 1) });
    world.wait(5_000);
    saves(&mut world, grand);
    world.submit(JobSpec { queue: queue_name("q"), ..spec(1, 1) });
    world.settle();
    assert_eq!(
        [grand, humble].map(|run| world.stop_cause(run)),
        [Some(StopCause::Preempted), None],
        "it loses nothing, the other five seconds"
    );
}

#[test]
fn two_who_wait_for_nodes_that_are_being_left_are_told_why_once() {
    let mut world = World::new();
    world.slots("n0", 4);
    world.slots("n1", 4);
    let plain = world.running(spec(1, 4));
    let victim = world.running(low(1, 4));
    let urgent = world.submit(high(1, 4));
    world.settle();
    assert_eq!(world.stop_cause(victim), Some(StopCause::Preempted));
    world.cancel(urgent, 1);
    world.cancel(plain, 2);
    world.settle();
    let both = [world.submit(spec(1, 4)), world.submit(spec(1, 4))];
    // It would not come to rest if they changed places at every look.
    world.settle();
    let told = |world: &World| both.map(|run| world.count(run, |event| matches!(event, Event::JobWaiting(_))));
    let before = told(&world);
    world.wait(1_000);
    world.settle();
    assert_eq!(told(&world), before);
    world.exits(victim, 0, 0, Some(StopCause::Preempted));
    world.exits(plain, 0, 0, Some(StopCause::Cancelled));
    world.settle();
    assert!(both.iter().all(|run| world.is_active(*run)) || world.is_active(victim));
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
