//! Gangs of roles: all of them or none, each with what it asks, numbered role by role.

use crate::world::*;
use footplate_events::facts::*;
use footplate_scheduler_core::{Refusal, admit, assignments, capacity, explain, outlook};
use footplate_types::*;

fn role(name: &str, nodes: u32, gpus: u32, slots: u32) -> GangRole {
    GangRole { name: name.to_owned(), nodes, per_node: PerNode { gpus, slots, ..PerNode::default() } }
}

fn gang(roles: &[GangRole]) -> JobSpec {
    let resources = ResourceAsk { nodes: roles[0].nodes, per_node: roles[0].per_node.clone() };
    JobSpec { roles: roles.to_vec(), resources, ..spec(1, 1) }
}

/// A node of `gpus` GPUs and `slots` slots.
fn mixed(world: &mut World, name: &str, gpus: usize, slots: u32) {
    let all = vec![("A", Some(0)); gpus];
    let shape = NodeShape { slots, ..gpus_shape(name, &all) };
    world.node(name, shape);
}

fn members(world: &World, run: RunId) -> Vec<(String, String, u32, u32)> {
    let attempt = world.state.jobs()[&run].attempt().unwrap();
    let told = |member: &footplate_scheduler_core::Member| {
        let placement = &member.placement;
        (placement.role.clone().unwrap_or_default(), placement.node.to_string(), placement.first_rank.0, placement.workers)
    };
    attempt.members.iter().map(told).collect()
}

#[test]
fn roles_are_placed_as_one_and_numbered_in_the_order_of_the_specification() {
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 0);
    mixed(&mut world, "g1", 4, 0);
    world.slots("c0", 4);
    let run = world.submit(gang(&[role("chief", 1, 1, 0), role("worker", 2, 3, 0), role("ps", 1, 0, 2)]));
    world.settle();
    let placed = members(&world, run);
    let roles: Vec<(&str, u32, u32)> = placed.iter().map(|(role, _, rank, workers)| (role.as_str(), *rank, *workers)).collect();
    assert_eq!(roles, [("chief", 0, 1), ("worker", 1, 3), ("worker", 4, 3), ("ps", 7, 2)]);
    assert_eq!(
        (placed[1].1.as_str(), placed[2].1.as_str(), placed[3].1.as_str()),
        ("g0", "g1", "c0"),
        "members of one role on nodes of their own"
    );
    assert!(["g0", "g1"].contains(&placed[0].1.as_str()), "the chief beside a worker: {placed:?}");
    let tasks: usize = assignments(&world.state).values().map(|assignment| assignment.tasks.len()).sum();
    assert_eq!(tasks, 4);
    world.all_ready(run);
    world.settle();
    (0..4).for_each(|member| world.exits(run, member, 0, None));
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Succeeded);
}

#[test]
fn one_role_without_room_keeps_all_of_them_out_and_is_named() {
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 0);
    world.slots("c0", 2);
    let other = world.running(spec(1, 2));
    let run = world.submit(gang(&[role("worker", 1, 4, 0), role("ps", 1, 0, 1)]));
    world.settle();
    let Some(WaitReason::Resources { detail }) = world.reason(run) else { panic!("{:?}", world.reason(run)) };
    assert!(detail.starts_with("role ps: slots: 1 free asked on 1"), "{detail}");
    let told = explain(&world.state, &run, world.now()).unwrap();
    assert!(told.pools[0].binds.contains("worker: there is room") && told.pools[0].binds.contains("ps: "), "{:?}", told.pools);
    assert_eq!(world.state.nodes()[&node_name("g0")].claims.len(), 0, "nothing is taken meanwhile");
    world.exits(other, 0, 0, None);
    world.settle();
    assert!(world.is_active(run));
}

#[test]
fn what_cannot_stand_together_is_refused_with_the_role_that_cannot() {
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 0);
    world.slots("c0", 2);
    let refused = |spec: &JobSpec| match admit(&world.state, spec, false) {
        Err(Refusal::NeverFits { detail }) => detail,
        other => panic!("{other:?}"),
    };
    assert!(refused(&gang(&[role("worker", 1, 4, 0), role("ps", 1, 0, 3)])).starts_with("role ps: the largest node (c0) has 2 slots"));
    assert!(refused(&gang(&[role("worker", 2, 1, 0), role("ps", 1, 0, 1)])).starts_with("role worker: 2 nodes asked, 1 of 2 could"));
    let together = refused(&gang(&[role("worker", 1, 4, 0), role("evaluator", 1, 1, 0)]));
    assert!(together.contains("not all of them beside each other"), "{together}");
    assert_eq!(admit(&world.state, &gang(&[role("worker", 1, 3, 0), role("evaluator", 1, 1, 0)]), false), Ok(()));
    assert_eq!(outlook(&world.state, &gang(&[role("worker", 1, 3, 0), role("evaluator", 1, 1, 0)])), None);
    world.queue("q", 1, Some(4), None);
    let small = JobSpec { queue: queue_name("q"), ..gang(&[role("worker", 1, 3, 0), role("evaluator", 1, 2, 0)]) };
    assert!(matches!(admit(&world.state, &small, false), Err(Refusal::OverQuota { detail, .. }) if detail.contains("5 asked")));
}

