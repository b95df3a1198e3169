//! Taints: a node keeps off who does not tolerate it; it stops nothing that runs, and `why` names it.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{admit, explain};
use footplate_types::*;

fn taint(text: &str) -> Taint {
    Taint::parse(text).unwrap()
}

fn tainted(world: &mut World, node: &str, text: &str) {
    world.record(Subject::node(&node_name(node)), NodeTainted { request: None, taint: taint(text), reason: "theirs".to_owned() });
}

fn untainted(world: &mut World, node: &str, text: &str) {
    let taint = Toleration::parse(text).unwrap();
    world.record(Subject::node(&node_name(node)), NodeUntainted { request: None, taint });
}

fn tolerating(tolerations: &[&str]) -> JobSpec {
    let tolerations = tolerations.iter().map(|text| Toleration::parse(text).unwrap()).collect();
    JobSpec { placement: PlacementAsk { tolerations, ..PlacementAsk::default() }, ..spec(1, 1) }
}

fn declaring(slots: u32, text: &str) -> NodeShape {
    NodeShape { taints: [taint(text)].into(), ..slots_shape(slots) }
}

#[test]
fn a_taint_keeps_off_who_does_not_tolerate_it_and_lets_in_who_does() {
    for (tolerations, starts) in
        [(vec![], false), (vec!["dedicated=speech"], false), (vec!["dedicated"], true), (vec!["x", "dedicated=vision"], true)]
    {
        let mut world = World::new();
        world.node("n1", declaring(2, "dedicated=vision"));
        let run = world.submit(tolerating(&tolerations));
        world.settle();
        assert_eq!(world.is_active(run), starts, "{tolerations:?}");
        if !starts {
            let Some(WaitReason::NoSuchNode { detail }) = world.reason(run) else { panic!("{:?}", world.reason(run)) };
            assert_eq!(detail, "n1 has the taint dedicated=vision, which is not among placement.tolerations");
            let told = explain(&world.state, &run, world.now()).unwrap();
            assert!(told.change.contains("tolerate dedicated=vision (placement.tolerations)"), "{}", told.change);
            assert!(told.change.contains("`footplate node untaint n1 dedicated=vision`"), "{}", told.change);
        }
    }
}

#[test]
fn every_taint_of_a_node_has_to_be_tolerated() {
    let mut world = World::new();
    world.node("n1", declaring(2, "dedicated=vision"));
    tainted(&mut world, "n1", "slow");
    let run = world.submit(tolerating(&["dedicated"]));
    let both = world.submit(tolerating(&["dedicated", "slow"]));
    world.settle();
    assert!(world.is_pending(run) && world.is_active(both));
}

#[test]
fn an_operators_taint_stops_nothing_that_runs_and_holds_across_a_registration() {
    let mut world = World::new();
    world.slots("n1", 2);
    let run = world.running(spec(1, 1));
    tainted(&mut world, "n1", "broken=disk");
    let later = world.submit(spec(1, 1));
    assert!(world.settle().iter().all(|(of, _)| *of != run));
    assert!(world.is_active(run) && world.stop_cause(run).is_none());
    assert!(world.is_pending(later));
    world.register("n1", slots_shape(2), 2);
    world.settle();
    assert!(world.is_pending(later), "what an operator has said is not unsaid by the agent");
    untainted(&mut world, "n1", "broken");
    world.settle();
    assert!(world.is_active(later), "the look after it finds the node though it had found none before");
}

#[test]
fn what_the_agent_declares_stays_whatever_operators_take_off() {
    let mut world = World::new();
    world.node("n1", declaring(1, "dedicated=vision"));
    tainted(&mut world, "n1", "dedicated=speech");
    untainted(&mut world, "n1", "dedicated");
    let run = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_pending(run));
    world.node("n1", slots_shape(1));
    world.settle();
    assert!(world.is_active(run), "the agent declares it no more");
}

#[test]
fn whom_only_a_taint_keeps_off_a_free_node_is_told_so_though_others_are_in_use() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.node("n2", declaring(1, "dedicated=vision"));
    world.running(spec(1, 1));
    let run = world.submit(spec(1, 1));
    world.settle();
    assert!(matches!(world.reason(run), Some(WaitReason::Resources { .. })), "{:?}", world.reason(run));
    let told = explain(&world.state, &run, world.now()).unwrap();
    assert!(told.change.contains("tolerate dedicated=vision") && told.change.contains("untaint n2"), "{}", told.change);
}

#[test]
fn nobody_is_preempted_on_a_node_whose_taint_the_urgent_job_does_not_tolerate() {
    let mut world = World::new();
    world.slots("n1", 1);
    let low = world.running(JobSpec { preemptible: true, ..spec(1, 1) });
    tainted(&mut world, "n1", "dedicated=vision");
    let high = world.submit(JobSpec { priority: 9, ..spec(1, 1) });
    world.settle();
    assert!(world.is_pending(high) && world.stop_cause(low).is_none());
}

#[test]
fn a_job_that_no_node_without_its_taint_could_take_is_refused_at_once_and_told_which() {
    let mut world = World::new();
    world.node("n1", declaring(1, "dedicated=vision"));
    let refused = admit(&world.state, &spec(1, 1), false).unwrap_err().to_string();
    assert!(refused.contains("taint dedicated=vision") && refused.contains("placement.tolerations"), "{refused}");
    assert_eq!(admit(&world.state, &tolerating(&["dedicated"]), false), Ok(()));
    assert_eq!(admit(&world.state, &spec(1, 1), true), Ok(()));
    let many = tolerating(&vec!["t"; PlacementAsk::TAINTS_MAX + 1]);
    assert!(admit(&world.state, &many, true).unwrap_err().to_string().contains("placement.tolerations (count)"));
}
