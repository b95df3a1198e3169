//! What clients ask of a job, in every state that it can be in.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::Holding;

#[test]
fn a_pending_job_is_cancelled_at_once() {
    let mut world = World::new();
    let run = world.submit(spec(1, 1));
    world.settle();
    world.cancel(run, 1);
    world.settle();
    let end = world.end(run);
    assert_eq!((end.outcome, end.attempt.0, end.message.as_str()), (Outcome::Cancelled, 0, "not needed"));
    assert_eq!(world.state.queue(&queue_name("default")).living, 0);
}

#[test]
fn a_preparing_job_is_cancelled_once_its_members_are_gone() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.submit(spec(2, 1));
    world.settle();
    world.all_ready(run);
    world.cancel(run, 1);
    let said = world.settle();
    assert!(!said.iter().any(|(_, event)| matches!(event, Event::JobLaunched(_))), "a cancelled gang is not launched");
    world.exits(run, 0, 0, Some(StopCause::Cancelled));
    world.settle();
    assert!(world.is_active(run), "cancelled appears after the last process is gone");
    world.exits(run, 1, 0, Some(StopCause::Cancelled));
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Cancelled);
}

#[test]
fn a_cancel_during_a_preemption_wins_over_the_requeue() {
    let mut world = World::new();
    world.slots("n1", 1);
    let low = world.running(JobSpec { preemptible: true, ..spec(1, 1) });
    let high = world.submit(JobSpec { priority: 10, ..spec(1, 1) });
    world.settle();
    assert_eq!(world.stop_cause(low), Some(StopCause::Preempted));
    world.cancel(low, 1);
    world.settle();
    assert_eq!(world.stop_cause(low), Some(StopCause::Cancelled));
    world.exits(low, 0, 0, Some(StopCause::Preempted));
    world.settle();
    assert_eq!(world.end(low).outcome, Outcome::Cancelled);
    assert_eq!(world.count(low, |event| matches!(event, Event::JobEnded(_))), 1);
    assert!(world.is_active(high));
}

#[test]
fn a_cancel_between_the_last_exit_and_the_requeue_lets_no_later_attempt_follow() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(JobSpec { retry: RetryPolicy { user_code: 3, ..RetryPolicy::default() }, ..spec(1, 1) });
    world.exits(run, 0, 1, None);
    world.cancel(run, 1);
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).attempt.0), (Outcome::Cancelled, 1));
    assert!(world.state.answer(&run, &request(1)).unwrap().refused.is_none());
}

#[test]
fn a_cancel_while_it_waits_for_its_back_off_ends_it() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.not_started(run, 0, "no python");
    world.settle();
    assert_eq!(world.reason(run), Some(WaitReason::Backoff));
    world.cancel(run, 1);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Cancelled);
}

#[test]
fn a_cancel_survives_a_new_leader() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.cancel(run, 1);
    world.new_term();
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::Cancelled));
    world.new_term();
    assert!(world.settle().is_empty(), "said once");
    world.exits(run, 0, 143, Some(StopCause::Cancelled));
    world.new_term();
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Cancelled);
}

#[test]
fn a_second_cancel_is_answered_too_and_stops_nothing_twice() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.cancel(run, 1);
    world.settle();
    let before = world.state.nodes()[&node_name("n1")].assigned_at;
    world.cancel(run, 2);
    world.cancel(run, 2);
    world.settle();
    assert!(world.state.answer(&run, &request(2)).unwrap().refused.is_none());
    assert_eq!(world.state.nodes()[&node_name("n1")].assigned_at, before, "the assignment says what it said");
    world.exits(run, 0, 143, Some(StopCause::Cancelled));
    world.settle();
    assert_eq!(world.end(run).request, Some(request(1)));
}

#[test]
fn a_held_job_does_not_start_until_it_is_released() {
    let mut world = World::new();
    let run = world.submit(spec(1, 1));
    let requests = Subject::job_request(&project(), run);
    world.record(requests.clone(), JobHoldRequested { request: request(1), reason: String::new() });
    world.settle();
    world.slots("n1", 1);
    world.settle();
    assert!(world.is_pending(run));
    assert_eq!(world.reason(run), Some(WaitReason::Held));
    world.record(requests, JobReleaseRequested { request: request(2) });
    world.settle();
    assert!(world.is_active(run));
}

#[test]
fn a_placed_job_cannot_be_held_and_is_told_what_to_do() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.record(Subject::job_request(&project(), run), JobHoldRequested { request: request(1), reason: String::new() });
    world.settle();
    let refused = world.state.answer(&run, &request(1)).unwrap().refused.clone().unwrap();
    assert!(refused.contains("cancel it instead"), "{refused}");
    assert!(world.is_active(run));
}

#[test]
fn another_priority_changes_the_order() {
    let mut world = World::new();
    let first = world.submit(spec(1, 1));
    let second = world.submit(spec(1, 1));
    world.record(Subject::job_request(&project(), second), JobReprioritizeRequested { request: request(1), priority: 5 });
    world.settle();
    world.slots("n1", 1);
    world.settle();
    assert!(world.is_active(second) && world.is_pending(first));
    let absurd = JobReprioritizeRequested { request: request(2), priority: i32::MIN };
    world.record(Subject::job_request(&project(), first), absurd);
    world.settle();
    assert!(world.state.answer(&first, &request(2)).unwrap().refused.is_some());
}

#[test]
fn requests_about_a_job_of_another_project_or_an_unknown_one_change_nothing() {
    let mut world = World::new();
    let run = world.submit(spec(1, 1));
    world.settle();
    let other = footplate_types::ProjectName::parse("other").unwrap();
    world.record(Subject::job_request(&other, run), JobCancelRequested { request: request(1), reason: String::new() });
    let unknown = footplate_types::RunId::from_bytes([99; 16]);
    world.record(Subject::job_request(&project(), unknown), JobCancelRequested { request: request(2), reason: String::new() });
    assert!(world.settle().is_empty());
    assert!(world.is_pending(run));
}

#[test]
fn a_program_that_fails_by_itself_while_a_cancel_is_under_way_has_failed() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.cancel(run, 1);
    world.settle();
    world.exits(run, 0, 3, None);
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).cause), (Outcome::Failed, Cause::UserCode));
}

#[test]
fn a_lost_node_under_a_cancel_ends_as_cancelled() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.cancel(run, 1);
    world.node_lost("n1");
    world.settle();
    world.lost(run, 0);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Cancelled);
    assert_eq!(world.state.queue(&queue_name("default")).holding, Holding::default());
}
