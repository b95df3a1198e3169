//! Jobs that come after others: every condition with every end, in whatever order events come.

use crate::world::*;
use footplate_es::{Evolve, Project};
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Refusal, State, can_follow, explain, order, outlook_after};
use footplate_types::*;
use std::collections::BTreeSet;

pub fn after(named: &[(RunId, AfterWhen)]) -> JobSpec {
    JobSpec { after: named.iter().map(|(run, when)| AfterJob { run: *run, when: *when }).collect(), ..spec(1, 1) }
}

const WHENS: [AfterWhen; 3] = [AfterWhen::Success, AfterWhen::Failure, AfterWhen::Any];
const OUTCOMES: [Outcome; 3] = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled];

/// Ends a job that runs.
fn ends(world: &mut World, run: RunId, outcome: Outcome) {
    match outcome {
        Outcome::Succeeded => world.exits(run, 0, 0, None),
        Outcome::Failed => world.exits(run, 0, 1, None),
        Outcome::Cancelled => {
            world.cancel(run, 9);
            world.settle();
            world.exits(run, 0, 143, Some(StopCause::Cancelled));
        }
    }
    world.settle();
    assert_eq!(world.end(run).outcome, outcome);
}

fn with_room() -> World {
    let mut world = World::new();
    world.slots("n1", 8);
    world
}

/// A job that keeps the world's one slot, and one that runs elsewhere, where nothing else will.
fn two_of_which_one_leaves_no_room(world: &mut World) -> (RunId, RunId) {
    let blocker = world.running(spec(1, 1));
    world.slots("n2", 1);
    let first = world.running(spec(1, 1));
    world.record(Subject::node(&node_name("n2")), NodeCordoned { request: None, reason: String::new() });
    (blocker, first)
}

fn is_met(when: AfterWhen, outcome: Outcome) -> bool {
    matches!((when, outcome), (AfterWhen::Any, _) | (AfterWhen::Success, Outcome::Succeeded) | (AfterWhen::Failure, Outcome::Failed))
}

