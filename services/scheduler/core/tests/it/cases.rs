//! Cases from the field: what users of such platforms hit.

use crate::world::*;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::Holding;
use footplate_scheduler_core::{Refusal, admit, can_close, explain};
use footplate_types::*;

#[test]
fn hopeless_jobs_are_refused_or_told_never_and_hold_back_nobody() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let mut pinned = spec(1, 1);
    pinned.placement.nodes = vec![node_name("n99")];
    let mut excluded = spec(1, 1);
    excluded.placement.exclude = vec![node_name("n1"), node_name("n2")];
    let hopeless = [
        (spec(1, 2), "the largest node (n2) has 1 slot, 2 asked of each node"),
        (pinned, "no such node: n99"),
        (excluded, "every node is excluded"),
        (spec(3, 4), "has 1 slot, 4 asked of each node"),
        (spec(3, 1), "3 nodes asked, 2 of 2 could take a member"),
    ];
    for (job, told) in hopeless {
        match admit(&world.state, &job, false) {
            Err(Refusal::NeverFits { detail }) => assert!(detail.contains(told), "{detail}"),
            other => panic!("{told}: {other:?}"),
        }
        assert_eq!(admit(&world.state, &job, true), Ok(()));
        let run = world.submit(job);
        world.settle();
        assert!(matches!(world.reason(run), Some(WaitReason::NoSuchNode { detail }) if detail.contains(told)));
    }
    assert_eq!(world.state.queue(&queue_name("default")).holding, Holding::default());
    let plain = world.submit(spec(1, 1));
    world.settle();
    assert!(world.is_active(plain));
}

#[test]
fn work_once_impossible_is_looked_at_again_and_each_change_of_reason_is_recorded_once() {
    let mut world = World::new();
    world.slots("n1", 1);
    let runs: Vec<RunId> = (0..100).map(|_| world.submit(spec(1, 1))).collect();
    let gang = world.submit(spec(1, 4));
    world.settle();
    for run in &runs {
        assert!(world.is_active(*run), "one after the other, in order");
        world.exits(*run, 0, 0, None);
        world.settle();
    }
    assert!(runs.iter().all(|run| world.end(*run).outcome == Outcome::Succeeded));
    let blocker = world.submit(spec(1, 1));
    world.settle();
    world.slots("n1", 4);
    world.settle();
    assert!(matches!(world.reason(gang), Some(WaitReason::Resources { .. })));
    world.slots("n2", 4);
    world.settle();
    assert!(world.is_active(gang), "starts within a look of the join");
    assert_eq!(world.count(gang, |event| matches!(event, Event::JobWaiting(_))), 2);
    assert!(world.is_active(blocker));
}

#[test]
fn a_quota_lowered_under_running_work_starts_nothing_until_use_is_below_it() {
    let mut world = World::new();
    world.queue("q", 1, None, Some(4));
    world.slots("n1", 8);
    let of_q = || JobSpec { queue: queue_name("q"), ..spec(1, 1) };
    let running: Vec<RunId> = (0..4).map(|_| world.running(of_q())).collect();
    let waiting: Vec<RunId> = (0..3).map(|_| world.submit(of_q())).collect();
    world.settle();
    assert!(matches!(world.reason(waiting[0]), Some(WaitReason::Quota { .. })));
    world.queue("q", 1, None, Some(2));
    world.exits(running[0], 0, 0, None);
    world.settle();
    assert!(waiting.iter().all(|run| world.is_pending(*run)));
    let Some(WaitReason::Quota { detail }) = explain(&world.state, &waiting[0], world.now()).unwrap().reason else { panic!() };
    assert_eq!(detail, "slots: 3 of 2 in use, 1 asked");
    world.exits(running[1], 0, 0, None);
    world.settle();
    assert!(waiting.iter().all(|run| world.is_pending(*run)), "2 of 2");
    world.exits(running[2], 0, 0, None);
    let held = QueueConfigured { quota: Quota { gpus: None, slots: Some(2) }, held: true, ..QueueConfigured::default() };
    world.record(Subject::queue(&queue_name("q")), held);
    world.settle();
    assert!(waiting.iter().all(|run| world.is_pending(*run)), "a held queue starts nothing after the hold's position");
    assert_eq!(world.reason(waiting[0]), Some(WaitReason::QueueHeld));
    assert!(matches!(can_close(&world.state, &queue_name("q")), Err(Refusal::QueueInUse { count: 4, .. })));
    world.queue("q", 1, None, None);
    world.settle();
    assert!(waiting.iter().all(|run| world.is_active(*run)), "without the limit all start");
}

