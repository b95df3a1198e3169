//! Parts of GPUs: slices of a profile, and shares where the node allows them.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{Refusal, admit, assignments, capacity, explain, outlook};
use footplate_types::*;
use proptest::prelude::*;

fn gpu_of(world: &World, run: RunId) -> String {
    world.state.jobs()[&run].attempt().unwrap().members[0].placement.gpus[0].to_string()
}

fn two_gpus() -> World {
    let mut world = World::new();
    world.node("n1", shared(gpus_shape("n1", &[("A", None), ("A", None)])));
    world
}

#[test]
fn a_share_goes_onto_the_fullest_gpu_that_still_holds_it_so_that_whole_ones_stay_whole() {
    let mut world = two_gpus();
    let shares = [600, 300, 500, 400, 100].map(|share| {
        let run = world.running(share_spec(share, 0));
        (share, gpu_of(&world, run))
    });
    let on = |at: usize| shares[at].1.as_str();
    assert_eq!((on(0), on(1)), ("GPU-n1-0", "GPU-n1-0"), "600 and 300 stand together");
    assert_eq!((on(2), on(3)), ("GPU-n1-1", "GPU-n1-1"), "500 and 400 found no room there");
    assert_eq!(on(4), "GPU-n1-0", "of two that are equally full the first");
}

#[test]
fn of_several_nodes_a_share_goes_where_shares_stand_already() {
    let mut world = World::new();
    // Tighter by its one GPU, but whole.
    world.node("n1", shared(gpus_shape("n1", &[("A", None)])));
    world.node("n2", shared(gpus_shape("n2", &[("A", None); 4])));
    let first = world
        .running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n2")], ..PlacementAsk::default() }, ..share_spec(200, 0) });
    let second = world.running(share_spec(800, 0));
    assert_eq!((world.nodes_of(first), world.nodes_of(second)), (vec!["n2".to_owned()], vec!["n2".to_owned()]));
    assert_eq!(gpu_of(&world, first), gpu_of(&world, second));
    let third = world.running(share_spec(200, 0));
    assert_eq!(world.nodes_of(third), ["n1"], "else the node with the fewest free GPUs");
}

#[test]
fn who_has_a_gpu_alone_and_who_has_a_share_never_stand_beside_each_other() {
    let mut world = two_gpus();
    let share = world.running(share_spec(1, 0));
    let wide = world.submit(gpu_spec(1, 2));
    world.settle();
    assert!(world.is_pending(wide), "a thousandth of one is taken");
    let alone = world.running(gpu_spec(1, 1));
    assert_ne!(gpu_of(&world, share), gpu_of(&world, alone));
    let beside = world.running(share_spec(999, 0));
    assert_eq!(gpu_of(&world, beside), gpu_of(&world, share));
    let full = world.submit(share_spec(1, 0));
    world.settle();
    assert!(world.is_pending(full));
    for run in [share, beside, alone] {
        world.exits(run, 0, 0, None);
    }
    world.settle();
    assert!(world.is_active(wide), "all is whole again");
}

#[test]
fn memory_that_is_asked_with_a_share_is_summed_on_its_gpu() {
    let mut world = two_gpus();
    let first = world.running(share_spec(100, 60 << 30));
    let second = world.running(share_spec(100, 60 << 30));
    assert_ne!(gpu_of(&world, first), gpu_of(&world, second));
    let none_asked = world.running(share_spec(100, 0));
    assert_eq!(gpu_of(&world, none_asked), "GPU-n1-0");
    let third = world.submit(share_spec(100, 30 << 30));
    world.settle();
    let Some(WaitReason::Resources { detail }) = world.reason(third) else { panic!("{:?}", world.reason(third)) };
    assert!(
        detail.contains("gpus: 0.1 of one free asked") && detail.contains("with 0.9 of one (its gpu memory, cpus or memory are in use)"),
        "{detail}"
    );
    world.exits(second, 0, 0, None);
    world.settle();
    assert!(world.is_active(third));
}

#[test]
fn where_the_node_does_not_allow_it_no_share_is_given() {
    let mut world = World::new();
    world.node("n1", gpus_shape("n1", &[("A", None)]));
    let Err(Refusal::NeverFits { detail }) = admit(&world.state, &share_spec(250, 0), false) else { panic!("it is not allowed") };
    assert_eq!(detail, "the largest node (n1) does not share its gpus (agent.share_gpus), 0.25 of one asked");
    let waits = world.submit(share_spec(250, 0));
    world.settle();
    assert!(matches!(world.reason(waits), Some(WaitReason::NoSuchNode { .. })));
    // It allows it from now on; later no more, and who stands there stays.
    world.node("n1", shared(gpus_shape("n1", &[("A", None)])));
    world.settle();
    assert!(world.is_active(waits));
    world.node("n1", gpus_shape("n1", &[("A", None)]));
    let (share, whole) = (world.submit(share_spec(250, 0)), world.submit(gpu_spec(1, 1)));
    world.settle();
    assert!(world.is_pending(share) && world.is_pending(whole));
    world.exits(waits, 0, 0, None);
    world.settle();
    assert!(world.is_pending(share) && world.is_active(whole));
}

