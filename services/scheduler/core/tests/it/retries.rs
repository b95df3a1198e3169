//! Retries: counted by cause, with back-off, away from nodes at fault, from the last whole checkpoint.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Budget, assignments};
use footplate_types::*;

fn retrying(policy: RetryPolicy) -> JobSpec {
    JobSpec { retry: policy, ..spec(1, 1) }
}

fn run_again(world: &mut World, run: RunId) {
    world.wait(3_600_000);
    world.settle();
    world.all_ready(run);
    world.settle();
}

#[test]
fn a_failing_program_is_tried_as_often_as_its_budget_says_with_a_doubling_wait() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(retrying(RetryPolicy { user_code: 2, backoff: Millis(1_000), ..RetryPolicy::default() }));
    for (spent, backoff) in [(1, 1_000), (2, 2_000)] {
        world.exits(run, 0, 1, None);
        let said = world.settle();
        let requeued =
            |event: &Event| matches!(event, Event::JobRequeued(f) if f.spent == spent && f.allowed == 2 && f.backoff.0 == backoff);
        assert!(said.iter().any(|(_, event)| requeued(event)), "{said:?}");
        world.wait(backoff - 1);
        world.settle();
        assert!(world.is_pending(run));
        run_again(&mut world, run);
    }
    world.exits(run, 0, 1, None);
    world.settle();
    assert_eq!((world.end(run).cause, world.end(run).attempt.0), (Cause::UserCode, 3));
    // The keys are the job file's.
    let told = &world.end(run).message;
    assert!(told.contains("2 of 2 retries used") && told.contains("`failed` in retry.on") && told.contains("retry.max"), "{told}");
}

#[test]
fn exit_75_and_named_codes_count_against_their_own_budget() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(retrying(RetryPolicy { exit_codes: vec![9], retryable: 2, ..RetryPolicy::default() }));
    for code in [75, 9] {
        world.exits(run, 0, code, None);
        world.settle();
        run_again(&mut world, run);
    }
    assert_eq!(world.state.jobs()[&run].spent(Budget::Retryable), 2);
    world.exits(run, 0, 75, None);
    world.settle();
    assert_eq!(world.end(run).cause, Cause::Retryable);
}

/// A worker fails and tells which memory it ran out of.
fn runs_out(world: &mut World, run: RunId, exit: Exit, memory: Option<MemoryKind>) {
    let (subject, mut exited) = world.exit_of(run, 0, exit, None);
    exited.workers[0].out_of_memory = memory;
    world.record(subject, AttemptExited { members: vec![exited] });
    world.settle();
}

#[test]
fn who_runs_out_of_memory_is_not_tried_again_and_told_what_it_asked_and_what_to_raise() {
    let cases = [
        (Exit::Signal(9), Some(MemoryKind::Machine), ["2GiB of memory asked", "raise resources.memory"]),
        (Exit::Code(1), Some(MemoryKind::Accelerator), ["GPUs of at least 16GiB asked", "raise resources.gpu.memory"]),
        (Exit::Code(76), None, ["raise resources.gpu.memory", "raise resources.memory"]),
    ];
    for (exit, memory, words) in cases {
        let mut world = World::new();
        world.node("n1", gpus_shape("n1", &[("H200", None)]));
        let mut asked = gpu_spec(1, 1);
        asked.resources.per_node.memory_bytes = 2 << 30;
        asked.resources.per_node.gpu_memory_bytes = 16 << 30;
        // Failures of the program are retried: this is none of them.
        asked.retry.user_code = 3;
        let run = world.running(asked);
        runs_out(&mut world, run, exit, memory);
        let end = world.end(run);
        assert_eq!((end.outcome, end.cause, end.attempt.0), (Outcome::Failed, Cause::OutOfMemory, 1));
        assert_eq!(end.root.as_ref().unwrap().memory, memory);
        assert!(end.message.contains("`oom` in retry.on"), "{}", end.message);
        assert!(words.iter().all(|words| end.message.contains(words)), "{}", end.message);
    }
}

