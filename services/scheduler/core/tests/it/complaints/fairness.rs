//! Turns: nobody starves, nobody is stopped in circles, and what cannot start is in nobody's way.

use super::*;
use footplate_events::Event;
use footplate_scheduler_core::can_close;

/// 2, volcano#3869: two jobs took each other's place back for ever.
#[test]
fn complaint_02_two_queues_below_their_guarantee_stop_what_was_borrowed_once_and_never_each_other() {
    let mut world = World::new();
    for name in ["a", "b"] {
        configure(&mut world, name, QueueConfigured { guarantee: slots_quota(2), ..QueueConfigured::default() });
    }
    world.slots("n1", 4);
    let first: Vec<RunId> = (0..4).map(|_| world.running(loan("a", 1))).collect();
    let second: Vec<RunId> = (0..4).map(|_| world.submit(loan("b", 1))).collect();
    assert_eq!(live_on(&mut world, 12), 2, "two were borrowed, two are given back, and that is all");
    assert_eq!((active(&world, &first), active(&world, &second)), (2, 2));
}

/// 6, kueue#8309, #9715, volcano#4690: a large gang starved under a stream of small jobs, or held up pools that had nothing to do with it.
#[test]
fn complaint_06_a_large_gang_starts_under_a_stream_of_small_jobs_and_another_pool_does_not_wait_for_it() {
    let mut world = World::new();
    let pooled = |pool: &str| NodeShape { pool: Some(pool.to_owned()), ..slots_shape(2) };
    let of = |pool: &str, nodes: u32, slots: u32| {
        let placement = PlacementAsk { pool: Some(pool.to_owned()), ..PlacementAsk::default() };
        JobSpec { placement, ..spec(nodes, slots) }
    };
    ["n1", "n2"].into_iter().for_each(|name| world.node(name, pooled("red")));
    world.node("n3", pooled("blue"));
    // Always two small ones a node, each ends after five minutes, one every two and a half.
    let mut running: Vec<RunId> = (0..4).map(|_| world.running(of("red", 1, 1))).collect();
    let gang = world.submit(of("red", 2, 2));
    let longest_small = 4 * 150_000;
    let (mut waited, bound) = (0, world.policy.patience.0 + longest_small);
    while world.is_pending(gang) && waited < bound {
        let next = world.submit(of("red", 1, 1));
        let elsewhere = world.submit(of("blue", 1, 2));
        world.exits(running.remove(0), 0, 0, None);
        world.settle();
        assert!(world.is_active(elsewhere), "another pool");
        world.exits(elsewhere, 0, 0, None);
        if world.is_active(next) {
            running.push(next);
        } else {
            world.cancel(next, 1);
            world.settle();
        }
        world.wait(150_000);
        waited += 150_000;
        world.settle();
    }
    assert!(world.is_active(gang), "not within its patience and the longest of those that ran: {:?}", world.reason(gang));
}

/// 7, kueue#2270: the heads were looked at for ever, those behind that could start never.
#[test]
fn complaint_07_who_can_start_behind_a_thousand_that_cannot_is_reached() {
    let mut world = World::new();
    world.slots("n1", 64);
    let blocker = world.running(spec(1, 60));
    for n in 0..1_000 {
        let mut shape = spec(1, 5 + n % 40);
        shape.priority = 10;
        shape.resources.per_node.cpus = 1 + n % 3;
        world.submit(shape);
    }
    let small = world.submit(spec(1, 4));
    world.settle();
    assert!(world.is_active(small) && world.is_active(blocker));
    // And at once, now that all of them were looked at.
    world.exits(small, 0, 0, None);
    let next = world.submit(spec(1, 4));
    let said = world.ruling();
    world.append(said.decisions);
    assert!(world.is_active(next) || world.is_pending(small), "the first look reaches it");
    world.settle();
    assert!(world.is_active(next));
}