#[test]
fn a_job_starts_when_the_end_that_it_waits_for_has_come_and_is_over_when_it_never_can() {
    for when in WHENS {
        for outcome in OUTCOMES {
            for submitted_first in [true, false] {
                let case = format!("{when} of what {outcome:?}, submitted before that: {submitted_first}");
                let mut world = with_room();
                let first = world.running(spec(1, 1));
                let mut second = None;
                if submitted_first {
                    second = Some(world.submit(after(&[(first, when)])));
                    world.settle();
                    assert!(world.is_pending(second.unwrap()), "{case}");
                }
                ends(&mut world, first, outcome);
                let second = second.unwrap_or_else(|| world.submit(after(&[(first, when)])));
                world.settle();
                if is_met(when, outcome) {
                    assert!(world.is_active(second), "{case}");
                    continue;
                }
                let end = world.end(second);
                assert_eq!((end.outcome, end.cause, end.attempt.0), (Outcome::Cancelled, Cause::Dependency, 0), "{case}");
                assert!(end.message.contains(&first.to_string()) && end.message.contains("(job)"), "{case}: {}", end.message);
                assert!(world.settle().is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn what_it_waits_for_is_told_once_and_why_tells_how_that_stands() {
    let mut world = with_room();
    let (first, other) = (world.running(spec(1, 1)), world.submit(JobSpec { name: DisplayName::parse("wide").unwrap(), ..spec(1, 9) }));
    let run = world.submit(after(&[(first, AfterWhen::Success), (other, AfterWhen::Any)]));
    world.settle();
    let Some(WaitReason::Dependencies { detail }) = world.reason(run) else { panic!("{:?}", world.reason(run)) };
    assert_eq!(detail, format!("success of run {first} (job); end of run {other} (wide)"));
    world.new_term();
    assert!(world.settle().is_empty());
    let told = |world: &World| {
        let why = explain(&world.state, &run, world.now()).unwrap();
        let Some(WaitReason::Dependencies { detail }) = why.reason else { panic!("{:?}", why.reason) };
        (detail, why.position, why.change)
    };
    let (detail, position, change) = told(&world);
    assert_eq!(detail, format!("success of run {first} (job), which runs; end of run {other} (wide), which is in line"));
    assert_eq!((position, change.as_str()), (0, "the runs that it waits for have to end so; only then it gets in line"));
    ends(&mut world, first, Outcome::Succeeded);
    assert_eq!(told(&world).0, format!("end of run {other} (wide), which is in line; 1 of 2 have come"));
    assert_eq!(world.count(run, |event| matches!(event, Event::JobWaiting(_))), 1);
    assert_eq!(explain(&world.state, &other, world.now()).unwrap().pending, 1, "who waits for others is not in line");
    world.cancel(other, 1);
    world.settle();
    assert!(world.is_active(run));
}

#[test]
fn both_ends_in_one_look_start_it_once_and_a_repeated_event_changes_nothing() {
    let mut world = with_room();
    let (first, second) = (world.running(spec(1, 1)), world.running(spec(1, 1)));
    let run = world.submit(after(&[(first, AfterWhen::Success), (second, AfterWhen::Failure)]));
    world.settle();
    world.exits(first, 0, 0, None);
    world.exits(second, 0, 1, None);
    world.settle();
    assert_eq!((world.attempt(run), world.is_active(run)), (1, true));
    let before = (world.state.jobs().len(), world.state.ended().len());
    let again: Vec<_> =
        world.story.recorded().iter().filter(|recorded| matches!(recorded.envelope.event, Event::JobSubmitted(_))).cloned().collect();
    for recorded in again {
        world.record(recorded.envelope.subject, recorded.envelope.event);
    }
    assert!(world.settle().is_empty());
    assert_eq!((world.state.jobs().len(), world.state.ended().len()), before);
}

#[test]
fn one_condition_that_never_can_be_met_ends_it_though_others_are_open() {
    let mut world = with_room();
    let (first, second) = (world.running(spec(1, 1)), world.running(spec(1, 1)));
    let run = world.submit(after(&[(first, AfterWhen::Success), (second, AfterWhen::Success)]));
    world.settle();
    ends(&mut world, second, Outcome::Failed);
    assert_eq!(world.end(run).cause, Cause::Dependency);
    ends(&mut world, first, Outcome::Succeeded);
    assert_eq!(world.count(run, |event| matches!(event, Event::JobEnded(_))), 1);
}

#[test]
fn a_failure_goes_down_the_whole_graph_and_stops_where_any_end_will_do() {
    let mut world = with_room();
    let first = world.running(spec(1, 1));
    let second = world.submit(after(&[(first, AfterWhen::Success)]));
    let third = world.submit(after(&[(second, AfterWhen::Success)]));
    let mender = world.submit(after(&[(second, AfterWhen::Failure)]));
    let sweeper = world.submit(after(&[(third, AfterWhen::Any)]));
    let alarm = world.submit(after(&[(first, AfterWhen::Failure)]));
    world.settle();
    ends(&mut world, first, Outcome::Failed);
    assert!(
        world.end(third).message.contains(&format!("success of run {second} (job), which was cancelled")),
        "{}",
        world.end(third).message
    );
    assert_eq!(world.end(mender).cause, Cause::Dependency, "nothing of the second failed: it was not started");
    assert!(world.is_active(sweeper) && world.is_active(alarm));
}

#[test]
fn one_look_ends_no_more_than_it_may_and_the_next_goes_on() {
    let mut world = with_room();
    world.policy.decisions_max = 4;
    let first = world.running(spec(1, 1));
    let runs: Vec<RunId> = (0..10).map(|_| world.submit(after(&[(first, AfterWhen::Success)]))).collect();
    let ruling = world.ruling();
    assert_eq!(ruling.decisions.len(), 4);
    world.append(ruling.decisions);
    world.settle();
    assert!(runs.iter().all(|run| world.reason(*run).is_some()));
    world.exits(first, 0, 1, None);
    for expected in [1, 4, 4, 2, 0] {
        let ruling = world.ruling();
        assert_eq!(ruling.decisions.len(), expected);
        world.append(ruling.decisions);
    }
    assert!(runs.iter().all(|run| world.end(*run).cause == Cause::Dependency));
}

#[test]
fn its_limit_of_waiting_begins_when_it_gets_in_line_and_its_place_is_that_of_its_submission() {
    let mut world = World::new();
    world.slots("n1", 1);
    let (blocker, first) = two_of_which_one_leaves_no_room(&mut world);
    let limits = Limits { max_pending: Millis(5_000), ..Limits::default() };
    let limited = world.submit(JobSpec { limits, priority: -1, ..after(&[(first, AfterWhen::Success)]) });
    let early = world.submit(after(&[(first, AfterWhen::Success)]));
    let late = world.submit(spec(1, 1));
    world.settle();
    world.wait(60_000);
    assert!(world.settle().is_empty());
    ends(&mut world, first, Outcome::Succeeded);
    ends(&mut world, blocker, Outcome::Succeeded);
    assert!(world.is_active(early) && world.is_pending(late), "the older submission goes first");
    world.wait(4_999);
    world.settle();
    assert!(world.is_pending(limited));
    world.wait(1);
    world.settle();
    assert_eq!(world.end(limited).cause, Cause::PendingTooLong);
}

#[test]
fn it_is_cancelled_held_released_and_given_another_priority_as_any_other() {
    let mut world = World::new();
    world.slots("n1", 1);
    let (blocker, first) = two_of_which_one_leaves_no_room(&mut world);
    let [cancelled, held, raised] = [(); 3].map(|()| world.submit(after(&[(first, AfterWhen::Success)])));
    let heir = world.submit(after(&[(cancelled, AfterWhen::Any)]));
    world.settle();
    let asks = |run| Subject::job_request(&project(), run);
    world.cancel(cancelled, 1);
    world.record(asks(held), JobHoldRequested { request: request(2), reason: String::new() });
    world.record(asks(raised), JobReprioritizeRequested { request: request(3), priority: 5 });
    world.settle();
    assert_eq!((world.end(cancelled).cause, world.end(cancelled).message.as_str()), (Cause::Cancelled, "not needed"));
    assert_eq!((world.state.jobs()[&raised].priority, world.reason(held)), (5, Some(WaitReason::Held)));
    assert!(explain(&world.state, &held, world.now()).unwrap().change.contains("job release"));
    ends(&mut world, first, Outcome::Succeeded);
    ends(&mut world, blocker, Outcome::Succeeded);
    assert!(world.is_active(raised) && world.is_pending(heir));
    world.all_ready(raised);
    world.settle();
    ends(&mut world, raised, Outcome::Succeeded);
    assert!(world.is_active(heir) && world.reason(held) == Some(WaitReason::Held), "held it is, whatever ends");
    world.record(asks(held), JobReleaseRequested { request: request(4) });
    world.all_ready(heir);
    world.settle();
    ends(&mut world, heir, Outcome::Succeeded);
    assert!(world.is_active(held));
}

#[test]
fn one_that_is_released_while_it_waits_is_told_again_for_what() {
    let mut world = with_room();
    let first = world.running(spec(1, 1));
    let run = world.submit(after(&[(first, AfterWhen::Success)]));
    let asks = Subject::job_request(&project(), run);
    world.record(asks.clone(), JobHoldRequested { request: request(1), reason: String::new() });
    world.settle();
    assert_eq!(world.reason(run), Some(WaitReason::Held));
    world.record(asks, JobReleaseRequested { request: request(2) });
    world.settle();
    assert!(matches!(world.reason(run), Some(WaitReason::Dependencies { .. })));
}

#[test]
fn a_job_that_names_no_job_of_its_project_or_itself_is_over_at_once() {
    let mut world = with_room();
    let foreign = RunId::from_bytes([0xf0; 16]);
    let other = ProjectName::parse("other").unwrap();
    world.record(Subject::job(&other, foreign), JobSubmitted { spec: spec(1, 1), body: Digest::of(b"body") });
    let itself = RunId::from_bytes([0xf1; 16]);
    let fact = JobSubmitted { spec: after(&[(itself, AfterWhen::Any)]), body: Digest::of(b"body") };
    world.record(Subject::job(&project(), itself), fact);
    let unknown = world.submit(after(&[(RunId::from_bytes([0xf2; 16]), AfterWhen::Any)]));
    let stranger = world.submit(after(&[(foreign, AfterWhen::Any)]));
    world.settle();
    for run in [itself, unknown, stranger] {
        assert_eq!(world.end(run).cause, Cause::Dependency);
        assert!(world.end(run).message.contains("no other job of this project"), "{}", world.end(run).message);
    }
}

#[test]
fn a_submission_that_comes_before_the_one_it_names_waits_for_it_all_the_same() {
    let mut world = with_room();
    let later = RunId::from_bytes([0xf3; 16]);
    let run = world.submit(after(&[(later, AfterWhen::Success)]));
    world.record(Subject::job(&project(), later), JobSubmitted { spec: spec(1, 1), body: Digest::of(b"body") });
    world.settle();
    assert!(world.is_pending(run) && world.is_active(later));
    world.all_ready(later);
    world.settle();
    ends(&mut world, later, Outcome::Succeeded);
    assert!(world.is_active(run));
}

#[test]
fn a_retry_of_what_it_waits_for_is_no_end_and_its_own_retries_wait_for_nobody() {
    let mut world = with_room();
    let retry = RetryPolicy { user_code: 1, backoff: Millis(0), backoff_max: Millis(0), ..RetryPolicy::default() };
    let first = world.running(JobSpec { retry: retry.clone(), ..spec(1, 1) });
    let run = world.submit(JobSpec { retry, ..after(&[(first, AfterWhen::Success)]) });
    world.settle();
    world.exits(first, 0, 1, None);
    world.settle();
    assert!(world.is_pending(run) && world.attempt(first) == 2);
    world.all_ready(first);
    world.settle();
    ends(&mut world, first, Outcome::Succeeded);
    world.all_ready(run);
    world.settle();
    world.exits(run, 0, 1, None);
    world.settle();
    assert_eq!((world.attempt(run), world.is_active(run)), (2, true));
}

#[test]
fn a_fold_from_the_start_stands_where_the_living_state_does() {
    let mut world = with_room();
    let first = world.running(spec(1, 1));
    let runs = WHENS.map(|when| world.submit(after(&[(first, when)])));
    world.settle();
    let replayed = |world: &World| {
        let mut again = State::default();
        world.story.recorded().iter().for_each(|recorded| again.evolve(recorded));
        again.fingerprint()
    };
    assert_eq!(replayed(&world), world.state.fingerprint());
    ends(&mut world, first, Outcome::Failed);
    assert_eq!(replayed(&world), world.state.fingerprint());
    assert!(runs.iter().all(|run| !world.state.waits_for_others(run)));
}

#[test]
fn a_submission_names_jobs_of_its_project_or_of_the_same_submission() {
    let mut world = with_room();
    let (living, over) = (world.running(spec(1, 1)), world.running(spec(1, 1)));
    ends(&mut world, over, Outcome::Failed);
    let beside = RunId::from_bytes([0xf4; 16]);
    let asked = |named: &[(RunId, AfterWhen)], project: &ProjectName, beside: &[RunId]| {
        can_follow(&world.state, project, &after(named), &beside.iter().copied().collect::<BTreeSet<_>>())
    };
    let (ours, any) = (project(), AfterWhen::Any);
    assert_eq!(asked(&[(living, any), (over, any), (beside, any)], &ours, &[beside]), Ok(()));
    let refused = asked(&[(living, any), (beside, any)], &ours, &[]).unwrap_err();
    assert_eq!(refused, Refusal::NoSuchRun { run: beside, project: ours.clone() });
    assert!(refused.to_string().contains(&beside.to_string()));
    assert!(asked(&[(living, any)], &ProjectName::parse("other").unwrap(), &[]).is_err());
    let told = |named: &[(RunId, AfterWhen)]| match outlook_after(&world.state, &ours, &after(named)) {
        Some(WaitReason::Dependencies { detail }) => detail,
        other => format!("{other:?}"),
    };
    assert_eq!(told(&[(over, AfterWhen::Failure)]), "None");
    assert_eq!(told(&[(living, AfterWhen::Success)]), format!("success of run {living} (job)"));
    assert!(told(&[(living, any), (over, AfterWhen::Success)]).ends_with("which can never come: it failed"));
}

#[test]
fn the_order_puts_each_behind_those_it_names_and_a_circle_is_told_whole() {
    assert_eq!(order(&[vec![2], vec![], vec![1]]), Ok(vec![1, 2, 0]));
    assert_eq!(order(&[]), Ok(vec![]));
    assert_eq!(order(&[vec![0]]), Err(vec![0]));
    assert_eq!(order(&[vec![1], vec![2], vec![3], vec![1]]), Err(vec![1, 2, 3]));
    assert_eq!(order(&[vec![7]]), Err(vec![0, 7]), "what is not there comes never");
}
