//! Devices: a fit is a fit on this GPU of that node, never on a sum.

use super::*;
use footplate_scheduler_core::{Refusal, admit};
use std::collections::BTreeMap;

/// 28, KAI#848, #2153, #416: a full node was given more and more; of a burst of halves four went onto one card, and the memory of it was given twice.
#[test]
fn complaint_28_a_burst_takes_every_gpu_once_and_who_is_left_waits() {
    let mut world = World::new();
    world.node("n1", gpus_shape("n1", &[("A", None); 8]));
    let runs: Vec<RunId> = (0..16).map(|_| world.submit(gpu_spec(1, 1))).collect();
    world.settle();
    let node = &world.state.nodes()[&node_name("n1")];
    let mut taken: Vec<&GpuUuid> = node.claims.values().flat_map(|claim| &claim.gpus).collect();
    taken.sort();
    taken.dedup();
    assert_eq!((active(&world, &runs), taken.len()), (8, 8));
    // Of halves exactly two a card.
    let mut world = World::new();
    world.node("n1", shared(gpus_shape("n1", &[("A", None); 8])));
    let runs: Vec<RunId> = (0..17).map(|_| world.submit(share_spec(500, 40 << 30))).collect();
    world.settle();
    let mut on: BTreeMap<GpuUuid, usize> = BTreeMap::new();
    for claim in world.state.nodes()[&node_name("n1")].claims.values() {
        *on.entry(claim.gpus[0].clone()).or_default() += 1;
    }
    assert_eq!((active(&world, &runs), on.len()), (16, 8));
    assert!(on.values().all(|count| *count == 2), "{on:?}");
    // Thousandths are left of each card, memory is not.
    world.exits(runs[0], 0, 1, None);
    world.settle();
    let greedy = world.submit(share_spec(100, 41 << 30));
    world.settle();
    assert!(world.is_pending(greedy) && active(&world, &runs) == 16, "who waited has taken the half");
}

/// 27, KAI#422, #987, HAMi#2724: slices were counted twice, or as no GPU at all where one was asked back; two slices of one GPU were refused.
#[test]
fn complaint_27_slices_wholes_and_shares_are_counted_in_one_unit_and_never_stand_on_each_other() {
    let mut world = World::new();
    configure(&mut world, "q", QueueConfigured { quota: Quota { gpus: Some(1), slots: None }, ..QueueConfigured::default() });
    let mut shape = shared(gpus_shape("n1", &[("A", None)]));
    shape.gpus.extend(slices("n1", "GPU-n1-split", "1g.10gb", 7));
    world.node("n1", shape);
    // Two slices of one GPU for one job; all seven of one GPU under a quota of one.
    let in_q = |spec: JobSpec| JobSpec { queue: queue_name("q"), ..spec };
    let two = world.submit(in_q(slice_spec(2, "1g.10gb")));
    let five: Vec<RunId> = (0..6).map(|_| world.submit(in_q(slice_spec(1, "1g.10gb")))).collect();
    world.settle();
    assert_eq!((world.is_active(two), active(&world, &five)), (true, 5));
    assert_eq!(world.state.queue(&queue_name("q")).holding.gpu_milli, 7 * 142);
    let Some(WaitReason::Quota { detail }) = world.reason(five[5]) else { panic!("{:?}", world.reason(five[5])) };
    assert_eq!(detail, "gpus: 0.994 of 1 in use, 0.142 asked");
    // Whoever asks a whole GPU gets the whole one, never a slice; a share stands on a whole one too, and not beside who has it alone.
    let (whole, next) = (world.submit(gpu_spec(1, 1)), world.submit(gpu_spec(1, 1)));
    let share = world.submit(share_spec(250, 0));
    world.settle();
    assert_eq!(world.state.jobs()[&whole].attempt().unwrap().members[0].placement.gpus[0].as_str(), "GPU-n1-0");
    assert!(world.is_pending(next) && world.is_pending(share));
    // What a slice is of turns bad: all slices of it are given to nobody; the whole one is.
    let split = NodeHealthChanged { gpu: Some(GpuUuid::parse("GPU-n1-split").unwrap()), healthy: false, reason: "Xid 79".to_owned() };
    world.record(Subject::node(&node_name("n1")), split);
    world.exits(two, 0, 0, None);
    world.exits(whole, 0, 0, None);
    world.settle();
    assert!(
        world.is_pending(five[5]) && world.is_active(next),
        "the seventh of q's slices has room under the quota now, and no healthy slice"
    );
}

