//! Assignments: prepare, run, stop, and absence; a function of the prefix.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::messages::{Assignment, Order};
use footplate_scheduler_core::{State, assignment, assignments};
use footplate_types::*;

fn of(world: &World, node: &str) -> Assignment {
    assignment(&world.state, &node_name(node)).unwrap()
}

#[test]
fn a_member_is_prepared_run_stopped_and_gone() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    assert_eq!((of(&world, "n1").tasks.len(), of(&world, "n1").as_of), (0, 2), "a node without work gets an empty assignment");
    let run = world.submit(spec(2, 1));
    world.settle();
    let task = of(&world, "n2").tasks[0].clone();
    assert_eq!((task.run, task.order.clone(), task.members, task.world_size, task.first_rank), (run, Order::Prepare, 2, 2, Rank(1)));
    assert!(of(&world, "n2").as_of >= task.placed_at);
    world.all_ready(run);
    world.settle();
    let Order::Run { rendezvous, peers } = of(&world, "n2").tasks[0].order.clone() else { panic!() };
    assert_eq!((rendezvous.address.as_str(), peers), ("n1.local", vec!["n1.local".to_owned(), "n2.local".to_owned()]));
    world.cancel(run, 1);
    world.settle();
    assert_eq!(of(&world, "n1").tasks[0].order, Order::Stop { cause: StopCause::Cancelled, grace: StopPolicy::DEFAULT_GRACE });
    let before = of(&world, "n2").as_of;
    world.exits(run, 0, 0, Some(StopCause::Cancelled));
    assert_eq!(of(&world, "n1").tasks, []);
    assert_eq!(of(&world, "n2").as_of, before, "what does not change for a node keeps its as_of");
    world.exits(run, 1, 0, Some(StopCause::Cancelled));
    world.settle();
    assert!(assignments(&world.state).values().all(|assignment| assignment.tasks.is_empty()));
    assert!(of(&world, "n2").as_of > task.placed_at, "absence is told past the placement");
}

#[test]
fn every_prefix_gives_the_same_assignments_to_whoever_folds_it_and_as_of_never_falls() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 1);
    let run = world.running(spec(2, 1));
    world.running(spec(1, 1));
    world.node_lost("n2");
    world.settle();
    world.exits(run, 0, 0, Some(StopCause::NodeLost));
    world.lost(run, 1);
    world.settle();
    let mut state = State::default();
    let mut last: std::collections::BTreeMap<NodeName, Assignment> = Default::default();
    for recorded in world.story.recorded() {
        footplate_es::Evolve::evolve(&mut state, recorded);
        for (node, now) in assignments(&state) {
            assert!(now.as_of <= recorded.sequence);
            if let Some(before) = last.insert(node, now.clone()) {
                assert!(before.as_of <= now.as_of);
                assert_eq!(before.as_of == now.as_of, before == now, "as_of moves exactly when something changes");
            }
        }
    }
    assert_eq!(last, assignments(&world.state));
}