/// 8, kueue#3779, #7101, #6774, #2821, #14543: endless preemptions, with a weight of 0, with a huge one, or of one job 33 times.
#[test]
fn complaint_08_preemption_comes_to_rest_whatever_the_weights() {
    for weights in [(0, 1), (1, 1_000_000), (1_000_000, 1_000_000), (0, u32::MAX)] {
        let mut world = World::new();
        let own = |weight, guarantee| QueueConfigured { weight, guarantee: slots_quota(guarantee), ..QueueConfigured::default() };
        configure(&mut world, "a", own(weights.0, 3));
        configure(&mut world, "b", own(weights.1, 2));
        configure(&mut world, "c", own(1, 0));
        world.slots("n1", 4);
        world.slots("n2", 4);
        let runs: Vec<RunId> = (0..18u32)
            .map(|n| {
                let spec = JobSpec { priority: (n % 4) as i32, ..loan(["a", "b", "c"][n as usize % 3], 1 + n % 2) };
                let run = world.submit(spec);
                live_on(&mut world, 1);
                run
            })
            .collect();
        live_on(&mut world, 20);
        assert_eq!(live_on(&mut world, 20), 0, "{weights:?}: at rest nobody is stopped any more");
        for run in runs {
            let stops = world.count(run, |event| matches!(event, Event::JobStopRequested(_)));
            assert!(stops <= 4, "{weights:?}: {run} was stopped {stops} times");
        }
    }
}

/// 10, kueue#14477: one head a queue and cycle: an hour of waiting with free quota.
#[test]
fn complaint_10_a_thousand_that_fit_start_within_a_few_looks() {
    let mut world = World::new();
    let runs: Vec<RunId> = (0..1_000).map(|_| world.submit(spec(1, 1))).collect();
    world.slots("n1", 1_000);
    let looks = runs.len().div_ceil(world.policy.decisions_max);
    for _ in 0..looks {
        let ruling = world.ruling();
        world.append(ruling.decisions);
    }
    assert_eq!(active(&world, &runs), 1_000, "as many looks as batches");
}

/// 11, kueue#6636: heartbeats put those that could not start back in line, and new ones starved.
#[test]
fn complaint_11_what_changes_nothing_for_who_waits_wakes_nobody() {
    let mut world = World::new();
    world.slots("n1", 1);
    let runs = world.running(spec(1, 1));
    let waiting: Vec<RunId> = (0..5).map(|_| world.submit(spec(1, 1))).collect();
    world.settle();
    let _ = world.ruling();
    assert!(world.is_at_rest());
    let subject = Subject::attempt(&project(), AttemptId { run: runs, attempt: AttemptNumber(1) });
    for step in 0..50 {
        let manifest = DocumentRef { digest: Digest::of(b"m"), bytes: 1 };
        let saved = AttemptCheckpointed { step, rank: Rank(0), manifest, bytes: 1, metadata: String::new() };
        world.record(subject.clone(), saved);
        assert!(world.is_at_rest(), "nobody is looked at anew");
        assert_eq!(world.ruling().decisions, []);
    }
    world.exits(runs, 0, 0, None);
    let newest = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_active(waiting[0]) && world.is_pending(newest), "who came first is first");
    assert!(waiting.iter().all(|run| world.count(*run, |event| matches!(event, Event::JobWaiting(_))) == 1));
}

/// 12, kueue#2873, #5985: more was given than there was, after a queue that had borrowed was deleted or shrunk.
#[test]
fn complaint_12_a_queue_that_is_shrunk_moved_or_closed_gives_nobody_more_than_there_is() {
    let mut world = World::new();
    let team = |quota: u32| QueueConfigured { quota: slots_quota(quota), ..QueueConfigured::default() };
    let below = |quota: u32| QueueConfigured { parent: Some(queue_name("team")), ..team(quota) };
    configure(&mut world, "team", team(4));
    configure(&mut world, "one", below(4));
    configure(&mut world, "two", below(4));
    world.slots("n1", 6);
    for _ in 0..6 {
        world.submit(loan("one", 1));
    }
    world.settle();
    for _ in 0..6 {
        world.submit(loan("two", 1));
    }
    world.settle();
    let held = |world: &World, name: &str| world.state.held_below(&queue_name(name)).slots;
    assert_eq!((held(&world, "one"), held(&world, "team")), (4, 4));
    configure(&mut world, "one", below(1));
    world.settle();
    assert_eq!((held(&world, "one"), held(&world, "two")), (4, 0), "what runs runs on, and counts");
    // Out of the team: its four are none of the team's any more, and the team starts its own, up to what there is.
    configure(&mut world, "one", team(1));
    world.settle();
    assert_eq!((held(&world, "one"), held(&world, "team")), (4, 2), "6 slots there are");
    assert!(can_close(&world.state, &queue_name("one")).is_err(), "it is not deleted under its jobs");
    configure(&mut world, "one", QueueConfigured { closed: true, ..team(1) });
    world.settle();
    assert_eq!(world.state.nodes().values().map(|node| node.claimed().slots).sum::<u32>(), 6);
}

