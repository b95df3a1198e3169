//! What a job may ask at most: refused by its name beyond that, and within it always small enough for an event.

use crate::{envelope, samples};
use footplate_events::facts::{InputRef, JobSpec, JobSubmitted, StopNotice, StopSignal};
use footplate_events::{Subject, encode};
use footplate_types::{Digest, GpuModel, MetricName, Millis, NodeName, ProjectName, RunId};

fn fault(change: impl FnOnce(&mut JobSpec)) -> String {
    let mut spec = samples::spec();
    assert_eq!(spec.validate(), Ok(()));
    change(&mut spec);
    spec.validate().unwrap_err().field
}

#[test]
fn what_no_machine_has_and_no_event_holds_is_refused_by_its_name() {
    assert_eq!(fault(|spec| spec.resources.per_node.memory_bytes = u64::MAX), "resources.memory");
    assert_eq!(fault(|spec| spec.resources.per_node.disk_bytes = (1 << 60) + 1), "resources.disk");
    assert_eq!(fault(|spec| spec.resources.per_node.gpu_memory_bytes = 1 << 63), "resources.gpu.memory");
    assert_eq!(fault(|spec| spec.resources.per_node.cpus = u32::MAX), "resources.cpus");
    // It could never be stopped for a drain or a preemption.
    let endless = StopNotice { signal: StopSignal::Usr1, before: Millis(u64::MAX) };
    assert_eq!(fault(|spec| spec.stop.notice = Some(endless)), "stop.notify.before");
    assert_eq!(fault(|spec| spec.stop.grace = Millis(86_400_001)), "stop.grace");
    assert_eq!(fault(|spec| (spec.retry.backoff, spec.retry.backoff_max) = (Millis(u64::MAX), Millis(u64::MAX))), "retry.backoff");
    assert_eq!(fault(|spec| spec.placement.pool = Some("p".repeat(1_001))), "placement.pool (characters)");
    assert_eq!(fault(|spec| spec.masked = vec!["env.A".to_owned(); 4_097]), "masked (count)");
    assert_eq!(fault(|spec| spec.labels = [(String::new(), "x".to_owned())].into()), "labels");
    assert_eq!(fault(|spec| spec.source.as_mut().unwrap().remark = "r".repeat(4_001)), "source.remark (characters)");
    assert_eq!(fault(|spec| spec.inputs[0].snapshot = "s".repeat(4_001)), "data.snapshot (characters)");
    let long = fault(|spec| spec.labels = [("k".repeat(100_000), "x".to_owned())].into());
    assert!(long.len() < 100, "what is too long is not told in full: {} bytes", long.len());
}

#[test]
fn many_texts_that_are_short_enough_alone_are_too_much_together() {
    let labels = |count: usize| (0..count).map(|n| (format!("{n:03}"), "视".repeat(900))).collect();
    assert_eq!(fault(|spec| spec.labels = labels(256)), "job (bytes of all its texts)");
    let mut fits = samples::spec();
    fits.labels = labels(60);
    assert_eq!(fits.validate(), Ok(()));
}

#[test]
fn the_largest_job_that_is_taken_fits_into_an_event() {
    let mut spec = samples::spec();
    let input = InputRef { name: "d".to_owned(), snapshot: "\u{1}".repeat(50), digest: Some(Digest::of(b"data")) };
    spec.inputs = vec![input; JobSpec::LIST_MAX];
    spec.retry.exit_codes = vec![i32::MIN; JobSpec::LIST_MAX];
    spec.objectives = vec![MetricName::parse(&"m".repeat(100)).unwrap(); JobSpec::LIST_MAX];
    spec.placement.nodes = vec![NodeName::parse("gpu-0123456789").unwrap(); JobSpec::LIST_MAX];
    spec.placement.exclude = spec.placement.nodes.clone();
    spec.resources.per_node.gpu_models = vec![GpuModel::parse("NVIDIA H200").unwrap(); JobSpec::LIST_MAX];
    spec.masked.clear();
    while spec.validate().is_ok() {
        spec.masked.push("\"".repeat(100));
    }
    spec.masked.pop();
    assert_eq!(spec.validate(), Ok(()));
    let subject = Subject::job(&ProjectName::parse("vision").unwrap(), RunId::from_bytes([7; 16]));
    let (_, payload) = encode(&envelope(subject, JobSubmitted { spec, body: Digest::of(b"body") }.into())).unwrap();
    assert!(payload.len() > 200 * 1024, "close to the limit: {}", payload.len());
}