/// 29, ray#52133, #42683: what fitted two devices together fitted neither.
#[test]
fn complaint_29_memory_is_had_on_one_gpu_and_never_summed_over_two() {
    let mut world = World::new();
    world.node("n1", gpus_shape("n1", &[("A", Some(0)), ("A", Some(0))]));
    let mut asks = gpu_spec(1, 1);
    asks.resources.per_node.gpu_memory_bytes = 160 << 30;
    let Err(Refusal::NeverFits { detail }) = admit(&world.state, &asks, false) else { panic!("two of 80GiB are not one of 160GiB") };
    assert!(detail.contains("has 0 gpus of the asked kind"), "{detail}");
}

/// 30, ray#35422, #64469: work without GPUs filled the nodes that have them, and the GPUs stood still.
#[test]
fn complaint_30_work_without_gpus_goes_to_nodes_without_gpus_as_long_as_it_can() {
    let mut world = World::new();
    world.node("gpus", NodeShape { slots: 2, cpus: 2, ..gpus_shape("gpus", &[("A", None), ("A", None)]) });
    world.node("plain", NodeShape { cpus: 8, ..slots_shape(8) });
    let with_cpus = |spec: JobSpec, cpus: u32| {
        let mut spec = spec;
        spec.resources.per_node.cpus = cpus;
        spec
    };
    let small: Vec<RunId> = (0..8).map(|_| world.submit(with_cpus(spec(1, 1), 1))).collect();
    world.settle();
    assert!(small.iter().all(|run| world.nodes_of(*run) == ["plain"]));
    let training = world.submit(with_cpus(gpu_spec(1, 2), 2));
    world.settle();
    assert!(world.is_active(training));
    // Where there is nothing else, it does not wait for ever.
    world.exits(training, 0, 0, None);
    let next = world.submit(with_cpus(spec(1, 1), 1));
    world.settle();
    assert_eq!(world.nodes_of(next), ["gpus"]);
}

/// 31, volcano#1818, pytorch/ci-infra#1058: two of eight GPUs were gone and were given all the same; a node that failed everything got everything.
#[test]
fn complaint_31_a_gpu_that_fails_is_given_to_nobody_from_that_event_on_and_a_retry_avoids_the_node() {
    let mut world = World::new();
    world.node("n1", gpus_shape("n1", &[("A", None); 8]));
    let unhealthy = |at: u32| NodeHealthChanged {
        gpu: Some(GpuUuid::parse(&format!("GPU-n1-{at}")).unwrap()),
        healthy: false,
        reason: "Xid 79".to_owned(),
    };
    let whole = world.submit(gpu_spec(1, 8));
    world.record(Subject::node(&node_name("n1")), unhealthy(3));
    world.record(Subject::node(&node_name("n1")), unhealthy(5));
    world.settle();
    assert!(world.is_pending(whole), "six are left");
    let six = world.submit(gpu_spec(1, 6));
    world.settle();
    let given = &world.state.jobs()[&six].attempt().unwrap().members[0].placement.gpus;
    assert!(given.iter().all(|gpu| !["GPU-n1-3", "GPU-n1-5"].contains(&gpu.as_str())), "{given:?}");
    // A black hole: the tightest fit, and every start fails there.
    let mut world = World::new();
    world.slots("hole", 1);
    world.slots("sound", 2);
    let run = world.submit(spec(1, 1));
    world.settle();
    assert_eq!(world.nodes_of(run), ["hole"]);
    world.not_started(run, 0, "disk is gone");
    world.settle();
    world.wait(600_000);
    world.settle();
    assert_eq!(world.nodes_of(run), ["sound"]);
}

/// 33, volcano#2264: deleted jobs kept their share, and nothing was scheduled for three days.
#[test]
fn complaint_33_a_cancel_gives_back_all_a_job_held_with_the_event_of_its_end() {
    let mut world = World::new();
    configure(&mut world, "q", QueueConfigured { quota: slots_quota(2), ..QueueConfigured::default() });
    world.slots("n1", 2);
    let (runs, waits) = (world.running(job("q", 2)), world.submit(job("q", 2)));
    let queue = |world: &World| {
        let queue = world.state.queue(&queue_name("q"));
        (queue.holding.slots, queue.living)
    };
    world.settle();
    assert_eq!(queue(&world), (2, 2));
    world.cancel(runs, 1);
    world.cancel(waits, 1);
    world.settle();
    assert_eq!(queue(&world), (2, 1), "who waits is gone at once, who runs when its process is");
    world.exits(runs, 0, 143, Some(StopCause::Cancelled));
    assert_eq!(queue(&world).0, 0);
    let next = world.submit(job("q", 2));
    world.settle();
    assert!(world.is_active(next));
    use footplate_es::Project;
    let recounted: footplate_scheduler_core::State = world.story.folded();
    assert_eq!(recounted.fingerprint(), world.state.fingerprint(), "counted anew it is the same");
}
