//! Where and in which order: priority, share, age; packing, islands, kinds, pools.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_types::*;

#[test]
fn a_larger_priority_goes_first_then_the_older_job() {
    let mut world = World::new();
    let (old, young) = (world.submit(spec(1, 1)), world.submit(spec(1, 1)));
    let urgent = world.submit(JobSpec { priority: 1, ..spec(1, 1) });
    world.slots("n1", 2);
    world.settle();
    assert!(world.is_active(urgent) && world.is_active(old) && world.is_pending(young));
}

#[test]
fn queues_of_equal_priority_share_by_weight() {
    let mut world = World::new();
    world.queue("a", 3, None, None);
    world.queue("b", 1, None, None);
    for _ in 0..8 {
        world.submit(JobSpec { queue: queue_name("a"), ..spec(1, 1) });
    }
    for _ in 0..8 {
        world.submit(JobSpec { queue: queue_name("b"), ..spec(1, 1) });
    }
    world.slots("n1", 8);
    world.settle();
    let held = |name: &str| world.state.queue(&queue_name(name)).holding.slots;
    assert_eq!((held("a"), held("b")), (6, 2));
}

#[test]
fn the_tightest_node_that_fits_is_taken() {
    let mut world = World::new();
    world.slots("big", 8);
    world.slots("small", 2);
    let run = world.submit(spec(1, 2));
    world.settle();
    assert_eq!(world.nodes_of(run), ["small"]);
}

#[test]
fn gpus_of_one_nvlink_island_are_preferred() {
    let mut world = World::new();
    world.node("flat", gpus_shape("flat", &[("A", None), ("A", None)]));
    let islands = [("A", Some(0)), ("A", Some(1)), ("A", Some(0)), ("A", Some(1))];
    world.node("linked", gpus_shape("linked", &islands));
    let run = world.submit(gpu_spec(1, 2));
    world.settle();
    let placement = world.state.jobs()[&run].attempt().unwrap().members[0].placement.clone();
    let gpus: Vec<&str> = placement.gpus.iter().map(GpuUuid::as_str).collect();
    assert_eq!(gpus, ["GPU-linked-0", "GPU-linked-2"]);
}

#[test]
fn a_single_gpu_does_not_break_the_larger_island() {
    let mut world = World::new();
    world.node("n1", gpus_shape("n1", &[("A", Some(0)), ("A", Some(0)), ("A", Some(1))]));
    let run = world.submit(gpu_spec(1, 1));
    world.settle();
    let placement = &world.state.jobs()[&run].attempt().unwrap().members[0].placement;
    assert_eq!(placement.gpus[0].as_str(), "GPU-n1-2");
}

#[test]
fn kind_memory_pool_pins_and_exclusions_are_heeded() {
    let mut world = World::new();
    let pooled = |name: &str, model: &str, pool: &str| NodeShape {
        pool: Some(pool.to_owned()),
        ..gpus_shape(name, &[(model, None), (model, None)])
    };
    world.node("n1", pooled("n1", "A", "red"));
    world.node("n2", pooled("n2", "B", "red"));
    world.node("n3", pooled("n3", "B", "blue"));
    world.node("n4", pooled("n4", "B", "blue"));
    let mut by_model = gpu_spec(1, 2);
    by_model.resources.per_node.gpu_models = vec![GpuModel::parse("B").unwrap()];
    by_model.placement.pool = Some("red".to_owned());
    let mut by_pin = gpu_spec(1, 1);
    by_pin.placement.nodes = vec![node_name("n4")];
    let mut by_exclusion = gpu_spec(1, 2);
    by_exclusion.placement.exclude = vec![node_name("n1")];
    let runs = [world.submit(by_model), world.submit(by_pin), world.submit(by_exclusion)];
    world.settle();
    assert_eq!(runs.map(|run| world.nodes_of(run).join(",")), ["n2", "n4", "n3"]);
    let mut too_much = gpu_spec(1, 1);
    too_much.resources.per_node.gpu_memory_bytes = 81 << 30;
    let run = world.submit(too_much);
    world.settle();
    assert!(matches!(world.reason(run), Some(WaitReason::NoSuchNode { .. })));
}