#[test]
fn a_slice_is_for_who_asks_its_profile_and_a_whole_gpu_for_who_asks_none() {
    let mut world = World::new();
    let mut shape = gpus_shape("n1", &[]);
    shape.gpus = slices("n1", "GPU-n1-0", "1g.10gb", 4);
    shape.gpus.extend(slices("n1", "GPU-n1-0", "3g.40gb", 1));
    world.node("n1", shape);
    let never = |spec: JobSpec| match admit(&world.state, &spec, false) {
        Err(Refusal::NeverFits { detail }) => detail,
        other => panic!("{other:?}"),
    };
    assert_eq!(never(gpu_spec(1, 1)), "the largest node (n1) has 0 whole gpus, 1 asked of each node");
    assert_eq!(never(slice_spec(1, "7g.80gb")), "the largest node (n1) has 0 slices of 7g.80gb, 1 asked of each node");
    assert_eq!(never(slice_spec(2, "3g.40gb")), "the largest node (n1) has 1 slice of 3g.40gb, 2 asked of each node");
    assert_eq!(never(share_spec(500, 0)), "the largest node (n1) has 0 whole gpus, 1 asked of each node");
    let (small, large) = (world.running(slice_spec(4, "1g.10gb")), world.running(slice_spec(1, "3g.40gb")));
    let task = |run: RunId| {
        let mut all = assignments(&world.state).into_values().flat_map(|assignment| assignment.tasks);
        all.find(|task| task.run == run).unwrap()
    };
    assert_eq!((task(small).gpus.len(), task(large).gpu_profile), (4, MigProfile::parse("3g.40gb").ok()));
    let waits = world.submit(slice_spec(1, "3g.40gb"));
    world.settle();
    let told = explain(&world.state, &waits, Timestamp::default()).unwrap();
    assert_eq!(told.pools[0].binds, "1 slices of 3g.40gb asked on each of 1 nodes, 0 have them: 0 are free on 1 nodes, at most 0 on one");
}

#[test]
fn a_gang_may_ask_a_share_or_slices_of_each_node() {
    let mut world = World::new();
    for name in ["n1", "n2"] {
        let mut shape = shared(gpus_shape(name, &[("A", None)]));
        shape.gpus.extend(slices(name, "GPU-x", "1g.10gb", 2));
        world.node(name, shape);
    }
    let mut of_shares = share_spec(600, 10 << 30);
    of_shares.resources.nodes = 2;
    let mut of_slices = slice_spec(2, "1g.10gb");
    of_slices.resources.nodes = 2;
    let (shares, slices) = (world.running(of_shares.clone()), world.running(of_slices));
    assert_eq!((world.nodes_of(shares).len(), world.nodes_of(slices).len()), (2, 2));
    let placed =
        |run: RunId| world.state.jobs()[&run].attempt().unwrap().members.iter().map(|member| member.placement.clone()).collect::<Vec<_>>();
    assert!(placed(shares).iter().all(|member| (member.gpu_share, member.gpu_memory_bytes, member.workers) == (600, 10 << 30, 1)));
    assert!(placed(slices).iter().all(|member| (member.gpu_share, member.gpus.len(), member.workers) == (0, 2, 2)));
    of_shares.resources.per_node.gpu_share = 401;
    let second = world.submit(of_shares);
    world.settle();
    assert!(world.is_pending(second), "all of it or nothing");
}

#[test]
fn an_unhealthy_gpu_is_shared_with_nobody_more_and_is_whole_again_once_it_is_well_and_empty() {
    let mut world = World::new();
    world.node("n1", shared(gpus_shape("n1", &[("A", None)])));
    let first = world.running(share_spec(300, 0));
    let health = |healthy| NodeHealthChanged { gpu: GpuUuid::parse("GPU-n1-0").ok(), healthy, reason: "Xid 79".to_owned() };
    world.record(Subject::node(&node_name("n1")), health(false));
    let second = world.submit(share_spec(300, 0));
    world.settle();
    assert!(world.is_pending(second));
    world.record(Subject::node(&node_name("n1")), health(true));
    world.settle();
    assert!(world.is_active(second));
    world.record(Subject::node(&node_name("n1")), health(false));
    world.exits(first, 0, 0, None);
    world.exits(second, 0, 0, None);
    let whole = world.submit(gpu_spec(1, 1));
    world.settle();
    assert!(world.is_pending(whole));
    world.record(Subject::node(&node_name("n1")), health(true));
    world.settle();
    assert!(world.is_active(whole));
}

