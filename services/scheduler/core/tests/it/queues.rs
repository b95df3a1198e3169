//! The tree of queues: whose turn it is, what is lent and given back, what a quota above binds.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{Refusal, admit, can_close, can_configure, explain, outlook};
use footplate_types::*;

fn slots(most: u32) -> Quota {
    Quota { gpus: None, slots: Some(most) }
}

fn below(parent: &str) -> QueueConfigured {
    QueueConfigured { parent: Some(queue_name(parent)), ..QueueConfigured::default() }
}

fn configure(world: &mut World, name: &str, settings: QueueConfigured) {
    world.record(Subject::queue(&queue_name(name)), settings);
}

fn job(queue: &str, asked: u32) -> JobSpec {
    JobSpec { queue: queue_name(queue), ..spec(1, asked) }
}

fn loan(queue: &str, asked: u32) -> JobSpec {
    JobSpec { preemptible: true, ..job(queue, asked) }
}

fn held(world: &World, name: &str) -> u64 {
    world.state.held_below(&queue_name(name)).slots
}

#[test]
fn a_team_shares_with_teams_and_its_projects_among_themselves() {
    let mut world = World::new();
    configure(&mut world, "vision", QueueConfigured { weight: 3, ..QueueConfigured::default() });
    configure(&mut world, "speech", QueueConfigured::default());
    configure(&mut world, "cars", QueueConfigured { weight: 2, ..below("vision") });
    configure(&mut world, "birds", below("vision"));
    for queue in ["speech", "cars", "birds"] {
        for _ in 0..12 {
            world.submit(job(queue, 1));
        }
    }
    world.slots("n1", 12);
    world.settle();
    assert_eq!([held(&world, "vision"), held(&world, "speech"), held(&world, "cars"), held(&world, "birds")], [9, 3, 6, 3]);
}

#[test]
fn a_larger_priority_counts_inside_its_queue_alone() {
    let mut world = World::new();
    configure(&mut world, "a", QueueConfigured::default());
    configure(&mut world, "b", QueueConfigured::default());
    let boasting: Vec<RunId> = (0..4).map(|_| world.submit(JobSpec { priority: 1_000, ..job("a", 1) })).collect();
    let modest: Vec<RunId> = (0..2).map(|_| world.submit(job("b", 1))).collect();
    world.slots("n1", 4);
    world.settle();
    assert!(modest.iter().all(|run| world.is_active(*run)));
    assert_eq!(boasting.iter().filter(|run| world.is_active(**run)).count(), 2);
}

#[test]
fn who_is_within_its_guarantee_goes_before_who_borrows() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(3), ..QueueConfigured::default() });
    configure(&mut world, "rich", QueueConfigured { weight: 1_000, ..QueueConfigured::default() });
    let rich: Vec<RunId> = (0..4).map(|_| world.submit(loan("rich", 1))).collect();
    let own: Vec<RunId> = (0..4).map(|_| world.submit(job("own", 1))).collect();
    world.slots("n1", 4);
    world.settle();
    assert_eq!(own.iter().filter(|run| world.is_active(**run)).count(), 3);
    assert_eq!(rich.iter().filter(|run| world.is_active(**run)).count(), 1);
}

#[test]
fn what_was_borrowed_is_given_back_by_whole_gangs_and_not_taken_again() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(4), ..QueueConfigured::default() });
    configure(&mut world, "guest", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    world.slots("n1", 3);
    world.slots("n2", 3);
    let gang = world.running(JobSpec { resources: ResourceAsk { nodes: 2, ..spec(2, 2).resources }, ..loan("guest", 2) });
    let kept = world.running(job("guest", 1));
    assert_eq!(held(&world, "guest"), 5);
    let wanted = world.submit(job("own", 2));
    world.settle();
    assert_eq!(world.stop_cause(gang), Some(StopCause::Preempted), "a gang leaves whole, though half of it would do");
    assert_eq!(world.stop_cause(kept), None);
    assert_eq!(world.reason(wanted), Some(WaitReason::Preempting));
    for member in 0..2 {
        world.exits(gang, member, 0, Some(StopCause::Preempted));
    }
    world.settle();
    assert!(world.is_active(wanted));
    // It starts anew where there is room for it again, and takes nothing back.
    world.all_ready(wanted);
    world.settle();
    assert!(world.is_pending(gang) && world.stop_cause(wanted).is_none());
    assert!(matches!(world.reason(gang), Some(WaitReason::Resources { .. })), "{:?}", world.reason(gang));
}