#[test]
fn a_placement_that_follows_the_hold_of_its_queue_or_a_lower_quota_in_the_ledger_is_void() {
    for (held, most) in [(true, 4), (false, 1)] {
        let mut world = World::new();
        world.queue("q", 1, None, Some(4));
        world.slots("n1", 8);
        let run = world.submit(JobSpec { queue: queue_name("q"), ..spec(1, 2) });
        let ruling = world.ruling();
        let settings = QueueConfigured { quota: Quota { gpus: None, slots: Some(most) }, held, ..QueueConfigured::default() };
        world.record(Subject::queue(&queue_name("q")), settings);
        world.append(ruling.decisions);
        assert_eq!(world.state.queue(&queue_name("q")).holding, Holding::default());
        world.settle();
        assert!(world.is_pending(run));
        world.queue("q", 1, None, None);
        world.settle();
        assert_eq!((world.attempt(run), world.is_active(run)), (2, true));
    }
}

#[test]
fn an_exhausted_kind_blocks_only_the_jobs_that_ask_for_it() {
    let mut world = World::new();
    world.node("mixed", gpus_shape("mixed", &[("P", None), ("P", None), ("P", None), ("P", None), ("V", None), ("V", None)]));
    world.slots("cores", 16);
    let of_kind = |kind: &str, count: u32| {
        let mut spec = gpu_spec(1, count);
        spec.resources.per_node.gpu_models = vec![GpuModel::parse(kind).unwrap()];
        spec
    };
    world.running(of_kind("P", 4));
    let waiting: Vec<RunId> = (0..5).map(|_| world.submit(of_kind("P", 1))).collect();
    let (other_kind, cores) = (world.submit(of_kind("V", 1)), world.submit(spec(1, 1)));
    world.settle();
    assert!(world.is_active(other_kind) && world.is_active(cores));
    for run in waiting {
        let Some(WaitReason::Resources { detail }) = world.reason(run) else { panic!("{:?}", world.reason(run)) };
        assert!(detail.starts_with("gpus: 1 free asked") && detail.contains("mixed with 0"), "{detail}");
    }
}

#[test]
fn a_cancel_in_every_phase_of_a_preemption_ends_the_job_once_and_frees_everything() {
    for phase in ["notice", "requeued", "placed", "preparing"] {
        let mut world = World::new();
        world.slots("n1", 1);
        let job = world.running(JobSpec { preemptible: true, ..spec(1, 1) });
        let urgent = world.submit(JobSpec { priority: 9, ..spec(1, 1) });
        world.settle();
        if phase == "notice" {
            world.cancel(job, 1);
        }
        world.settle();
        world.exits(job, 0, 0, Some(StopCause::Preempted));
        if phase == "requeued" {
            world.settle();
            world.cancel(job, 1);
        }
        world.new_term();
        world.settle();
        world.exits(urgent, 0, 0, None);
        world.settle();
        if matches!(phase, "placed" | "preparing") {
            if phase == "preparing" {
                world.ready(job, 0);
            }
            world.cancel(job, 1);
            world.new_term();
            world.settle();
            world.exits(job, 0, 0, Some(StopCause::Cancelled));
            world.settle();
        }
        assert_eq!(world.end(job).outcome, Outcome::Cancelled, "{phase}");
        assert_eq!(world.count(job, |event| matches!(event, Event::JobEnded(_))), 1, "{phase}");
        assert!(world.state.nodes().values().all(|node| node.claims.is_empty()), "{phase}");
        assert_eq!(world.state.queue(&queue_name("default")).holding, Holding::default(), "{phase}");
    }
}

