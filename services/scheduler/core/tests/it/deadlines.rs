//! Deadlines: whose latest start is near goes first in its queue among equals, and what has passed is told, or ends the job.

use crate::world::*;
use footplate_events::Event;
use footplate_events::facts::*;
use footplate_scheduler_core::{Urgency, admit, explain};
use footplate_types::*;

const HOUR: u64 = 3_600_000;

/// The time of day: the term began one second after the epoch, when the leader's clock stood at one second too.
fn clock(world: &World) -> Timestamp {
    Timestamp::from_millis(world.elapsed as i64)
}

/// A job of one slot that is to be over `within` from now on and takes `hours` at most.
fn due(world: &World, within: u64, hours: u64) -> JobSpec {
    let deadline = Some(clock(world).plus_millis(within));
    JobSpec { limits: Limits { max_duration: Millis(hours * HOUR), deadline, ..Limits::default() }, ..spec(1, 1) }
}

fn ends(mut spec: JobSpec) -> JobSpec {
    spec.limits.deadline_missed = DeadlineMissed::End;
    spec
}

/// A world with one slot that is in use, and whose job it is.
fn busy() -> (World, RunId) {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    (world, run)
}

fn urgency(world: &World, run: RunId) -> Urgency {
    world.state.jobs()[&run].urgency
}

#[test]
fn whose_latest_start_is_near_goes_before_older_jobs_of_its_priority_and_never_before_a_larger_one() {
    let (mut world, runs) = busy();
    let high = world.submit(JobSpec { priority: 1, ..spec(1, 1) });
    let older = world.submit(spec(1, 1));
    let urgent = world.submit(due(&world, 4 * HOUR, 2));
    world.settle();
    assert_eq!(urgency(&world, urgent), Urgency::None, "its latest start is two hours away");
    let position = |world: &World, run: RunId| explain(&world.state, &run, clock(world)).unwrap().position;
    assert_eq!((position(&world, older), position(&world, urgent)), (2, 3));
    // It looks again when the time has come, though nothing happens.
    world.wait(600_000);
    let wake = world.ruling().wake_in.unwrap().0;
    assert!((1..=HOUR - 600_000 + 1).contains(&wake), "{wake}");
    world.elapsed -= 600_000;
    world.wait(HOUR + 1);
    let said = world.settle();
    assert!(said.iter().any(|(run, event)| *run == urgent && matches!(event, Event::JobDeadlineNeared(_))), "{said:?}");
    assert_eq!((position(&world, high), position(&world, urgent), position(&world, older)), (1, 2, 3));
    for next in [high, urgent, older] {
        let held = [runs, high, urgent, older].into_iter().find(|run| world.is_active(*run)).unwrap();
        if world.state.jobs()[&held].attempt().unwrap().launched.is_none() {
            world.all_ready(held);
            world.settle();
        }
        world.exits(held, 0, 0, None);
        world.settle();
        assert!(world.is_active(next), "{next}");
    }
}

#[test]
fn among_those_that_are_near_the_one_that_has_to_start_first_goes_first() {
    let (mut world, runs) = busy();
    let later = world.submit(due(&world, 50 * 60_000, 0));
    let sooner = world.submit(due(&world, HOUR + 20 * 60_000, 1));
    world.settle();
    world.exits(runs, 0, 0, None);
    world.settle();
    assert!(world.is_active(sooner) && world.is_pending(later));
}

#[test]
fn a_deadline_takes_nothing_from_another_queue() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.queue("a", 1, None, None);
    world.queue("b", 1, None, None);
    let of = |name: &str, spec: JobSpec| JobSpec { queue: queue_name(name), ..spec };
    let first = world.running(of("a", spec(1, 1)));
    let other = world.running(of("b", spec(1, 1)));
    let theirs = world.submit(of("b", spec(1, 1)));
    let urgent = world.submit(of("a", due(&world, HOUR / 2, 0)));
    world.settle();
    assert_eq!(urgency(&world, urgent), Urgency::Near);
    // Queue a still holds one, b none: it is b's turn, however near the deadline of a's job is.
    world.exits(other, 0, 0, None);
    world.settle();
    assert!(world.is_active(theirs) && world.is_pending(urgent));
    world.exits(first, 0, 0, None);
    world.settle();
    assert!(world.is_active(urgent));
}

