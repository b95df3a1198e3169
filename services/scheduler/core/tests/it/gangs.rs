//! Gangs: launched whole, stopped whole, judged by the first non-success in ledger order.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_types::*;

#[test]
fn a_gang_is_launched_when_every_member_is_ready_and_not_before() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 2);
    let run = world.submit(spec(2, 2));
    world.settle();
    world.ready(run, 1);
    assert!(world.settle().is_empty());
    world.ready(run, 0);
    let said = world.settle();
    assert!(matches!(&said[..], [(_, Event::JobLaunched(fact))] if fact.rendezvous.port == 4_000), "{said:?}");
}

#[test]
fn a_gang_succeeds_when_every_member_exited_0_obeying_nothing() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.running(spec(2, 1));
    world.exits(run, 0, 0, None);
    assert!(world.settle().is_empty(), "the other member runs on");
    world.exits(run, 1, 0, None);
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).cause), (Outcome::Succeeded, Cause::Success));
}

#[test]
fn when_one_member_fails_the_others_are_stopped_and_the_first_failure_is_the_root() {
    let mut world = World::new();
    (1..=4).for_each(|n| world.slots(&format!("n{n}"), 1));
    let run = world.running(spec(4, 1));
    world.exits(run, 2, 7, None);
    let said = world.settle();
    assert!(matches!(&said[..], [(_, Event::JobStopRequested(stop))] if stop.cause == StopCause::MemberFailed), "{said:?}");
    for member in [0, 1, 3] {
        world.exits(run, member, 143, Some(StopCause::MemberFailed));
    }
    world.settle();
    let end = world.end(run);
    assert_eq!((end.outcome, end.cause), (Outcome::Failed, Cause::UserCode));
    let root = end.root.clone().unwrap();
    assert_eq!((root.rank, root.what.as_str()), (Some(Rank(2)), "exit 7"));
}

#[test]
fn a_signal_and_an_exceptions_text_stand_in_the_root_cause() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.running(spec(2, 1));
    let (subject, mut exited) = world.exit_of(run, 1, Exit::Signal(11), None);
    exited.workers[0].message = "RuntimeError: no".to_owned();
    world.record(subject, AttemptExited { members: vec![exited] });
    world.settle();
    world.exits(run, 0, 1, None);
    world.settle();
    assert_eq!(world.end(run).root.clone().unwrap().what, "signal 11: RuntimeError: no");
}

#[test]
fn exit_0_before_the_stop_is_obeyed_is_success_whatever_cancel_was_pending() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.cancel(run, 1);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::Cancelled));
    world.exits(run, 0, 0, None);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Succeeded);
}

#[test]
fn exit_0_that_obeyed_the_cancel_is_cancelled() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.cancel(run, 1);
    world.settle();
    world.exits(run, 0, 0, Some(StopCause::Cancelled));
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).request), (Outcome::Cancelled, Some(request(1))));
    assert!(world.state.answer(&run, &request(1)).unwrap().refused.is_none());
}

#[test]
fn a_cancel_that_arrives_after_the_last_exit_is_refused_and_the_outcome_stands() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.exits(run, 0, 0, None);
    world.cancel(run, 1);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Succeeded);
    assert!(world.state.answer(&run, &request(1)).unwrap().refused.is_some());
    assert_eq!(world.count(run, |event| matches!(event, Event::JobEnded(_))), 1);
}

#[test]
fn a_gang_not_ready_by_its_deadline_is_stopped_whole_and_tried_again() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.submit(spec(2, 1));
    world.settle();
    world.ready(run, 0);
    assert_eq!(world.ruling().wake_in, Some(world.policy.ready_within));
    world.wait(world.policy.ready_within.0 - 1);
    assert!(world.settle().is_empty());
    world.wait(1);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::NotReady));
    world.ready(run, 1);
    assert!(world.settle().is_empty(), "too late: a stop stands");
    world.exits(run, 0, 0, Some(StopCause::NotReady));
    world.exits(run, 1, 0, Some(StopCause::NotReady));
    world.settle();
    let job = &world.state.jobs()[&run];
    assert_eq!(job.spent(footplate_scheduler_core::Budget::Infrastructure), 1);
    assert!(world.is_pending(run));
}

#[test]
fn a_lost_node_releases_nothing_until_the_attempt_is_lost() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    world.slots("n3", 1);
    let run = world.running(spec(2, 1));
    let nodes = world.nodes_of(run);
    world.node_lost(&nodes[1]);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::NodeLost));
    world.exits(run, 0, 143, Some(StopCause::NodeLost));
    world.settle();
    assert!(world.is_active(run), "member 1 still holds its slot");
    assert_eq!(world.state.nodes()[&node_name(&nodes[1])].claims.len(), 1);
    world.lost(run, 1);
    world.settle();
    assert!(world.is_pending(run));
    let job = &world.state.jobs()[&run];
    assert_eq!(job.spent(footplate_scheduler_core::Budget::Lost), 1);
}

#[test]
fn a_gang_that_stands_wholly_on_the_lost_node_is_left_alone_and_goes_on_when_the_node_is_back() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.node_lost("n1");
    assert!(world.settle().is_empty(), "not seeing it is no reason to kill it");
    world.slots("n1", 1);
    assert!(world.settle().is_empty());
    world.exits(run, 0, 0, None);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Succeeded);
}

