//! Who is let in, and what is told to whoever waits.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{Refusal, admit, can_close, explain, outlook};

#[test]
fn nothing_is_refused_for_its_size_while_no_node_is_known() {
    let world = World::new();
    assert_eq!(admit(&world.state, &spec(8, 64), false), Ok(()));
}

#[test]
fn absurd_demands_are_refused_with_what_is_there() {
    let mut world = World::new();
    world.slots("n1", 2);
    let mut huge = spec(1, 1);
    huge.resources.per_node.memory_bytes = 2 << 40;
    let Err(Refusal::NeverFits { detail }) = admit(&world.state, &huge, false) else { panic!() };
    assert_eq!(detail, "the largest node (n1) has 1TiB of memory, 2TiB asked of each node");
    assert!(matches!(admit(&world.state, &spec(0, 1), false), Err(Refusal::Invalid(_))));
    assert!(matches!(admit(&world.state, &spec(0, 1), true), Err(Refusal::Invalid(_))));
    let mut overflowing = spec(1, 1);
    overflowing.resources.per_node.memory_bytes = u64::MAX;
    assert!(admit(&world.state, &overflowing, false).is_err());
    let run = world.submit(overflowing);
    world.settle();
    assert!(matches!(world.reason(run), Some(WaitReason::NoSuchNode { .. })));
}

#[test]
fn a_queue_must_be_there_and_open() {
    let mut world = World::new();
    world.queue("night", 1, None, Some(4));
    let of = |name: &str, slots: u32| JobSpec { queue: queue_name(name), ..spec(1, slots) };
    let Err(Refusal::NoSuchQueue { there, .. }) = admit(&world.state, &of("nigth", 1), false) else { panic!() };
    assert_eq!(there, "default, night");
    assert!(matches!(admit(&world.state, &of("night", 5), false), Err(Refusal::OverQuota { .. })));
    assert_eq!(admit(&world.state, &of("night", 5), true), Ok(()));
    assert_eq!(can_close(&world.state, &queue_name("night")), Ok(()));
    let closed = QueueConfigured { closed: true, ..QueueConfigured::default() };
    world.record(Subject::queue(&queue_name("night")), closed);
    assert!(matches!(admit(&world.state, &of("night", 1), true), Err(Refusal::QueueClosed { .. })));
}

#[test]
fn a_waiting_job_is_explained_with_its_place_and_what_would_have_to_change() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.running(spec(1, 2));
    let first = world.submit(spec(1, 2));
    let second = world.submit(spec(1, 1));
    world.settle();
    let told = explain(&world.state, &second, world.now()).unwrap();
    assert_eq!((told.position, told.pending), (2, 2));
    let Some(WaitReason::Resources { detail }) = told.reason else { panic!("{told:?}") };
    assert_eq!(detail, "slots: 1 free asked on 1 of 1 open nodes, 0 have them; most free: n1 with 0");
    assert!(told.change.contains("running work has to end"), "{}", told.change);
    assert_eq!(explain(&world.state, &first, world.now()).unwrap().position, 1);
    assert_eq!(
        explain(
            &world.state,
            &world.state.ended().keys().next().copied().unwrap_or(footplate_types::RunId::from_bytes([77; 16])),
            world.now()
        ),
        None
    );
}

#[test]
fn a_job_not_yet_submitted_is_told_whether_it_could_start_now() {
    let mut world = World::new();
    world.slots("n1", 2);
    assert_eq!(outlook(&world.state, &spec(1, 2)), None);
    world.running(spec(1, 1));
    assert!(matches!(outlook(&world.state, &spec(1, 2)), Some(WaitReason::Resources { .. })));
    assert!(matches!(outlook(&world.state, &spec(1, 3)), Some(WaitReason::NoSuchNode { .. })));
}