#[test]
fn running_out_of_memory_has_a_budget_of_its_own() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(retrying(RetryPolicy { out_of_memory: 1, backoff: Millis(1_000), ..RetryPolicy::default() }));
    runs_out(&mut world, run, Exit::Signal(9), Some(MemoryKind::Machine));
    let job = &world.state.jobs()[&run];
    assert_eq!((job.spent(Budget::OutOfMemory), job.spent(Budget::UserCode)), (1, 0));
    // The node is not at fault: nothing is kept away from it.
    assert!(job.avoid.is_empty());
    run_again(&mut world, run);
    runs_out(&mut world, run, Exit::Signal(9), Some(MemoryKind::Machine));
    let end = world.end(run);
    assert_eq!((end.cause, end.attempt.0), (Cause::OutOfMemory, 2));
    assert!(end.message.contains("1 of 1 retries used") && end.message.contains("no memory was asked"), "{}", end.message);
}

#[test]
fn an_exit_code_that_is_named_as_worth_a_retry_is_one_whatever_led_to_it() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(retrying(RetryPolicy { exit_codes: vec![76], retryable: 1, ..RetryPolicy::default() }));
    runs_out(&mut world, run, Exit::Code(76), Some(MemoryKind::Machine));
    assert_eq!(world.state.jobs()[&run].spent(Budget::Retryable), 1);
}

#[test]
fn what_could_not_be_started_counts_as_infrastructure_and_goes_elsewhere_next() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.submit(spec(1, 1));
    world.settle();
    let first = world.nodes_of(run);
    world.not_started(run, 0, "set-up exited 9");
    world.settle();
    let root = world.state.jobs()[&run].past[0].root.clone().unwrap();
    assert_eq!(root.what, "not started: set-up exited 9");
    world.wait(600_000);
    world.settle();
    assert_ne!(world.nodes_of(run), first);
}

#[test]
fn the_only_node_is_used_again_though_it_was_at_fault() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.submit(spec(1, 1));
    world.settle();
    world.not_started(run, 0, "disk full");
    world.settle();
    world.wait(600_000);
    world.settle();
    assert_eq!((world.attempt(run), world.is_active(run)), (2, true));
}

#[test]
fn a_preemption_never_spends_the_failure_budget() {
    let mut world = World::new();
    world.slots("n1", 1);
    let retry = RetryPolicy { infrastructure: 0, lost: 0, user_code: 0, preempted: 5, ..RetryPolicy::default() };
    let low = world.running(JobSpec { preemptible: true, ..retrying(retry) });
    let high = world.submit(JobSpec { priority: 1, ..spec(1, 1) });
    world.settle();
    world.exits(low, 0, 143, Some(StopCause::Preempted));
    world.settle();
    assert!(world.is_active(high) && world.is_pending(low));
    assert_eq!(world.state.jobs()[&low].spent(Budget::Preempted), 1);
}

#[test]
fn the_next_attempt_begins_from_the_newest_whole_checkpoint_and_never_from_a_lower_attempts_late_one() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(JobSpec { preemptible: true, ..spec(1, 1) });
    let manifest = |n: &[u8]| DocumentRef { digest: Digest::of(n), bytes: 1 };
    let saved = |step: i64, rank: u32, n: &[u8]| AttemptCheckpointed {
        step,
        rank: Rank(rank),
        manifest: manifest(n),
        bytes: 1,
        metadata: String::new(),
    };
    let subject = |attempt: u32| Subject::attempt(&project(), AttemptId { run, attempt: AttemptNumber(attempt) });
    world.record(subject(1), saved(10, 0, b"a"));
    world.record(subject(1), saved(20, 0, b"b"));
    world.record(subject(1), saved(20, 3, b"c"));
    let task = |world: &World| assignments(&world.state)[&node_name("n1")].tasks[0].clone();
    assert_eq!(task(&world).checkpoint, None, "an attempt's own checkpoint does not change its assignment");
    world.drain("n1");
    world.settle();
    world.exits(run, 0, 0, Some(StopCause::Drained));
    world.uncordon("n1");
    world.settle();
    assert_eq!(task(&world).checkpoint, Some((AttemptNumber(1), 20, manifest(b"b"))));
    world.record(subject(2), saved(5, 0, b"d"));
    world.record(subject(1), saved(99, 0, b"e"));
    let known = world.state.jobs()[&run].checkpoint.clone().unwrap();
    assert_eq!((known.attempt.0, known.step), (2, 5));
}