#[test]
fn numbers_that_are_none_are_refused_by_the_name_of_the_role() {
    let field = |spec: JobSpec| spec.validate().unwrap_err().field;
    let good = gang(&[role("worker", 1, 3, 0), role("ps", 1, 0, 1)]);
    assert_eq!(good.validate(), Ok(()));
    let with = |roles: &[GangRole]| gang(roles);
    assert_eq!(field(with(&[role("worker", 1, 3, 0), role("worker", 1, 0, 1)])), "roles");
    assert_eq!(field(with(&[role("Worker", 1, 3, 0)])), "roles.name");
    assert_eq!(field(with(&[role("worker", 1, 3, 0), role("ps", 1, 1, 1)])), "roles.ps.resources");
    assert_eq!(field(with(&[role("worker", 1, 3, 0), role("ps", 0, 0, 1)])), "roles.ps.resources.nodes");
    assert_eq!(field(with(&[role("worker", 1_000, 1, 0), role("ps", 25, 0, 1)])), "roles (members of all)");
    let many: Vec<GangRole> = (0..17).map(|n| role(&format!("r{n}"), 1, 1, 0)).collect();
    assert_eq!(field(with(&many)), "roles (count)");
    assert_eq!(field(JobSpec { launcher: Launcher::Torchrun, ..good.clone() }), "launcher");
    assert_eq!(field(JobSpec { resources: spec(1, 1).resources, ..good }), "resources");
}

#[test]
fn a_gang_of_roles_stands_in_one_rack_where_that_can_be_and_must_where_it_is_asked() {
    let mut world = World::new();
    for (name, gpus, slots, rack) in [("a0", 4, 0, "a"), ("a1", 4, 0, "a"), ("b0", 4, 0, "b"), ("b1", 0, 2, "b")] {
        let shape = NodeShape { slots, rack: Some(rack.to_owned()), ..gpus_shape(name, &vec![("A", Some(0)); gpus]) };
        world.node(name, shape);
    }
    let asked = gang(&[role("worker", 1, 4, 0), role("ps", 1, 0, 1)]);
    let run = world.running(asked.clone());
    assert_eq!(world.nodes_of(run), ["b0", "b1"], "the rack that has both");
    // No rack has both any more: in two where it may, nowhere where it must not.
    let must = JobSpec { placement: PlacementAsk { same_rack: true, ..PlacementAsk::default() }, ..asked.clone() };
    let strict = world.submit(must);
    world.settle();
    assert!(world.is_pending(strict));
    let loose = world.submit(asked);
    world.settle();
    let nodes = world.nodes_of(loose);
    assert!(nodes[0].starts_with('a') && nodes[1] == "b1", "{nodes:?}");
    for (run, members) in [(run, 2), (loose, 2)] {
        world.all_ready(run);
        world.settle();
        (0..members).for_each(|member| world.exits(run, member, 0, None));
    }
    world.settle();
    assert_eq!(world.nodes_of(strict), ["b0", "b1"]);
}

#[test]
fn the_role_that_can_stand_in_fewer_places_is_not_shut_out_by_the_others() {
    let mut world = World::new();
    // Only n0 has slots beside its GPUs; a worker would as soon stand there.
    mixed(&mut world, "n0", 2, 1);
    mixed(&mut world, "n1", 2, 0);
    let whole = |gpus, slots, memory: u64| PerNode { gpus, slots, memory_bytes: memory << 30, ..PerNode::default() };
    // Either takes most of a node's memory (1 TiB).
    let worker = GangRole { name: "worker".to_owned(), nodes: 1, per_node: whole(2, 0, 800) };
    let ps = GangRole { name: "ps".to_owned(), nodes: 1, per_node: whole(0, 1, 800) };
    let run = world.submit(gang(&[worker, ps]));
    world.settle();
    assert_eq!(world.nodes_of(run), ["n1", "n0"]);
}

#[test]
fn when_a_member_of_one_role_fails_the_whole_gang_is_stopped_and_tried_again() {
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 2);
    let retry = RetryPolicy { user_code: 1, backoff: Millis(0), ..RetryPolicy::default() };
    let run = world.running(JobSpec { retry, ..gang(&[role("worker", 1, 2, 0), role("ps", 1, 0, 1)]) });
    world.exits(run, 1, 3, None);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::MemberFailed));
    world.exits(run, 0, 143, Some(StopCause::MemberFailed));
    world.settle();
    assert_eq!((world.attempt(run), members(&world, run).len()), (2, 2));
}

