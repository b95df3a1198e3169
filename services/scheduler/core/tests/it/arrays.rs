//! Arrays: at most so many at a time, nobody hidden behind those that wait, and what each of them is told.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Forecast, assignments, explain};
use footplate_types::*;

const ARRAY: RunId = RunId::from_bytes([0xa1; 16]);

fn member(index: u32, at_once: u32, base: JobSpec) -> JobSpec {
    JobSpec { array: Some(ArrayMember { id: ARRAY, index, count: 100, at_once }), ..base }
}

fn array(world: &mut World, count: u32, at_once: u32) -> Vec<RunId> {
    (0..count).map(|index| world.submit(member(index, at_once, spec(1, 1)))).collect()
}

fn active(world: &World, runs: &[RunId]) -> Vec<usize> {
    (0..runs.len()).filter(|at| world.is_active(runs[*at])).collect()
}

fn is_behind(world: &World, run: RunId) -> bool {
    matches!(world.reason(run), Some(WaitReason::Array { .. }))
}

#[test]
fn so_many_of_an_array_are_placed_at_a_time_and_the_next_one_follows_each_end() {
    let mut world = World::new();
    world.slots("n0", 8);
    let runs = array(&mut world, 10, 3);
    world.settle();
    assert_eq!(active(&world, &runs), [0, 1, 2]);
    assert!(runs[3..].iter().all(|run| is_behind(&world, *run)));
    let Some(WaitReason::Array { detail }) = world.reason(runs[3]) else { panic!() };
    assert_eq!(detail, format!("at most 3 of the 100 jobs of array {ARRAY} are placed at a time"));
    for index in 0..10 {
        let run = runs[index];
        world.all_ready(run);
        world.settle();
        world.exits(run, 0, 0, None);
        world.settle();
        let expected: Vec<usize> = (index + 1..(index + 4).min(10)).collect();
        assert_eq!(active(&world, &runs), expected);
    }
    assert!(runs.iter().all(|run| world.end(*run).outcome == Outcome::Succeeded));
    let told = |run: RunId| world.count(run, |event| matches!(event, Event::JobWaiting(_)));
    assert!(runs[3..].iter().all(|run| told(*run) == 1), "each is told once that it stands behind, whatever ends");
}

#[test]
fn those_that_stand_behind_hide_nobody_who_asks_the_same() {
    let mut world = World::new();
    world.slots("n0", 4);
    let runs = array(&mut world, 5, 1);
    let other = world.submit(spec(1, 1));
    let unlimited = world.submit(member(7, 0, spec(1, 1)));
    world.settle();
    assert_eq!(active(&world, &runs), [0]);
    assert!(world.is_active(other) && world.is_active(unlimited), "another job of the same shape, and one of an array without a limit");
}

#[test]
fn what_ends_by_force_gives_its_place_to_the_next() {
    let mut world = World::new();
    world.slots("n0", 8);
    let runs = array(&mut world, 6, 2);
    world.settle();
    // Before its turn.
    world.cancel(runs[2], 1);
    // In the middle.
    world.cancel(runs[0], 2);
    world.settle();
    assert_eq!(active(&world, &runs), [0, 1], "it holds its place until it has left");
    world.exits(runs[0], 0, 143, Some(StopCause::Cancelled));
    world.settle();
    assert_eq!(active(&world, &runs), [1, 3]);
    assert_eq!((world.end(runs[0]).outcome, world.end(runs[2]).outcome), (Outcome::Cancelled, Outcome::Cancelled));
}

#[test]
fn a_held_one_and_one_in_its_back_off_let_others_pass_and_come_back_in_their_turn() {
    let mut world = World::new();
    world.slots("n0", 8);
    let retry = RetryPolicy { user_code: 1, backoff: Millis(60_000), ..RetryPolicy::default() };
    let base = JobSpec { retry, ..spec(1, 1) };
    let runs: Vec<RunId> = (0..5).map(|index| world.submit(member(index, 1, base.clone()))).collect();
    let hold = JobHoldRequested { request: request(1), reason: String::new() };
    world.record(footplate_events::Subject::job_request(&project(), runs[1]), hold);
    world.settle();
    world.all_ready(runs[0]);
    world.settle();
    world.exits(runs[0], 0, 3, None);
    world.settle();
    assert_eq!(world.reason(runs[0]), Some(WaitReason::Backoff));
    assert_eq!(active(&world, &runs), [2], "not the held one");
    world.wait(60_000);
    world.settle();
    assert_eq!(active(&world, &runs), [2], "its back-off is over, and another has its place");
    assert!(is_behind(&world, runs[0]));
    let release = JobReleaseRequested { request: request(2) };
    world.record(footplate_events::Subject::job_request(&project(), runs[1]), release);
    world.settle();
    assert!(is_behind(&world, runs[1]));
    world.cancel(runs[2], 3);
    world.settle();
    world.exits(runs[2], 0, 143, Some(StopCause::Cancelled));
    world.settle();
    assert_eq!(active(&world, &runs), [0], "the oldest goes first");
}

