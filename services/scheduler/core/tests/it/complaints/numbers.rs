//! Numbers: nothing wraps, nothing is counted twice, and what is told has its unit.

use super::*;
use footplate_events::Event;
use footplate_scheduler_core::{Refusal, admit, explain};

/// 13, kueue#12897, #14109, #14113: a request overflowed, became negative, and was let in for nothing.
#[test]
fn complaint_13_a_request_whose_sum_cannot_be_counted_is_refused_and_never_free() {
    let mut world = World::new();
    configure(&mut world, "q", QueueConfigured { quota: slots_quota(u32::MAX), ..QueueConfigured::default() });
    world.node("n1", NodeShape { memory_bytes: u64::MAX, cpus: u32::MAX, ..slots_shape(1_024) });
    let changed = |change: fn(&mut JobSpec)| {
        let mut spec = job("q", 1);
        change(&mut spec);
        spec
    };
    let absurd = [
        changed(|spec| (spec.resources.nodes, spec.resources.per_node.slots) = (1 << 16, 1 << 16)),
        changed(|spec| (spec.resources.nodes, spec.resources.per_node.slots) = (u32::MAX, u32::MAX)),
        changed(|spec| spec.resources.per_node.memory_bytes = u64::MAX),
        changed(|spec| spec.resources.per_node.memory_bytes = 1 << 63),
        changed(|spec| spec.resources.per_node.cpus = u32::MAX),
    ];
    for spec in absurd {
        assert!(matches!(admit(&world.state, &spec, true), Err(Refusal::Invalid(_))), "{:?}", spec.resources);
    }
    let most = changed(|spec| spec.resources.per_node.memory_bytes = 1 << 60);
    let runs: Vec<RunId> = (0..20).map(|_| world.submit(most.clone())).collect();
    world.settle();
    assert_eq!(active(&world, &runs), 7, "of 2^63 - 1 bytes that are counted, seven take 2^60 each");
}

/// 25, armada#4879, #4566, #4733: nodes with work that could not be preempted were packed over the brim, what was left of them went below nothing.
#[test]
fn complaint_25_use_stays_within_every_node_at_every_event_beside_work_that_stays() {
    let mut world = World::new();
    (0..3).for_each(|n| world.slots(&format!("n{n}"), 4));
    let mut step = 7u32;
    let mut next = |most: u32| {
        step = step.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (step >> 16) % most
    };
    for round in 0..120u32 {
        let gang = spec(1 + next(2), 1 + next(4));
        world.submit(JobSpec { preemptible: next(2) == 0, priority: next(5) as i32, ..gang });
        world.settle();
        for node in world.state.nodes().values() {
            assert!(node.claimed().slots <= 4, "round {round}: {} of 4", node.claimed().slots);
        }
        obey(&mut world);
        world.settle();
        let living: Vec<RunId> = world.state.jobs().keys().copied().filter(|run| world.is_active(*run)).collect();
        if let Some(run) = living.get(next(4) as usize) {
            let attempt = world.state.jobs()[run].attempt().unwrap();
            let members: Vec<u32> =
                attempt.members.iter().filter(|member| !member.is_released()).map(|member| member.placement.member.0).collect();
            if attempt.launched.is_some() {
                members.into_iter().for_each(|member| world.exits(*run, member, 0, None));
            }
        }
    }
    assert!(world.state.ended().len() > 20, "work was done");
}

/// 32, volcano#1094, #4311, #3220, kueue#189: "not ready" 78,789 times and no resource named; "quota insufficient" for what nobody had limited.
#[test]
fn complaint_32_a_reason_names_what_is_asked_and_what_is_there_once_and_an_unlimited_resource_never_binds() {
    let mut world = World::new();
    configure(&mut world, "q", QueueConfigured { quota: Quota { gpus: Some(1), slots: None }, ..QueueConfigured::default() });
    world.node("n1", gpus_shape("n1", &[("A", None); 4]));
    world.slots("n2", 4);
    world.running(gpu_spec(1, 3));
    let (waits, unlimited) = (world.submit(gpu_spec(1, 2)), world.submit(job("q", 4)));
    for _ in 0..100 {
        world.settle();
        world.wait(60_000);
    }
    assert!(world.is_active(unlimited), "its queue says nothing of slots: no limit");
    assert_eq!(world.count(waits, |event| matches!(event, Event::JobWaiting(_))), 1);
    let told = explain(&world.state, &waits, world.now()).unwrap();
    let Some(WaitReason::Resources { detail }) = &told.reason else { panic!("{told:?}") };
    assert!(detail.starts_with("gpus: 2 free asked on 1 of 1 open nodes, 0 have them; most free: n1 with 1"), "{detail}");
    let over = world.submit(JobSpec { queue: queue_name("q"), ..gpu_spec(1, 2) });
    world.settle();
    let Some(WaitReason::Quota { detail }) = world.reason(over) else { panic!("{:?}", world.reason(over)) };
    assert_eq!(detail, "gpus: 0 of 1 in use, 2 asked");
}

/// 35, Slurm 25.05 and 25.11: a job that was queued again ran without the licence it had asked for; its use was taken off twice.
#[test]
fn complaint_35_a_job_that_is_queued_again_asks_for_all_it_asked_before_and_is_counted_off_once() {
    let mut world = World::new();
    world.node("n1", NodeShape { cpus: 16, ..gpus_shape("n1", &[("A", None); 4]) });
    let mut asks = JobSpec { preemptible: true, priority: -1, ..gpu_spec(1, 2) };
    asks.resources.per_node.cpus = 6;
    asks.resources.per_node.memory_bytes = 1 << 30;
    let run = world.running(asks);
    let placed = |world: &World| world.state.jobs()[&run].attempt().unwrap().members[0].placement.clone();
    let first = placed(&world);
    let urgent = world.submit(gpu_spec(1, 4));
    world.settle();
    let (subject, exited) = world.exit_of(run, 0, Exit::Code(143), Some(StopCause::Preempted));
    for _ in 0..3 {
        world.record(subject.clone(), AttemptExited { members: vec![exited.clone()] });
    }
    assert_eq!(world.state.queue(&queue_name("default")).holding.gpu_milli, 0);
    world.settle();
    assert!(world.is_active(urgent));
    world.exits(urgent, 0, 0, None);
    world.settle();
    let again = placed(&world);
    assert_eq!((again.gpus.len(), again.cpus, again.memory_bytes), (first.gpus.len(), first.cpus, first.memory_bytes));
    // What the first attempt said comes once more.
    world.record(subject, AttemptExited { members: vec![exited] });
    assert_eq!(world.state.queue(&queue_name("default")).holding.gpu_milli, 2_000);
}