#[test]
fn nobody_is_stopped_for_a_gpu_that_is_not_healthy_beside_one_that_is_shared() {
    let mut world = two_gpus();
    let alone = world.running(JobSpec { preemptible: true, ..gpu_spec(1, 1) });
    let share = world.running(share_spec(500, 0));
    assert_ne!(gpu_of(&world, alone), gpu_of(&world, share));
    let ill = GpuUuid::parse(&gpu_of(&world, alone)).ok();
    world.record(Subject::node(&node_name("n1")), NodeHealthChanged { gpu: ill, healthy: false, reason: "Xid 79".to_owned() });
    let urgent = world.submit(JobSpec { priority: 5, ..gpu_spec(1, 1) });
    world.settle();
    assert_eq!((world.is_pending(urgent), world.stop_cause(alone)), (true, None));
}

#[test]
fn shares_are_preempted_only_as_far_as_it_takes() {
    let mut world = World::new();
    world.node("n1", shared(gpus_shape("n1", &[("A", None)])));
    let loan = |share| JobSpec { preemptible: true, ..share_spec(share, 0) };
    let low = [world.running(loan(500)), world.running(loan(300)), world.running(loan(200))];
    let urgent = world.submit(JobSpec { priority: 5, ..share_spec(450, 0) });
    world.settle();
    let stopped: Vec<bool> = low.iter().map(|run| world.stop_cause(*run) == Some(StopCause::Preempted)).collect();
    assert_eq!(stopped.iter().filter(|stopped| **stopped).count(), if stopped[0] { 1 } else { 2 }, "{stopped:?}");
    for (run, stopped) in low.into_iter().zip(stopped) {
        if stopped {
            world.exits(run, 0, 143, Some(StopCause::Preempted));
        }
    }
    world.settle();
    assert!(world.is_active(urgent));
}

#[test]
fn what_is_borrowed_in_slices_or_shares_is_given_back_and_no_more_of_it_than_is_asked() {
    let guaranteed = |gpus| QueueConfigured { guarantee: Quota { gpus: Some(gpus), slots: None }, ..QueueConfigured::default() };
    let of = |queue: &str, preemptible, spec: JobSpec| JobSpec { queue: queue_name(queue), preemptible, ..spec };
    for (part, asked) in [(slice_spec(1, "1g.10gb"), slice_spec(3, "1g.10gb")), (share_spec(142, 0), share_spec(426, 0))] {
        let mut world = World::new();
        world.record(Subject::queue(&queue_name("own")), guaranteed(1));
        world.record(Subject::queue(&queue_name("guest")), QueueConfigured::default());
        let mut shape = shared(gpus_shape("n1", &[("A", None)]));
        if part.resources.per_node.gpu_profile.is_some() {
            shape.gpus = slices("n1", "GPU-n1-0", "1g.10gb", 7);
        }
        world.node("n1", shape);
        let guests: Vec<RunId> = (0..7).map(|_| world.running(of("guest", true, part.clone()))).collect();
        let own = world.submit(of("own", false, asked));
        world.settle();
        let stopped: Vec<RunId> = guests.iter().copied().filter(|run| world.stop_cause(*run) == Some(StopCause::Preempted)).collect();
        assert_eq!(stopped.len(), 3, "{part:?}");
        stopped.into_iter().for_each(|run| world.exits(run, 0, 143, Some(StopCause::Preempted)));
        world.settle();
        assert!(world.is_active(own));
    }
}

#[test]
fn who_wants_a_whole_gpu_starts_though_shares_keep_coming_and_short_ones_use_it_meanwhile() {
    let mut world = World::new();
    world.node("n1", shared(gpus_shape("n1", &[("A", None)])));
    let limited = |share, seconds| JobSpec {
        limits: Limits { max_duration: Millis::from_secs(seconds), ..Limits::default() },
        stop: StopPolicy { grace: Millis(0), ..StopPolicy::default() },
        ..share_spec(share, 0)
    };
    let first = world.running(limited(300, 2_000));
    let whole = world.submit(gpu_spec(1, 1));
    world.settle();
    let overtakes = world.running(limited(300, 3_000));
    world.wait(600_001);
    world.settle();
    let (late, short) = (world.submit(limited(300, 3_000)), world.submit(limited(300, 1_000)));
    world.settle();
    assert!(world.is_pending(late) && world.is_pending(whole), "from here on it is kept for who has waited");
    assert!(world.is_active(short), "who is gone by then may use it");
    for run in [first, overtakes, short] {
        world.exits(run, 0, 0, None);
    }
    world.settle();
    assert!(world.is_active(whole) && world.is_pending(late));
}