#[test]
fn nobody_within_its_guarantee_is_stopped_for_another_queue_whatever_the_priority() {
    let mut world = World::new();
    configure(&mut world, "a", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    configure(&mut world, "b", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    world.slots("n1", 4);
    let (one, other) = (world.running(loan("a", 2)), world.running(loan("b", 2)));
    world.submit(JobSpec { priority: 9, ..job("a", 2) });
    world.submit(JobSpec { priority: 9, ..job("b", 2) });
    world.settle();
    // Each may stop its own less urgent work, and does.
    assert_eq!([world.stop_cause(one), world.stop_cause(other)], [Some(StopCause::Preempted); 2]);
    let mut world = World::new();
    configure(&mut world, "a", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    configure(&mut world, "b", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    world.slots("n1", 4);
    let (one, other) = (world.running(loan("a", 2)), world.running(job("b", 2)));
    world.submit(JobSpec { priority: 9, ..job("b", 1) });
    world.settle();
    assert_eq!([world.stop_cause(one), world.stop_cause(other)], [None; 2], "beyond its guarantee it has no claim");
}

#[test]
fn nothing_is_stopped_when_the_owner_would_not_fit_even_then() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(3), ..QueueConfigured::default() });
    world.slots("n1", 2);
    world.slots("n2", 2);
    let guests: Vec<RunId> = (0..2).map(|_| world.running(loan("default", 2))).collect();
    // Three on one node: never, with nodes of two.
    world.submit(job("own", 3));
    world.settle();
    assert!(guests.iter().all(|run| world.stop_cause(*run).is_none()));
}

#[test]
fn work_that_cannot_be_preempted_borrows_only_what_nobody_may_ask_back() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(3), ..QueueConfigured::default() });
    world.slots("n1", 4);
    let firm = world.submit(job("default", 2));
    world.settle();
    let Some(WaitReason::Quota { detail }) = world.reason(firm) else { panic!("{:?}", world.reason(firm)) };
    assert!(detail.contains("slots") && detail.contains("preemptible may borrow"), "{detail}");
    let told = explain(&world.state, &firm, world.now()).unwrap();
    assert_eq!(told.reason, world.reason(firm));
    assert!(told.change.contains("guarantee"), "{told:?}");
    assert_eq!(outlook(&world.state, &job("default", 2)), world.reason(firm));
    let (small, lent) = (world.submit(job("default", 1)), world.submit(loan("default", 3)));
    world.settle();
    assert!(world.is_active(small) && world.is_active(lent));
    // Now the owner comes, and gets all that is its own.
    let owner = world.submit(job("own", 3));
    world.settle();
    assert_eq!((world.stop_cause(lent), world.stop_cause(small)), (Some(StopCause::Preempted), None));
    world.exits(lent, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_active(owner));
}

fn gpus(most: u32) -> Quota {
    Quota { gpus: Some(most), slots: None }
}

#[test]
fn two_queues_that_lend_each_other_different_things_do_not_stop_each_other_in_turn() {
    let mut world = World::new();
    configure(&mut world, "a", QueueConfigured { guarantee: gpus(1), ..QueueConfigured::default() });
    configure(&mut world, "b", QueueConfigured { guarantee: slots(1), ..QueueConfigured::default() });
    let shape = NodeShape { slots: 4, cpus: 8, ..gpus_shape("n1", &[("A", None); 4]) };
    world.node("n1", shape);
    let with = |spec: JobSpec, cpus: u32| {
        let mut spec = JobSpec { preemptible: true, ..spec };
        spec.resources.per_node.cpus = cpus;
        spec
    };
    let gpu = |queue: &str| JobSpec { queue: queue_name(queue), ..gpu_spec(1, 1) };
    world.running(with(job("a", 1), 1));
    world.running(with(gpu("b"), 1));
    let own = world.running(with(job("b", 1), 6));
    let wanted = world.submit(with(gpu("a"), 6));
    world.settle();
    assert_eq!(world.stop_cause(own), None, "what it holds is its queue's own, and none of what is asked for");
    assert!(world.is_pending(wanted));
}

