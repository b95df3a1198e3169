//! What is asked, what is idle, and that the nodes that are said to help do help, and fewer do not.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{Capacity, DEMANDS_MAX, Help, Holding, capacity};
use footplate_types::*;
use proptest::prelude::*;

fn slots(slots: u64) -> Holding {
    Holding { gpu_milli: 0, slots }
}

/// The only demand, and its only help.
fn only(told: &Capacity) -> (u64, u64, Help) {
    let [demand] = &told.demands[..] else { panic!("{:?}", told.demands) };
    let [help] = demand.help[..] else { panic!("{:?}", demand.help) };
    (demand.jobs, demand.fitting, help)
}

#[test]
fn what_is_asked_is_told_by_queue_placed_and_pending() {
    let mut world = World::new();
    world.record(Subject::queue(&queue_name("night")), QueueConfigured::default());
    world.slots("n1", 4);
    world.running(spec(1, 3));
    world.submit(spec(1, 2));
    world.submit(JobSpec { queue: queue_name("night"), ..spec(2, 4) });
    world.settle();
    let told = capacity(&world.state);
    let of = |name: &str| told.queues[&queue_name(name)];
    assert_eq!((of("default").placed_jobs, of("default").placed), (1, slots(3)));
    assert_eq!((of("default").pending_jobs, of("default").pending), (1, slots(2)));
    assert_eq!((of("night").placed_jobs, of("night").pending_jobs, of("night").pending), (0, 1, slots(8)));
}

#[test]
fn a_node_is_idle_since_the_last_that_happened_to_it_and_not_while_it_is_closed() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 2);
    let run = world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n1")], ..PlacementAsk::default() }, ..spec(1, 2) });
    let idle = |world: &World| capacity(&world.state).idle.iter().map(|idle| idle.node.to_string()).collect::<Vec<_>>();
    assert_eq!(idle(&world), ["n2"]);
    let before = world.state.position();
    world.exits(run, 0, 0, None);
    world.settle();
    assert_eq!(idle(&world), ["n2", "n1"], "the one that has been idle longest first");
    assert!(capacity(&world.state).idle[1].since > before);
    world.record(Subject::node(&node_name("n2")), NodeCordoned { request: None, reason: String::new() });
    assert_eq!(idle(&world), ["n1"]);
    let [kind] = &capacity(&world.state).kinds[..] else { panic!("they are alike") };
    assert_eq!((kind.nodes, kind.idle), (2, 1));
}

#[test]
fn only_what_waits_for_nodes_is_a_demand() {
    let mut world = World::new();
    world.record(
        Subject::queue(&queue_name("full")),
        QueueConfigured { quota: Quota { gpus: None, slots: Some(1) }, ..QueueConfigured::default() },
    );
    world.slots("n1", 2);
    world.running(spec(1, 2));
    world.submit(JobSpec { queue: queue_name("full"), ..spec(1, 2) });
    let held = world.submit(spec(1, 1));
    world.record(Subject::job(&project(), held), JobHeld { request: request(1) });
    world.settle();
    assert_eq!(capacity(&world.state).demands.len(), 0);
    world.submit(spec(2, 2));
    world.submit(spec(2, 2));
    world.settle();
    let (jobs, fitting, help) = only(&capacity(&world.state));
    assert_eq!((jobs, fitting, help), (2, 0, Help { kind: 0, for_one: 2, for_all: 4 }));
}

#[test]
fn a_kind_that_could_take_no_member_is_no_help_nor_is_any_for_named_nodes() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.node("g1", gpus_shape("g1", &[("A100", None); 2]));
    world.running(spec(1, 2));
    world.submit(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n1")], ..PlacementAsk::default() }, ..spec(1, 1) });
    world.submit(gpu_spec(1, 4));
    world.submit(spec(1, 1));
    world.settle();
    let told = capacity(&world.state);
    let help = |gpus: u32, is_named: bool| {
        let fits = |spec: &JobSpec| spec.resources.per_node.gpus == gpus && spec.placement.nodes.is_empty() != is_named;
        told.demands.iter().find(|demand| fits(&demand.spec)).unwrap().help.clone()
    };
    assert_eq!((help(4, false), help(0, true)), (vec![], vec![]), "too wide for any, and for one node alone");
    let [one] = help(0, false)[..] else { panic!("{told:?}") };
    assert_eq!((one.for_one, one.for_all, told.kinds[one.kind].shape.slots), (1, 1, 2));
}