#[test]
fn quotas_and_guarantees_in_whole_gpus_bind_parts_to_the_thousandth() {
    let mut world = two_gpus();
    world.queue("q", 1, Some(1), None);
    let in_q = |share| JobSpec { queue: queue_name("q"), ..share_spec(share, 0) };
    let (first, second) = (world.running(in_q(700)), world.submit(in_q(301)));
    world.settle();
    let Some(WaitReason::Quota { detail }) = world.reason(second) else { panic!("{:?}", world.reason(second)) };
    assert_eq!(detail, "gpus: 0.7 of 1 in use, 0.301 asked");
    let third = world.running(in_q(300));
    assert_eq!(world.state.queue(&queue_name("q")).holding.gpu_milli, 1_000);
    assert!(world.is_active(first) && world.is_active(third));
    assert!(matches!(outlook(&world.state, &in_q(1)), Some(WaitReason::Quota { .. })));
}

#[test]
fn what_more_nodes_would_serve_counts_the_shares_that_stand_on_one() {
    let mut world = World::new();
    world.node("n1", shared(gpus_shape("n1", &[("A", None)])));
    let runs: Vec<RunId> = (0..9).map(|_| world.submit(share_spec(400, 0))).collect();
    world.settle();
    assert_eq!(runs.iter().filter(|run| world.is_active(**run)).count(), 2);
    let told = capacity(&world.state);
    let demand = &told.demands[0];
    assert_eq!((demand.jobs, demand.fitting, demand.help[0].for_one, demand.help[0].for_all), (7, 0, 1, 4), "two of them a node");
    let asked = &told.queues[&queue_name("default")];
    assert_eq!((asked.placed.gpu_milli, asked.pending.gpu_milli), (800, 2_800));
}

/// What two jobs of one look start beside what is leaving was given twice: cores, once somebody was on the way out.
#[test]
fn cores_are_given_once_in_a_look_while_others_are_leaving() {
    let mut world = World::new();
    world.node("n1", NodeShape { cpus: 20, ..slots_shape(10) });
    let with_cpus = |cpus| {
        let mut spec = spec(1, 1);
        spec.resources.per_node.cpus = cpus;
        spec
    };
    let leaving = world.running(with_cpus(10));
    world.cancel(leaving, 1);
    world.settle();
    assert_eq!(world.stop_cause(leaving), Some(StopCause::Cancelled));
    let (first, second) = (world.submit(with_cpus(6)), world.submit(with_cpus(6)));
    world.settle();
    assert!(world.is_active(first) && world.is_pending(second), "4 of 20 are left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever comes and goes, no GPU has more on it than it is, nobody stands beside who has it alone, and slices are for who asks them: the checker and
    /// `State::check` look at every event. What nothing keeps waiting does not wait.
    #[test]
    fn no_gpu_is_ever_given_twice(steps in prop::collection::vec((0u8..10, 1u32..1_000, 0u64..80), 1..40)) {
        let mut world = World::new();
        for name in ["n1", "n2"] {
            let mut shape = shared(gpus_shape(name, &[("A", None), ("A", Some(0)), ("A", Some(0))]));
            shape.gpus.extend(slices(name, "GPU-split", "1g.10gb", 2));
            world.node(name, shape);
        }
        let mut runs = Vec::new();
        for (what, share, memory) in steps {
            match what {
                0..=4 => runs.push(world.submit(JobSpec { preemptible: share % 2 == 0, priority: (share % 3) as i32, ..share_spec(share, memory << 30) })),
                5 => runs.push(world.submit(JobSpec { priority: 1, ..gpu_spec(1 + share % 2, 1 + share % 3) })),
                6 => runs.push(world.submit(slice_spec(1 + share % 2, "1g.10gb"))),
                7 => {
                    let gpu = GpuUuid::parse(&format!("GPU-n1-{}", share % 3)).ok();
                    let change = NodeHealthChanged { gpu, healthy: memory % 2 == 0, reason: "Xid".to_owned() };
                    world.record(Subject::node(&node_name("n1")), change);
                }
                _ => {
                    let active: Vec<RunId> = runs.iter().copied().filter(|run| world.is_active(*run)).collect();
                    if let Some(run) = active.get(share as usize % active.len().max(1)) {
                        let obeyed = world.stop_cause(*run);
                        let members = world.state.jobs()[run].attempt().unwrap().members.len() as u32;
                        (0..members).for_each(|member| world.exits(*run, member, 0, obeyed));
                    }
                }
            }
            world.settle();
        }
    }
}