#[test]
fn cpus_and_memory_are_claimed_with_the_units() {
    let mut world = World::new();
    world.node("n1", NodeShape { cpus: 10, memory_bytes: 100, ..slots_shape(4) });
    let mut asks = spec(1, 1);
    asks.resources.per_node.cpus = 6;
    asks.resources.per_node.memory_bytes = 10;
    let first = world.submit(asks.clone());
    let second = world.submit(asks.clone());
    asks.resources.per_node.cpus = 4;
    asks.resources.per_node.memory_bytes = 90;
    let third = world.submit(asks);
    world.settle();
    assert!(world.is_active(first) && world.is_pending(second) && world.is_active(third));
}

#[test]
fn an_unhealthy_gpu_is_not_given_and_one_that_fails_lowers_the_capacity_at_once() {
    let mut world = World::new();
    world.node("n1", gpus_shape("n1", &[("A", None), ("A", None)]));
    let change = |healthy| NodeHealthChanged { gpu: Some(GpuUuid::parse("GPU-n1-0").unwrap()), healthy, reason: "Xid 79".to_owned() };
    world.record(Subject::node(&node_name("n1")), change(false));
    let run = world.submit(gpu_spec(1, 2));
    let one = world.submit(gpu_spec(1, 1));
    world.settle();
    assert!(world.is_pending(run) && world.is_active(one));
    world.exits(one, 0, 0, None);
    world.record(Subject::node(&node_name("n1")), change(true));
    world.settle();
    assert!(world.is_active(run));
}

#[test]
fn a_cordoned_or_unhealthy_node_takes_no_new_work_and_what_runs_goes_on() {
    let mut world = World::new();
    world.slots("n1", 2);
    let first = world.running(spec(1, 1));
    world.record(Subject::node(&node_name("n1")), NodeCordoned { request: None, reason: "look".to_owned() });
    let second = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_active(first) && world.stop_cause(first).is_none() && world.is_pending(second));
    let Some(WaitReason::Resources { detail }) = world.reason(second) else { panic!("{:?}", world.reason(second)) };
    assert_eq!(detail, "1 asked, and no open node could take a member; n1 is cordoned (look)");
    let change = footplate_scheduler_core::explain(&world.state, &second, world.now()).unwrap().change;
    assert!(change.contains("`footplate node uncordon n1`") && !change.contains("work has to end"), "{change}");
    world.uncordon("n1");
    world.settle();
    assert!(world.is_active(second));
}

#[test]
fn use_never_goes_above_the_slots_of_a_node_that_shrank() {
    let mut world = World::new();
    world.slots("n1", 2);
    let first = world.running(spec(1, 1));
    let second = world.running(spec(1, 1));
    world.exits(first, 0, 0, None);
    world.slots("n1", 1);
    let third = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_pending(third), "slot 1 is still held, slot 0 is all there is");
    world.exits(second, 0, 0, None);
    world.settle();
    assert!(world.is_active(third));
}

#[test]
fn a_job_that_cannot_start_does_not_hold_back_one_that_can_until_its_patience_is_over() {
    let mut world = World::new();
    world.slots("n1", 2);
    let runner = world.running(spec(1, 1));
    let large = world.submit(spec(1, 2));
    world.settle();
    let small = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_active(small) && world.is_pending(large));
    world.wait(world.policy.patience.0);
    world.exits(runner, 0, 0, None);
    let next = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_pending(next), "the node is kept free for the large one");
    world.exits(small, 0, 0, None);
    world.settle();
    assert!(world.is_active(large) && world.is_pending(next));
}

#[test]
fn ranks_follow_the_racks() {
    let mut world = World::new();
    for (name, rack) in [("a", "r2"), ("b", "r1"), ("c", "r2"), ("d", "r1")] {
        world.node(name, NodeShape { rack: Some(rack.to_owned()), ..slots_shape(1) });
    }
    let run = world.submit(spec(4, 1));
    world.settle();
    assert_eq!(world.nodes_of(run), ["b", "d", "a", "c"]);
}

#[test]
fn a_placement_records_what_it_was_decided_upon() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.submit(spec(1, 1));
    let view = world.state.position();
    let said = world.settle();
    let Event::JobPlaced(placed) = &said[0].1 else { panic!("{said:?}") };
    assert_eq!(placed.view.sequence, view);
    assert_eq!(placed.view.policy, world.policy.name);
}