#[test]
fn a_node_lost_while_preparing_stops_the_rest_and_the_gang_is_placed_elsewhere() {
    let mut world = World::new();
    (1..=3).for_each(|n| world.slots(&format!("n{n}"), 1));
    let run = world.submit(spec(2, 1));
    world.settle();
    let nodes = world.nodes_of(run);
    world.ready(run, 0);
    world.node_lost(&nodes[1]);
    world.settle();
    world.exits(run, 0, 0, Some(StopCause::NodeLost));
    world.settle();
    assert_eq!(world.attempt(run), 1, "no second attempt while a member may live");
    world.lost(run, 1);
    world.settle();
    world.wait(60_000);
    world.settle();
    assert_eq!(world.attempt(run), 2);
    assert!(!world.nodes_of(run).contains(&nodes[1]));
}

#[test]
fn a_placement_that_follows_a_nodes_loss_in_the_ledger_is_void_and_costs_no_retry() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.submit(spec(1, 1));
    let ruling = world.ruling();
    let Event::JobPlaced(placed) = &ruling.decisions[0].event else { panic!("{ruling:?}") };
    let first = placed.members[0].node.to_string();
    world.node_lost(&first);
    world.append(ruling.decisions);
    assert!(world.state.nodes().values().all(|node| node.claims.is_empty()), "a void placement claims nothing");
    let orders = footplate_scheduler_core::assignments(&world.state);
    assert!(orders.values().all(|assignment| assignment.tasks.is_empty()), "and is in no assignment");
    let said = world.settle();
    assert!(matches!(&said[0].1, Event::JobRequeued(fact) if fact.cause == Cause::Void && fact.backoff == Millis(0) && fact.spent == 0));
    assert_eq!(world.attempt(run), 2);
    assert_ne!(world.nodes_of(run), vec![first]);
    assert!(world.state.jobs()[&run].spent.is_empty());
}

#[test]
fn a_placement_that_follows_a_drain_in_the_ledger_is_void_too() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.submit(spec(1, 1));
    let ruling = world.ruling();
    world.drain("n1");
    world.append(ruling.decisions);
    world.settle();
    assert!(world.is_pending(run));
    assert!(matches!(world.reason(run), Some(WaitReason::Resources { .. })));
    world.uncordon("n1");
    world.settle();
    assert_eq!(world.attempt(run), 2);
}

#[test]
fn a_drain_stops_the_gang_and_requeues_it_without_a_failure() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.drain("n1");
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::Drained));
    world.exits(run, 0, 0, Some(StopCause::Drained));
    let said = world.settle();
    assert!(said.iter().any(|(_, event)| matches!(event, Event::JobRequeued(fact) if fact.cause == Cause::Drained)));
    assert!(world.is_pending(run), "the only node is drained");
    let job = &world.state.jobs()[&run];
    assert_eq!(job.spent(footplate_scheduler_core::Budget::Infrastructure) + job.spent(footplate_scheduler_core::Budget::Lost), 0);
}

#[test]
fn a_node_that_comes_back_under_another_generation_ends_what_stands_elsewhere() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.running(spec(2, 1));
    world.register("n1", slots_shape(1), 2);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::NodeLost));
    assert_eq!(world.state.nodes()[&node_name("n1")].claims.len(), 1, "a new generation alone frees nothing");
}

#[test]
fn reports_from_another_node_or_an_older_generation_change_nothing() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.submit(spec(1, 1));
    world.settle();
    let (subject, exited) = world.exit_of(run, 0, Exit::Code(0), None);
    let other = if exited.node.as_str() == "n1" { "n2" } else { "n1" };
    let before = world.state.nodes()[&exited.node].claims.len();
    world.record(subject.clone(), AttemptExited { members: vec![MemberExited { node: node_name(other), ..exited.clone() }] });
    world.record(subject.clone(), AttemptExited { members: vec![MemberExited { epoch: Epoch(0), ..exited.clone() }] });
    let foreign = Subject::attempt(&ProjectName::parse("other").unwrap(), subject.attempt_id().unwrap());
    world.record(foreign, AttemptExited { members: vec![exited.clone()] });
    assert_eq!(world.state.nodes()[&exited.node].claims.len(), before);
    assert!(world.is_active(run));
}

#[test]
fn the_first_end_of_a_member_stands() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.running(spec(2, 1));
    world.exits(run, 0, 0, None);
    world.lost(run, 0);
    world.exits(run, 0, 9, None);
    world.exits(run, 1, 0, None);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Succeeded);
}

#[test]
fn a_platform_that_is_shut_down_requeues_its_work() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.exits(run, 0, 0, Some(StopCause::Shutdown));
    let said = world.settle();
    assert!(said.iter().any(|(_, event)| matches!(event, Event::JobRequeued(fact) if fact.cause == Cause::Drained)), "{said:?}");
}

#[test]
fn a_member_that_is_done_frees_its_slot_at_once_for_others_while_its_gang_runs_on() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let gang = world.running(spec(2, 1));
    let waiting = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_pending(waiting));
    world.exits(gang, 0, 0, None);
    world.settle();
    assert!(world.is_active(waiting) && world.is_active(gang));
}

#[test]
fn the_first_stop_stands_and_only_a_cancel_replaces_it() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    let stop = |cause| JobStopRequested { attempt: AttemptNumber(1), cause, grace: Millis(1), request: None, message: String::new() };
    let job = Subject::job(&project(), run);
    world.record(job.clone(), stop(StopCause::Preempted));
    world.record(job.clone(), stop(StopCause::Drained));
    assert_eq!(world.stop_cause(run), Some(StopCause::Preempted));
    world.record(job.clone(), stop(StopCause::Cancelled));
    world.record(job, stop(StopCause::TimedOut));
    assert_eq!(world.stop_cause(run), Some(StopCause::Cancelled));
}
