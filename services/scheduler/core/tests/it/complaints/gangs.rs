//! Gangs: whole or not at all, and whole again after a loss.

use super::*;

/// 1, volcano#3373: two gangs of a hundred each held part of a hundred nodes, both "running", for ever.
#[test]
fn complaint_01_of_two_gangs_that_each_need_every_node_one_has_all_and_the_other_nothing() {
    let mut world = World::new();
    let (one, other) = (world.submit(spec(100, 1)), world.submit(spec(100, 1)));
    (0..100).for_each(|n| world.slots(&format!("n{n}"), 1));
    world.settle();
    assert_eq!((world.nodes_of(one).len(), world.is_pending(other)), (100, true));
    assert!(world.state.nodes().values().all(|node| node.claims.keys().all(|key| key.run == one)));
    world.all_ready(one);
    world.settle();
    (0..100).for_each(|member| world.exits(one, member, 0, None));
    world.settle();
    assert_eq!(world.nodes_of(other).len(), 100);
}

/// 3, volcano#5805: after a repair another job took the freed place, and the gang stayed below its size for good.
#[test]
fn complaint_03_a_gang_that_lost_a_member_is_torn_down_whole_and_starts_whole_again() {
    let mut world = World::new();
    ["n1", "n2"].into_iter().for_each(|name| world.slots(name, 1));
    let gang = world.running(spec(2, 1));
    let gone = world.nodes_of(gang)[1].clone();
    world.node_lost(&gone);
    world.settle();
    world.lost(gang, 1);
    world.register(&gone, slots_shape(1), 2);
    let taker = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_active(taker), "the repaired node is taken meanwhile");
    assert_eq!(world.stop_cause(gang), Some(StopCause::NodeLost), "what is left of it does not run on");
    world.exits(gang, 0, 143, Some(StopCause::NodeLost));
    world.settle();
    assert!(world.is_pending(gang));
    world.wait(600_000);
    world.settle();
    world.exits(taker, 0, 0, None);
    world.settle();
    assert_eq!((world.nodes_of(gang).len(), world.attempt(gang)), (2, 2));
}

/// 5, volcano#665, kueue#6214: let in on the sum of a quota, a job fitted on no node and held the quota all the same.
#[test]
fn complaint_05_what_fits_the_sum_and_no_node_holds_no_quota_and_is_told_the_largest_gap() {
    let mut world = World::new();
    configure(&mut world, "q", QueueConfigured { quota: Quota { gpus: Some(8), slots: None }, ..QueueConfigured::default() });
    for name in ["n1", "n2"] {
        world.node(name, gpus_shape(name, &[("A", None); 8]));
    }
    let holds = |name: &str| PlacementAsk { nodes: vec![node_name(name)], ..PlacementAsk::default() };
    for name in ["n1", "n2"] {
        world.running(JobSpec { placement: holds(name), ..gpu_spec(1, 4) });
    }
    let of_q = |gpus: u32| JobSpec { queue: queue_name("q"), ..gpu_spec(1, gpus) };
    let wide = world.submit(of_q(8));
    world.settle();
    let Some(WaitReason::Resources { detail }) = world.reason(wide) else { panic!("{:?}", world.reason(wide)) };
    assert!(detail.contains("gpus: 8 free asked on 1 of 2 open nodes, 0 have them") && detail.contains("with 4"), "{detail}");
    let narrow = world.submit(of_q(4));
    world.settle();
    assert!(world.is_active(narrow), "the quota is free for who fits");
}

/// 9, kueue#7157: the victim was let in again before the one that it was evicted for.
#[test]
fn complaint_09_what_a_preemption_frees_is_kept_for_the_preemptor_until_it_starts_or_gives_up() {
    let mut world = World::new();
    world.slots("n1", 2);
    let victims = [world.running(loan("default", 1)), world.running(loan("default", 1))];
    let urgent = world.submit(JobSpec { priority: 5, ..job("default", 2) });
    world.settle();
    world.exits(victims[0], 0, 143, Some(StopCause::Preempted));
    world.settle();
    assert_eq!((active(&world, &victims), world.is_pending(victims[0]), world.is_pending(urgent)), (1, true, true));
    // It gives up: what was kept is free again.
    world.cancel(urgent, 1);
    world.settle();
    world.exits(victims[1], 0, 143, Some(StopCause::Preempted));
    world.settle();
    assert_eq!(active(&world, &victims), 2);
}

/// 21, skypilot#825, #1410: one worker of several was taken away, and the job never recovered.
#[test]
fn complaint_21_one_lost_rank_fails_the_attempt_and_the_whole_gang_is_tried_again() {
    let mut world = World::new();
    (0..5).for_each(|n| world.slots(&format!("n{n}"), 1));
    let gang = world.running(spec(4, 1));
    world.lost(gang, 2);
    world.settle();
    assert_eq!(world.stop_cause(gang), Some(StopCause::NodeLost));
    for member in [0, 1, 3] {
        world.exits(gang, member, 143, Some(StopCause::NodeLost));
    }
    world.settle();
    world.wait(world.state.jobs()[&gang].spec.retry.backoff.0);
    world.settle();
    assert_eq!((world.attempt(gang), world.nodes_of(gang).len()), (2, 4));
}

/// 34, nvcf#598: the first of a group went into the fullest NVLink partition, and its follower never fitted. Here a member is placed at once, so the
/// island is chosen for all its GPUs.
#[test]
fn complaint_34_an_island_is_chosen_for_all_gpus_of_a_member_and_not_for_the_first() {
    let mut world = World::new();
    let islands = [Some(0), Some(0), Some(0), Some(1), Some(1), Some(1), Some(1)].map(|island| ("A", island));
    world.node("n1", gpus_shape("n1", &islands));
    let run = world.submit(gpu_spec(1, 4));
    world.settle();
    let gpus: Vec<String> = world.state.jobs()[&run].attempt().unwrap().members[0].placement.gpus.iter().map(ToString::to_string).collect();
    assert_eq!(gpus, ["GPU-n1-3", "GPU-n1-4", "GPU-n1-5", "GPU-n1-6"]);
}

/// 4, volcano#1297: whether a gang of two unlike tasks fitted rested on the order in which they were written.
#[test]
fn complaint_04_a_gang_of_unlike_roles_is_placed_whatever_their_order() {
    let role =
        |name: &str, cpus: u32| GangRole { name: name.to_owned(), nodes: 1, per_node: PerNode { slots: 1, cpus, ..PerNode::default() } };
    for roles in [[role("small", 30), role("large", 50)], [role("large", 50), role("small", 30)]] {
        for (first, second) in [(53, 31), (31, 53)] {
            let mut world = World::new();
            for (name, cpus) in [("n1", first), ("n2", second)] {
                world.node(name, NodeShape { cpus, ..slots_shape(4) });
            }
            let resources = ResourceAsk { nodes: 1, per_node: roles[0].per_node.clone() };
            let gang = world.submit(JobSpec { roles: roles.to_vec(), resources, ..spec(1, 1) });
            world.settle();
            assert_eq!(world.nodes_of(gang).len(), 2, "{roles:?} on {first} and {second}");
        }
    }
}