#[test]
fn a_job_cut_off_by_its_longest_duration_ends_as_timed_out_and_is_not_started_again() {
    let mut world = World::new();
    world.slots("n1", 1);
    let retry = RetryPolicy { preempted: 5, lost: 5, user_code: 0, ..RetryPolicy::default() };
    let limits = Limits { max_duration: Millis(10_000), ..Limits::default() };
    let run = world.running(JobSpec { preemptible: true, retry, limits, ..spec(1, 1) });
    world.wait(9_999);
    assert!(world.settle().is_empty());
    world.wait(1);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::TimedOut));
    world.exits(run, 0, 143, Some(StopCause::TimedOut));
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).cause, world.end(run).attempt.0), (Outcome::Failed, Cause::TimedOut, 1));
}

#[test]
fn the_longest_duration_counts_per_attempt_and_queue_time_never() {
    let mut world = World::new();
    let limits = Limits { max_duration: Millis(10_000), ..Limits::default() };
    let run = world.submit(JobSpec { preemptible: true, limits, ..spec(1, 1) });
    world.wait(3_600_000);
    world.slots("n1", 1);
    world.settle();
    world.all_ready(run);
    world.settle();
    world.wait(9_000);
    let urgent = world.submit(JobSpec { priority: 1, ..spec(1, 1) });
    world.settle();
    world.wait(60_000);
    assert!(world.settle().is_empty(), "already stopping: no second stop");
    world.exits(run, 0, 0, Some(StopCause::Preempted));
    world.settle();
    world.exits(urgent, 0, 0, None);
    world.settle();
    world.all_ready(run);
    world.settle();
    world.wait(9_999);
    assert!(world.settle().is_empty());
    world.wait(1);
    world.settle();
    assert_eq!(world.stop_cause(run), Some(StopCause::TimedOut));
}

#[test]
fn a_job_not_fit_for_a_restart_ends_as_lost_after_one_attempt_with_the_reason() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let retry = RetryPolicy { lost: 0, preempted: 0, infrastructure: 0, ..RetryPolicy::default() };
    let run = world.running(JobSpec { retry, ..spec(1, 1) });
    let node = world.nodes_of(run)[0].clone();
    world.node_lost(&node);
    world.settle();
    world.lost(run, 0);
    world.settle();
    let end = world.end(run);
    assert_eq!((end.outcome, end.cause, end.attempt.0), (Outcome::Failed, Cause::Lost, 1));
    assert!(
        end.message.contains("a node was lost") && end.message.contains("no retries are granted: `lost` in retry.on"),
        "{}",
        end.message
    );
}

#[test]
fn lost_once_preempted_once_then_done_is_three_attempts_and_a_success() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let run = world.running(JobSpec { preemptible: true, ..spec(1, 1) });
    let node = world.nodes_of(run)[0].clone();
    world.node_lost(&node);
    world.lost(run, 0);
    world.settle();
    world.wait(60_000);
    world.settle();
    world.all_ready(run);
    world.settle();
    world.drain(&world.nodes_of(run)[0].clone());
    world.settle();
    world.exits(run, 0, 0, Some(StopCause::Drained));
    world.settle();
    world.register(&node, slots_shape(1), 2);
    world.settle();
    world.all_ready(run);
    world.settle();
    world.exits(run, 0, 0, None);
    world.settle();
    assert_eq!((world.end(run).outcome, world.end(run).attempt.0), (Outcome::Succeeded, 3));
}

#[test]
fn drain_and_undo_in_quick_succession_never_oversubscribe() {
    let mut world = World::new();
    world.slots("n1", 2);
    let first = world.running(spec(1, 1));
    world.drain("n1");
    world.uncordon("n1");
    let (second, third) = (world.submit(spec(1, 1)), world.submit(spec(1, 1)));
    world.settle();
    assert!(world.stop_cause(first).is_none(), "undone before anyone acted");
    assert!(world.is_active(second) && world.is_pending(third));
}