#[test]
fn a_back_off_that_is_over_is_no_way_around_the_limit() {
    let mut world = World::new();
    world.slots("n0", 8);
    let retry = RetryPolicy { user_code: 1, backoff: Millis(60_000), ..RetryPolicy::default() };
    let runs: Vec<RunId> = (0..2).map(|index| world.submit(member(index, 2, JobSpec { retry: retry.clone(), ..spec(1, 1) }))).collect();
    world.settle();
    for run in &runs {
        world.all_ready(*run);
        world.settle();
        world.exits(*run, 0, 3, None);
    }
    world.settle();
    let late: Vec<RunId> = (2..4).map(|index| world.submit(member(index, 2, spec(1, 1)))).collect();
    world.settle();
    assert_eq!(active(&world, &late), [0, 1]);
    world.wait(60_000);
    world.settle();
    assert_eq!(active(&world, &runs), [0; 0]);
    // With places to spare it starts at once.
    for run in &late {
        world.cancel(*run, 5);
    }
    world.settle();
    for run in &late {
        world.exits(*run, 0, 143, Some(StopCause::Cancelled));
    }
    world.settle();
    assert_eq!(active(&world, &runs), [0, 1]);
}

#[test]
fn a_larger_priority_goes_to_the_front_of_its_array() {
    let mut world = World::new();
    world.slots("n0", 1);
    let other = world.running(spec(1, 1));
    let runs = array(&mut world, 4, 1);
    world.settle();
    assert!(matches!(world.reason(runs[0]), Some(WaitReason::Resources { .. })) && is_behind(&world, runs[3]));
    let asked = JobReprioritizeRequested { request: request(1), priority: 5 };
    world.record(footplate_events::Subject::job_request(&project(), runs[3]), asked);
    world.settle();
    assert!(is_behind(&world, runs[0]) && matches!(world.reason(runs[3]), Some(WaitReason::Resources { .. })));
    world.exits(other, 0, 0, None);
    world.settle();
    assert_eq!(active(&world, &runs), [3]);
}

#[test]
fn one_for_which_others_are_stopped_has_its_place_already() {
    let mut world = World::new();
    world.slots("n0", 2);
    let low = world.running(JobSpec { preemptible: true, ..spec(1, 2) });
    let runs: Vec<RunId> = (0..3).map(|index| world.submit(member(index, 1, JobSpec { priority: 9, ..spec(1, 2) }))).collect();
    world.settle();
    assert_eq!(world.reason(runs[0]), Some(WaitReason::Preempting));
    assert!(is_behind(&world, runs[1]) && is_behind(&world, runs[2]));
    world.exits(low, 0, 143, Some(StopCause::Preempted));
    world.settle();
    assert_eq!(active(&world, &runs), [0]);
}

#[test]
fn two_arrays_and_one_of_another_project_or_limit_are_counted_apart() {
    let mut world = World::new();
    world.slots("n0", 8);
    let first = array(&mut world, 2, 1);
    let other_limit = array(&mut world, 3, 2);
    let other = ArrayMember { id: RunId::from_bytes([0xb2; 16]), index: 0, count: 2, at_once: 1 };
    let other = world.submit(JobSpec { array: Some(other), ..spec(1, 1) });
    let run = RunId::from_bytes([0xc3; 16]);
    let speech = ProjectName::parse("speech").unwrap();
    let submitted = JobSubmitted { spec: member(9, 1, spec(1, 1)), body: Digest::of(b"body") };
    world.record(footplate_events::Subject::job(&speech, run), submitted);
    world.settle();
    assert_eq!((active(&world, &first), active(&world, &other_limit)), (vec![0], vec![0, 1]));
    assert!(world.is_active(other) && world.is_active(run));
}