#[test]
fn what_is_guaranteed_below_a_team_is_not_taken_for_good_by_its_siblings() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { guarantee: slots(4), ..QueueConfigured::default() });
    configure(&mut world, "mine", QueueConfigured { guarantee: slots(3), ..below("team") });
    configure(&mut world, "other", below("team"));
    world.slots("n1", 4);
    let firm = world.submit(job("other", 2));
    world.settle();
    assert!(matches!(world.reason(firm), Some(WaitReason::Quota { .. })), "{:?}", world.reason(firm));
    let (small, mine) = (world.submit(job("other", 1)), world.submit(job("mine", 3)));
    world.settle();
    assert!(world.is_active(small) && world.is_active(mine));
}

#[test]
fn it_is_the_borrower_below_a_team_that_gives_back() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    configure(&mut world, "team", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    configure(&mut world, "good", QueueConfigured { guarantee: slots(2), ..below("team") });
    configure(&mut world, "guest", below("team"));
    world.slots("n1", 4);
    let guest = world.running(loan("guest", 2));
    // The younger one, which would go first if it were asked.
    let good = world.running(loan("good", 2));
    world.submit(job("own", 2));
    world.settle();
    assert_eq!((world.stop_cause(guest), world.stop_cause(good)), (Some(StopCause::Preempted), None));
}

#[test]
fn a_closed_node_and_a_guarantee_of_another_kind_keep_no_work_that_has_room_waiting() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(1), ..QueueConfigured::default() });
    for name in ["n1", "n2"] {
        world.node(name, NodeShape { slots: 3, ..gpus_shape(name, &[("A", None), ("A", None)]) });
    }
    let first =
        world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n1")], ..PlacementAsk::default() }, ..job("default", 3) });
    world.record(Subject::node(&node_name("n1")), NodeCordoned { request: None, reason: String::new() });
    let (second, gpu) = (world.submit(job("default", 2)), world.submit(gpu_spec(1, 2)));
    world.settle();
    assert!(world.is_active(first) && world.is_active(second) && world.is_active(gpu), "{:?}", world.reason(second));
    // Of the last slot there is one, and it is guaranteed.
    let third = world.submit(job("default", 1));
    world.settle();
    assert!(matches!(world.reason(third), Some(WaitReason::Quota { .. })), "{:?}", world.reason(third));
    configure(&mut world, "own", QueueConfigured { guarantee: slots(1), closed: true, ..QueueConfigured::default() });
    world.settle();
    assert!(world.is_active(third), "a closed queue asks nothing back");
}

#[test]
fn what_is_freed_for_a_preemptor_is_kept_from_a_queue_that_has_less() {
    let mut world = World::new();
    configure(&mut world, "own", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() });
    world.slots("n1", 2);
    let lent = world.running(loan("default", 2));
    let owner = world.submit(job("own", 2));
    world.settle();
    configure(&mut world, "empty", QueueConfigured { weight: 1_000, guarantee: slots(2), ..QueueConfigured::default() });
    let late = world.submit(job("empty", 2));
    world.settle();
    world.exits(lent, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_active(owner) && world.is_pending(late));
}

#[test]
fn a_quota_above_binds_all_below_together_and_is_named() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { quota: slots(3), ..QueueConfigured::default() });
    configure(&mut world, "one", below("team"));
    configure(&mut world, "two", below("team"));
    world.slots("n1", 8);
    let (first, second) = (world.submit(job("one", 2)), world.submit(job("two", 2)));
    world.settle();
    assert!(world.is_active(first) && world.is_pending(second));
    let told = explain(&world.state, &second, world.now()).unwrap();
    let Some(WaitReason::Quota { detail }) = &told.reason else { panic!("{told:?}") };
    assert!(detail.contains("queue team above it: slots: 2 of 3 in use, 2 asked"), "{detail}");
    assert!(matches!(admit(&world.state, &job("two", 4), false), Err(Refusal::OverQuota { .. })));
    // Lowered between the decision and its place in the ledger: the placement is void.
    let ruling = {
        world.exits(first, 0, 0, None);
        world.ruling()
    };
    configure(&mut world, "team", QueueConfigured { quota: slots(1), ..QueueConfigured::default() });
    world.append(ruling.decisions);
    world.settle();
    assert_eq!(held(&world, "team"), 0);
}