/// And what is kept of a quota for one that has waited must not stop two of them for ever.
#[test]
fn two_that_have_waited_under_one_quota_do_not_wait_for_each_other() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { quota: slots_quota(4), ..QueueConfigured::default() });
    world.slots("n1", 8);
    let runs = world.running(job("team", 4));
    let (first, second) = (world.submit(job("team", 3)), world.submit(job("team", 2)));
    world.settle();
    world.wait(world.policy.patience.0 + 1);
    world.settle();
    world.exits(runs, 0, 0, None);
    world.settle();
    assert!(world.is_active(first) && world.is_pending(second), "{:?} {:?}", world.reason(first), world.reason(second));
    world.exits(first, 0, 0, None);
    world.settle();
    assert!(world.is_active(second));
}

/// Nor is anything kept of a quota for one that waits for a node, not for the quota.
#[test]
fn one_whose_node_is_away_keeps_nothing_of_its_queues_quota() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { quota: slots_quota(4), ..QueueConfigured::default() });
    world.slots("n1", 4);
    world.slots("n2", 4);
    world.drain("n2");
    let there = PlacementAsk { nodes: vec![node_name("n2")], ..PlacementAsk::default() };
    let away = world.submit(JobSpec { placement: there, ..job("team", 4) });
    let runs = world.running(job("team", 1));
    world.wait(world.policy.patience.0 + 1);
    let small = world.submit(job("team", 1));
    world.settle();
    assert!(world.is_active(small) && world.is_active(runs) && world.is_pending(away), "{:?}", world.reason(small));
}

/// 6 once more: what starved it was not the nodes but its own queue's quota, which small jobs behind it used up for ever.
#[test]
fn complaint_06_a_gang_that_its_queues_quota_keeps_waiting_is_not_overtaken_for_ever() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { quota: slots_quota(4), ..QueueConfigured::default() });
    let below = QueueConfigured { parent: Some(queue_name("team")), ..QueueConfigured::default() };
    configure(&mut world, "one", below.clone());
    configure(&mut world, "two", below);
    ["n1", "n2", "n3"].into_iter().for_each(|name| world.slots(name, 8));
    let apart = PlacementAsk { nodes: vec![node_name("n3")], ..PlacementAsk::default() };
    let beside = PlacementAsk { exclude: apart.nodes.clone(), ..PlacementAsk::default() };
    let small = || JobSpec { placement: beside.clone(), ..job("two", 1) };
    let mut running: Vec<RunId> = (0..4).map(|_| world.running(small())).collect();
    let gang = world.submit(JobSpec { queue: queue_name("one"), placement: beside.clone(), ..spec(2, 2) });
    // Never to be had: it keeps nothing from anybody.
    let hopeless = world.submit(job("one", 5));
    let (mut waited, bound) = (0, world.policy.patience.0 + 4 * 150_000);
    while world.is_pending(gang) && waited < bound {
        let next = world.submit(small());
        let elsewhere = world.submit(JobSpec { placement: apart.clone(), ..job("default", 8) });
        world.exits(running.remove(0), 0, 0, None);
        world.settle();
        assert!(world.is_active(elsewhere), "the quota is the team's, and nobody else's");
        world.exits(elsewhere, 0, 0, None);
        if world.is_active(next) {
            running.push(next);
        } else {
            let Some(WaitReason::Quota { detail }) = world.reason(next) else { panic!("{:?}", world.reason(next)) };
            assert!(detail.contains("4 kept for what has waited longer"), "{detail}");
            world.cancel(next, 1);
        }
        world.wait(150_000);
        waited += 150_000;
        world.settle();
    }
    assert!(world.is_active(gang), "not within its patience and the longest of those that ran: {:?}", world.reason(gang));
    world.cancel(gang, 1);
    world.settle();
    (0..2).for_each(|member| world.exits(gang, member, 143, Some(StopCause::Cancelled)));
    let next = world.submit(job("two", 4));
    world.settle();
    assert!(world.is_active(next) && world.is_pending(hopeless));
}