#[test]
fn nodes_are_kept_for_whose_latest_start_is_near_once_it_has_waited_its_patience() {
    let mut world = World::new();
    world.slots("n1", 2);
    let (one, other) = (world.running(spec(1, 1)), world.running(spec(1, 1)));
    let mut wide = due(&world, HOUR / 2, 0);
    wide.resources.per_node.slots = 2;
    let wide = world.submit(wide);
    world.settle();
    world.wait(600_000);
    let small = world.submit(spec(1, 1));
    world.settle();
    world.exits(one, 0, 0, None);
    world.settle();
    assert!(world.is_pending(small), "what has come free is kept for the wide one");
    world.exits(other, 0, 0, None);
    world.settle();
    assert!(world.is_active(wide));
}

#[test]
fn a_deadline_that_has_passed_is_told_and_gives_no_rank_any_more() {
    let (mut world, runs) = busy();
    let older = world.submit(spec(1, 1));
    let late = world.submit(due(&world, HOUR, 1));
    world.settle();
    assert_eq!(urgency(&world, late), Urgency::Near);
    let told = |world: &World| explain(&world.state, &late, clock(world)).unwrap().deadline;
    world.wait(60_000);
    assert!(told(&world).contains("should have started by"), "{}", told(&world));
    world.wait(HOUR);
    let said = world.settle();
    assert!(said.iter().any(|(run, event)| *run == late && matches!(event, Event::JobDeadlineMissed(_))), "{said:?}");
    assert!(told(&world).contains("has passed") && told(&world).contains("waits on"), "{}", told(&world));
    world.exits(runs, 0, 0, None);
    world.settle();
    assert!(world.is_active(older) && world.is_pending(late));
    // It is told once.
    world.wait(HOUR);
    world.settle();
    assert_eq!(world.count(late, |event| matches!(event, Event::JobDeadlineMissed(_))), 1);
}

#[test]
fn a_job_that_is_to_end_with_its_deadline_ends_of_a_cause_of_its_own_while_it_waits_wherever_it_does() {
    let (mut world, runs) = busy();
    let waits = world.submit(ends(due(&world, HOUR, 2)));
    let behind = JobSpec { after: vec![AfterJob { run: runs, when: AfterWhen::Success }], ..ends(due(&world, HOUR, 2)) };
    let behind = world.submit(behind);
    world.settle();
    world.wait(HOUR - 1);
    world.settle();
    assert!(world.is_pending(waits) && world.is_pending(behind), "it may still be over in time: the longest duration is a bound");
    world.wait(1);
    world.settle();
    for run in [waits, behind] {
        let end = world.end(run);
        assert_eq!((end.outcome, end.cause, end.attempt.0), (Outcome::Failed, Cause::DeadlineMissed, 0));
        assert!(end.message.contains("limits.deadline_missed: end"), "{}", end.message);
    }
}

#[test]
fn what_runs_goes_on_beyond_its_deadline() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(ends(due(&world, HOUR, 2)));
    world.wait(HOUR + 60_000);
    world.settle();
    assert!(world.is_active(run) && world.stop_cause(run).is_none());
    world.exits(run, 0, 0, None);
    world.settle();
    assert_eq!(world.end(run).outcome, Outcome::Succeeded);
}

#[test]
fn a_new_leader_finds_the_same_order_and_tells_nothing_twice() {
    let (mut world, runs) = busy();
    let older = world.submit(spec(1, 1));
    let urgent = world.submit(due(&world, HOUR / 2, 0));
    world.settle();
    world.new_term();
    assert_eq!(urgency(&world, urgent), Urgency::Near);
    world.settle();
    assert_eq!(world.count(urgent, |event| matches!(event, Event::JobDeadlineNeared(_))), 1);
    world.exits(runs, 0, 0, None);
    world.settle();
    assert!(world.is_active(urgent) && world.is_pending(older));
}

#[test]
fn the_farthest_deadlines_and_durations_are_reckoned_with_and_a_rule_without_a_deadline_is_refused() {
    let (mut world, _) = busy();
    for (deadline, duration) in [(i64::MIN, u64::MAX), (i64::MAX, u64::MAX), (i64::MAX, 0), (i64::MIN, 0)] {
        let limits = Limits { deadline: Some(Timestamp::from_nanos(deadline)), max_duration: Millis(duration), ..Limits::default() };
        world.submit(JobSpec { limits, ..spec(1, 1) });
    }
    world.settle();
    let limits = Limits { deadline_missed: DeadlineMissed::End, ..Limits::default() };
    let refused = admit(&world.state, &JobSpec { limits, ..spec(1, 1) }, true).unwrap_err().to_string();
    assert!(refused.contains("limits.deadline_missed"), "{refused}");
}