#[test]
fn who_holds_a_team_holds_its_projects() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { held: true, ..QueueConfigured::default() });
    configure(&mut world, "one", below("team"));
    world.slots("n1", 1);
    let run = world.submit(job("one", 1));
    world.settle();
    assert_eq!(world.reason(run), Some(WaitReason::QueueHeld));
    configure(&mut world, "team", QueueConfigured::default());
    world.settle();
    assert!(world.is_active(run));
}

#[test]
fn queues_in_a_circle_or_below_nothing_stand_at_the_top_with_their_own_settings() {
    let mut world = World::new();
    configure(&mut world, "a", QueueConfigured { quota: slots(1), ..below("b") });
    configure(&mut world, "b", below("a"));
    configure(&mut world, "lost", below("nowhere"));
    world.slots("n1", 8);
    for queue in ["a", "a", "b", "b", "lost"] {
        world.submit(job(queue, 1));
    }
    world.settle();
    assert_eq!([held(&world, "a"), held(&world, "b"), held(&world, "lost")], [1, 2, 1]);
    let long: Vec<String> = (0..12).map(|n| format!("q{n}")).collect();
    for pair in long.windows(2) {
        configure(&mut world, &pair[1], below(&pair[0]));
    }
    configure(&mut world, "q0", QueueConfigured::default());
    let run = world.submit(job("q11", 1));
    world.settle();
    assert!(world.is_active(run));
}

#[test]
fn settings_that_do_not_hold_together_are_refused_with_the_numbers() {
    let mut world = World::new();
    configure(&mut world, "team", QueueConfigured { guarantee: slots(4), quota: slots(8), ..QueueConfigured::default() });
    configure(&mut world, "one", QueueConfigured { guarantee: slots(3), ..below("team") });
    configure(&mut world, "shut", QueueConfigured { closed: true, ..QueueConfigured::default() });
    configure(&mut world, "busy", QueueConfigured::default());
    world.submit(job("busy", 1));
    let told = |name: &str, settings: QueueConfigured| can_configure(&world.state, &queue_name(name), &settings).unwrap_err().to_string();
    assert!(
        told("two", QueueConfigured { guarantee: slots(2), ..below("team") })
            .contains("team above it is guaranteed 4, of which others have 3")
    );
    assert!(told("team", QueueConfigured { guarantee: slots(2), ..QueueConfigured::default() }).contains("below it are guaranteed 3"));
    assert!(
        told("team", QueueConfigured { guarantee: slots(9), quota: slots(8), ..QueueConfigured::default() }).contains("own quota is 8")
    );
    assert!(told("team", below("one")).contains("stands below that one itself"));
    assert!(told("two", below("two")).contains("no such queue"));
    assert!(told("two", below("none")).contains("make it first"));
    assert!(told("two", below("shut")).contains("closed"));
    assert!(told("two", below("busy")).contains("1 jobs of it live"));
    let fits = QueueConfigured { guarantee: slots(1), ..below("team") };
    can_configure(&world.state, &queue_name("two"), &fits).unwrap();
    let refused = admit(&world.state, &job("team", 1), true).unwrap_err();
    assert!(matches!(&refused, Refusal::NotALeaf { below, .. } if below == "one"), "{refused}");
    world.submit(job("one", 1));
    assert!(matches!(can_close(&world.state, &queue_name("team")), Err(Refusal::QueueInUse { count: 1, .. })));
}

#[test]
fn a_tree_is_no_deeper_than_it_may_be() {
    let mut world = World::new();
    configure(&mut world, "q1", QueueConfigured::default());
    for n in 2..=8 {
        let settings = below(&format!("q{}", n - 1));
        can_configure(&world.state, &queue_name(&format!("q{n}")), &settings).unwrap();
        configure(&mut world, &format!("q{n}"), settings);
    }
    assert!(can_configure(&world.state, &queue_name("q9"), &below("q8")).is_err());
    configure(&mut world, "top", QueueConfigured::default());
    assert!(can_configure(&world.state, &queue_name("q1"), &below("top")).is_err(), "what hangs below counts too");
}
