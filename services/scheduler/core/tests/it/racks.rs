//! Placement asks beyond units: labels, and one rack for the whole gang.

use crate::world::*;
use footplate_events::facts::*;
use footplate_scheduler_core::explain;
use footplate_types::*;

/// Nodes of four GPUs, by name and rack.
fn racks(nodes: &[(&str, Option<&str>)]) -> World {
    let mut world = World::new();
    for (name, rack) in nodes {
        world.node(name, NodeShape { rack: rack.map(str::to_owned), ..gpus_shape(name, &[("A", Some(0)); 4]) });
    }
    world
}

fn together(nodes: u32, gpus: u32) -> JobSpec {
    JobSpec { placement: PlacementAsk { same_rack: true, ..PlacementAsk::default() }, ..gpu_spec(nodes, gpus) }
}

fn on(world: &mut World, name: &str, spec: JobSpec) -> RunId {
    world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name(name)], ..PlacementAsk::default() }, ..spec })
}

#[test]
fn a_gang_stands_in_the_fullest_rack_that_has_room_for_all_of_it() {
    let mut world =
        racks(&[("a1", Some("a")), ("a2", Some("a")), ("a3", Some("a")), ("b1", Some("b")), ("b2", Some("b")), ("c1", Some("c"))]);
    let pair = world.submit(gpu_spec(2, 4));
    world.settle();
    assert_eq!(world.nodes_of(pair), ["b1", "b2"], "rack a stays whole for three");
    let triple = world.submit(gpu_spec(3, 4));
    world.settle();
    assert_eq!(world.nodes_of(triple), ["a1", "a2", "a3"]);
}

#[test]
fn a_gang_that_no_rack_has_room_for_stands_in_as_few_as_it_takes_unless_one_is_asked() {
    let nodes = [("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b")), ("c1", Some("c")), ("c2", Some("c"))];
    let mut world = racks(&nodes);
    let wide = world.submit(gpu_spec(4, 4));
    world.settle();
    assert_eq!(world.nodes_of(wide), ["a1", "a2", "c1", "c2"]);
    let mut world = racks(&nodes);
    let wide = world.submit(together(3, 4));
    world.settle();
    let Some(WaitReason::NoSuchNode { detail }) = world.reason(wide) else { panic!("{:?}", world.reason(wide)) };
    assert_eq!(detail, "3 nodes asked in one rack, at most 2 of one (c) could take a member");
}

#[test]
fn nodes_of_no_rack_are_in_no_rack_with_others() {
    let mut world = racks(&[("x1", None), ("x2", None), ("a1", Some("a"))]);
    let (pair, one) = (world.submit(together(2, 4)), world.submit(together(1, 4)));
    world.settle();
    assert!(world.is_pending(pair) && world.is_active(one), "who asks one node asks no rack");
    let told = explain(&world.state, &pair, world.now()).unwrap();
    assert!(matches!(told.reason, Some(WaitReason::NoSuchNode { .. })), "{told:?}");
}

#[test]
fn nobody_is_stopped_where_the_gang_would_still_not_stand_in_one_rack() {
    let mut world = racks(&[("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b")), ("b2", Some("b"))]);
    let may_go = |gpus| JobSpec { preemptible: true, ..gpu_spec(1, gpus) };
    let (a1, b1) = (on(&mut world, "a1", may_go(4)), on(&mut world, "b1", may_go(4)));
    let (a2, b2) = (on(&mut world, "a2", gpu_spec(1, 4)), on(&mut world, "b2", gpu_spec(1, 4)));
    let urgent = world.submit(JobSpec { priority: 10, ..together(2, 4) });
    world.settle();
    assert_eq!([a1, b1, a2, b2].map(|run| world.stop_cause(run)), [None; 4], "two nodes would be free, in two racks");
    assert!(world.is_pending(urgent));
    world.exits(b2, 0, 0, None);
    world.settle();
    assert_eq!([a1, b1].map(|run| world.stop_cause(run)), [None, Some(StopCause::Preempted)]);
    world.exits(b1, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert_eq!(world.nodes_of(urgent), ["b1", "b2"]);
}

#[test]
fn who_has_waited_long_holds_nodes_of_one_rack() {
    let mut world = racks(&[("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b")), ("b2", Some("b"))]);
    let limited = |seconds| JobSpec {
        limits: Limits { max_duration: Millis::from_secs(seconds), ..Limits::default() },
        stop: StopPolicy { grace: Millis(0), ..StopPolicy::default() },
        ..gpu_spec(1, 4)
    };
    on(&mut world, "a1", limited(2_000));
    on(&mut world, "b1", limited(1_000));
    let wide = world.submit(together(2, 4));
    world.settle();
    world.wait(600_001);
    let small = world.submit(gpu_spec(1, 4));
    world.settle();
    assert_eq!(world.nodes_of(small), ["a2"], "rack b is kept: it is free the soonest");
    assert!(world.is_pending(wide));
}

#[test]
fn a_job_stands_on_nodes_with_its_labels_alone() {
    let mut world = World::new();
    let labelled =
        |name: &str, net: &str| NodeShape { labels: [("net".to_owned(), net.to_owned())].into(), ..gpus_shape(name, &[("A", None)]) };
    world.node("n1", labelled("n1", "eth"));
    world.node("n2", labelled("n2", "ib"));
    world.node("n3", gpus_shape("n3", &[("A", None)]));
    let wants = |net: &str| PlacementAsk { labels: [("net".to_owned(), net.to_owned())].into(), ..PlacementAsk::default() };
    let run = world.submit(JobSpec { placement: wants("ib"), ..gpu_spec(1, 1) });
    let never = world.submit(JobSpec { placement: wants("roce"), ..gpu_spec(1, 1) });
    world.settle();
    assert_eq!(world.nodes_of(run), ["n2"]);
    assert_eq!(
        world.reason(never),
        Some(WaitReason::NoSuchNode { detail: "no node has the label net=roce of placement.labels".to_owned() })
    );
}