#[test]
fn a_job_that_waits_too_long_for_its_first_placement_ends() {
    let mut world = World::new();
    let limits = Limits { max_pending: Millis(5_000), ..Limits::default() };
    let run = world.submit(JobSpec { limits, ..spec(1, 1) });
    world.settle();
    assert_eq!(world.ruling().wake_in, Some(Millis(5_000)));
    world.wait(5_000);
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).cause), (Outcome::Failed, Cause::PendingTooLong));
}

/// A run that could not be started on n1 and was started on n2.
fn starts_elsewhere(world: &mut World) -> RunId {
    let prefers_n1 = PlacementAsk { nodes: vec![node_name("n1"), node_name("n2")], ..PlacementAsk::default() };
    let run = world.submit(JobSpec { placement: prefers_n1, ..spec(1, 1) });
    world.settle();
    assert_eq!(world.nodes_of(run), ["n1"]);
    world.not_started(run, 0, "no space left on device");
    world.settle();
    world.wait(2_000);
    world.settle();
    assert_eq!(world.nodes_of(run), ["n2"]);
    world.all_ready(run);
    world.settle();
    world.starts(run, 0);
    run
}

#[test]
fn a_node_that_cannot_start_what_others_start_is_quarantined_until_somebody_has_looked_after_it() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 8);
    for _ in 0..3 {
        assert!(world.state.nodes()[&node_name("n1")].is_open());
        starts_elsewhere(&mut world);
    }
    let node = &world.state.nodes()[&node_name("n1")];
    assert!(!node.is_open());
    assert!(
        node.closed_because().unwrap().starts_with("quarantined (3 runs in a row could not be started here and were started elsewhere")
    );
    let only_there =
        world.submit(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n1")], ..PlacementAsk::default() }, ..spec(1, 1) });
    world.settle();
    let told = footplate_scheduler_core::explain(&world.state, &only_there, world.now()).unwrap();
    assert!(told.change.contains("`footplate node uncordon n1`"), "{told:?}");
    world.uncordon("n1");
    world.settle();
    assert_eq!(world.nodes_of(only_there), ["n1"]);
}

#[test]
fn a_node_that_starts_something_in_between_is_not_blamed_for_what_was_before() {
    let mut world = World::new();
    world.slots("n1", 2);
    world.slots("n2", 8);
    (0..2).for_each(|_| _ = starts_elsewhere(&mut world));
    let fine = world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("n1")], ..PlacementAsk::default() }, ..spec(1, 1) });
    world.starts(fine, 0);
    world.exits(fine, 0, 0, None);
    world.settle();
    (0..2).for_each(|_| _ = starts_elsewhere(&mut world));
    assert!(world.state.nodes()[&node_name("n1")].is_open());
}

#[test]
fn of_a_gang_that_was_not_ready_in_time_the_slow_node_is_at_fault() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n4", 1);
    let run = world.submit(spec(2, 1));
    world.settle();
    assert_eq!(world.nodes_of(run), ["n1", "n4"]);
    world.ready(run, 0);
    world.wait(world.policy.ready_within.0);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::NotReady));
    (0..2).for_each(|member| world.exits(run, member, 143, Some(StopCause::NotReady)));
    world.settle();
    let job = &world.state.jobs()[&run];
    let root = job.past.last().and_then(|past| past.root.clone()).unwrap();
    assert_eq!((root.node.as_str(), root.what.as_str()), ("n4", "was not ready in time"));
    assert_eq!(job.avoid, [node_name("n4")]);
}

#[test]
fn a_run_that_starts_nowhere_blames_no_node() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    for _ in 0..4 {
        let run = world.submit(spec(1, 1));
        world.settle();
        while world.state.jobs().contains_key(&run) {
            if world.is_active(run) {
                world.not_started(run, 0, "setup: exit 1");
            }
            world.settle();
            world.wait(10_000);
            world.settle();
        }
    }
    assert!(world.state.nodes().values().all(footplate_scheduler_core::Node::is_open));
}