#[test]
fn what_a_gang_of_roles_holds_counts_against_its_quota_role_by_role() {
    let mut world = World::new();
    mixed(&mut world, "g0", 8, 8);
    world.queue("q", 1, Some(4), Some(3));
    let of_q = |spec: JobSpec| JobSpec { queue: queue_name("q"), ..spec };
    let run = world.running(of_q(gang(&[role("worker", 1, 3, 0), role("ps", 1, 0, 2)])));
    let gpus = world.submit(of_q(gpu_spec(1, 2)));
    let slots = world.submit(of_q(spec(1, 2)));
    let fits = world.submit(of_q(gang(&[role("worker", 1, 1, 0), role("ps", 1, 0, 1)])));
    world.settle();
    assert!(matches!(world.reason(gpus), Some(WaitReason::Quota { .. })) && matches!(world.reason(slots), Some(WaitReason::Quota { .. })));
    assert!(world.is_active(run) && world.is_active(fits));
}

#[test]
fn others_are_preempted_for_a_gang_of_roles_only_when_all_of_it_fits_then() {
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 0);
    world.slots("c0", 2);
    let low = |spec: JobSpec| JobSpec { preemptible: true, ..spec };
    let first = world.running(low(gpu_spec(1, 2)));
    let second = world.running(low(gpu_spec(1, 2)));
    let firm = world.running(spec(1, 2));
    let urgent = JobSpec { priority: 9, ..gang(&[role("worker", 1, 3, 0), role("ps", 1, 0, 2)]) };
    let run = world.submit(urgent.clone());
    world.settle();
    assert_eq!((world.stop_cause(first), world.stop_cause(second)), (None, None), "it would not fit for the ps");
    world.exits(firm, 0, 0, None);
    world.settle();
    assert_eq!(world.reason(run), Some(WaitReason::Preempting));
    assert!([first, second].iter().all(|victim| world.stop_cause(*victim) == Some(StopCause::Preempted)));
    for victim in [first, second] {
        world.exits(victim, 0, 143, Some(StopCause::Preempted));
    }
    world.settle();
    assert!(world.is_active(run));
    // One is enough for one that asks less.
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 0);
    world.slots("c0", 2);
    let victims = [world.running(low(gpu_spec(1, 2))), world.running(low(gpu_spec(1, 2)))];
    let run = world.submit(JobSpec { priority: 9, ..gang(&[role("worker", 1, 2, 0), role("ps", 1, 0, 2)]) });
    world.settle();
    assert_eq!(world.reason(run), Some(WaitReason::Preempting));
    assert_eq!(victims.iter().filter(|victim| world.stop_cause(**victim).is_some()).count(), 1, "whoever is not needed is spared");
}

#[test]
fn a_gang_of_roles_that_has_waited_long_is_not_overtaken_for_ever() {
    let mut world = World::new();
    mixed(&mut world, "g0", 2, 0);
    mixed(&mut world, "g1", 2, 0);
    let limits = Limits { max_duration: Millis::from_secs(3_600), ..Limits::default() };
    let small = || JobSpec { limits, ..gpu_spec(1, 1) };
    let mut running: Vec<RunId> = (0..4).map(|_| world.running(small())).collect();
    let run = world.submit(gang(&[role("chief", 1, 1, 0), role("worker", 1, 2, 0)]));
    world.settle();
    for round in 0.. {
        world.wait(600_000);
        let other = world.submit(small());
        world.settle();
        world.exits(running.remove(0), 0, 0, None);
        world.settle();
        if world.is_active(run) {
            break;
        }
        if world.is_active(other) {
            world.all_ready(other);
            world.settle();
            running.push(other);
        }
        assert!(round < 12, "overtaken {round} times: {:?}", world.reason(run));
    }
}

#[test]
fn each_role_is_a_demand_of_its_own_in_the_account_of_what_is_asked() {
    let mut world = World::new();
    mixed(&mut world, "g0", 4, 0);
    world.submit(gang(&[role("worker", 2, 4, 0), role("ps", 1, 0, 1)]));
    world.settle();
    let told = capacity(&world.state);
    let asks: Vec<(u32, u32, u32)> = told
        .demands
        .iter()
        .map(|demand| (demand.spec.resources.nodes, demand.spec.resources.per_node.gpus, demand.spec.resources.per_node.slots))
        .collect();
    assert_eq!(asks, [(2, 4, 0), (1, 0, 1)]);
    let queue = &told.queues[&queue_name("default")];
    assert_eq!((queue.pending.gpu_milli, queue.pending.slots), (8_000, 1));
}