#[test]
fn a_wait_behind_others_of_its_array_is_no_wait_for_its_first_placement() {
    let mut world = World::new();
    world.slots("n0", 1);
    let limits = Limits { max_pending: Millis(60_000), ..Limits::default() };
    let runs: Vec<RunId> = (0..2).map(|index| world.submit(member(index, 1, JobSpec { limits, ..spec(1, 1) }))).collect();
    world.settle();
    world.all_ready(runs[0]);
    world.settle();
    world.wait(600_000);
    world.settle();
    assert!(is_behind(&world, runs[1]));
    // Somebody else takes the room: now it waits in line, and its limit runs.
    let urgent = world.submit(JobSpec { priority: 3, ..spec(1, 1) });
    world.exits(runs[0], 0, 0, None);
    world.settle();
    assert!(world.is_active(urgent) && matches!(world.reason(runs[1]), Some(WaitReason::Resources { .. })));
    world.wait(59_000);
    world.settle();
    assert!(world.is_pending(runs[1]));
    world.wait(2_000);
    world.settle();
    assert_eq!(world.end(runs[1]).cause, Cause::PendingTooLong);
}

#[test]
fn one_that_stood_behind_and_is_held_begins_its_wait_then() {
    let mut world = World::new();
    world.slots("n0", 8);
    let limited = JobSpec { limits: Limits { max_pending: Millis(60_000), ..Limits::default() }, ..spec(1, 1) };
    let runs: Vec<RunId> = (0..2).map(|index| world.submit(member(index, 1, limited.clone()))).collect();
    world.settle();
    assert!(is_behind(&world, runs[1]));
    world.wait(3_600_000);
    world.record(Subject::job_request(&project(), runs[1]), JobHoldRequested { request: request(9), reason: String::new() });
    world.settle();
    assert!(world.is_pending(runs[1]), "an hour behind others is no wait for a place");
    world.wait(60_001);
    world.settle();
    assert_eq!(world.end(runs[1]).cause, Cause::PendingTooLong);
}

#[test]
fn a_member_is_told_how_many_stand_before_it_and_others_are_promised_no_room_that_it_will_take() {
    let mut world = World::new();
    world.slots("n0", 1);
    let limits = Limits { max_duration: Millis::from_secs(100), ..Limits::default() };
    let stop = StopPolicy { grace: Millis(0), ..StopPolicy::default() };
    let base = JobSpec { limits, stop, ..spec(1, 1) };
    let runs: Vec<RunId> = (0..4).map(|index| world.submit(member(index, 1, base.clone()))).collect();
    let last = world.submit(base);
    world.settle();
    let told = explain(&world.state, &runs[3], world.now()).unwrap();
    let Some(WaitReason::Array { detail }) = &told.reason else { panic!("{told:?}") };
    assert!(detail.ends_with("1 are, 0 stand in line, 2 wait before it"), "{detail}");
    assert!(told.start.is_none() && told.change.contains("others of its array have to end"), "{told:?}");
    // One runs, three more of the array come before it, each for 100 seconds.
    let told = explain(&world.state, &last, world.now()).unwrap();
    let Some(Forecast::Within(within)) = told.start else { panic!("{told:?}") };
    assert_eq!(within, Millis::from_secs(400));
}

#[test]
fn what_is_placed_says_which_one_of_its_array_it_is_and_what_has_ended_still_does() {
    let mut world = World::new();
    world.slots("n0", 1);
    let run = world.submit(member(7, 2, spec(1, 1)));
    world.settle();
    let task = assignments(&world.state).remove(&node_name("n0")).unwrap().tasks.remove(0);
    assert_eq!(task.array.map(|array| (array.id, array.index, array.count)), Some((ARRAY, 7, 100)));
    world.all_ready(run);
    world.settle();
    world.exits(run, 0, 0, None);
    world.settle();
    assert_eq!(world.state.ended()[&run].array.map(|array| array.index), Some(7));
}

#[test]
fn a_leader_that_knows_the_ledger_alone_goes_on_with_the_same_array() {
    let mut world = World::new();
    world.slots("n0", 4);
    let runs = array(&mut world, 9, 2);
    world.settle();
    world.new_term();
    world.state.check().unwrap();
    assert_eq!(active(&world, &runs), [0, 1]);
    for run in &runs[..2] {
        world.cancel(*run, 1);
    }
    world.settle();
    for run in &runs[..2] {
        world.exits(*run, 0, 143, Some(StopCause::Cancelled));
    }
    world.settle();
    assert_eq!(active(&world, &runs), [2, 3]);
}