#[test]
fn demands_beyond_the_bound_are_counted_and_the_largest_are_told() {
    let mut world = World::new();
    world.slots("n1", 100);
    world.running(spec(1, 100));
    for slots in 1..=DEMANDS_MAX as u32 + 3 {
        world.submit(spec(1, slots));
    }
    world.settle();
    let told = capacity(&world.state);
    assert_eq!((told.demands.len(), told.beyond), (DEMANDS_MAX, 3));
    assert_eq!(told.demands[0].spec.resources.per_node.slots, DEMANDS_MAX as u32 + 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Equal gangs before a cluster of equal nodes: with as many more nodes as are said to help all, all are placed, with one fewer they are not;
    /// the same of the first one.
    #[test]
    fn as_many_nodes_as_are_said_to_help_help_and_fewer_do_not(per_node in 1u32..6, asked in 1u32..6, nodes in 1u32..5, jobs in 1usize..6, there in 0usize..4) {
        prop_assume!(asked <= per_node);
        let with = |more: u64| {
            let mut world = World::new();
            // One that is closed: so that the kind is known though no node is open.
            world.slots("closed", per_node);
            world.record(Subject::node(&node_name("closed")), NodeCordoned { request: None, reason: String::new() });
            (0..there).for_each(|at| world.slots(&format!("n{at}"), per_node));
            let runs: Vec<RunId> = (0..jobs).map(|_| world.submit(spec(nodes, asked))).collect();
            world.settle();
            let told = capacity(&world.state);
            (0..more).for_each(|at| world.slots(&format!("more{at}"), per_node));
            world.settle();
            (told, runs.iter().filter(|run| world.is_active(**run)).count())
        };
        let (told, placed) = with(0);
        if told.demands.is_empty() {
            prop_assert_eq!(placed, jobs);
        } else {
            let (waiting, _, help) = only(&told);
            prop_assert_eq!(waiting as usize, jobs - placed);
            prop_assert!(help.for_one >= 1 && help.for_all >= help.for_one);
            prop_assert!(with(help.for_one).1 > placed, "one more starts with {} more", help.for_one);
            prop_assert_eq!(with(help.for_one - 1).1, placed, "and none with one fewer");
            prop_assert!(with(help.for_all - 1).1 < jobs, "not all start with one fewer than {}", help.for_all);
            // Which nodes a gang takes is the scheduler's choice; single nodes cannot be chosen badly.
            if nodes == 1 {
                prop_assert_eq!(with(help.for_all).1, jobs);
            }
        }
    }
}

#[test]
fn a_kind_without_the_labels_that_are_asked_helps_nobody_and_of_one_rack_no_number_is_promised() {
    let mut world = World::new();
    let labelled = |net: &str, rack: &str| NodeShape {
        labels: [("net".to_owned(), net.to_owned())].into(),
        rack: Some(rack.to_owned()),
        ..slots_shape(4)
    };
    world.node("n1", labelled("ib", "a"));
    world.node("n2", labelled("eth", "b"));
    let fast = || PlacementAsk { labels: [("net".to_owned(), "ib".to_owned())].into(), ..PlacementAsk::default() };
    world.running(JobSpec { placement: fast(), ..spec(1, 4) });
    world.submit(JobSpec { placement: fast(), ..spec(1, 4) });
    world.settle();
    let told = capacity(&world.state);
    let (jobs, fitting, help) = only(&told);
    assert_eq!((jobs, fitting, help.for_one), (1, 0, 1));
    assert_eq!(told.kinds[help.kind].shape.labels["net"], "ib");

    let mut world = World::new();
    for (name, rack) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        world.node(name, labelled("ib", rack));
    }
    world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("a1")], ..PlacementAsk::default() }, ..spec(1, 4) });
    world.submit(JobSpec { placement: PlacementAsk { same_rack: true, ..PlacementAsk::default() }, ..spec(2, 4) });
    world.settle();
    let [demand] = &capacity(&world.state).demands[..] else { panic!("one waits") };
    assert_eq!((demand.fitting, demand.help.len()), (1, 0), "one in each rack is not two in one");
}
