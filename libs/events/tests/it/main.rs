//! Golden files: every event type as it was first written, for ever readable, for ever written in the same bytes.
//!
//! A field that is added later is skipped at its default, so that these files never change. A new type gets its file by
//! `UPDATE_GOLDEN=1 cargo test -p footplate-events --test it -- --test-threads 1`; a file that is there is never rewritten by that.
#![allow(clippy::unwrap_used)]

mod job_sizes;
mod samples;

use footplate_events::facts::{
    AfterJob, AfterWhen, JobSubmitted, MemberPlacement, PerNode, QueueConfigured, Quota, TrialObserved, WaitReason,
};
use footplate_events::{Decoded, Envelope, Event, Recorded, Subject, Trace, decode, encode, known_types};
use footplate_types::{EventId, Gpu, GpuModel, GpuUuid, MigProfile, NodeShape, PrincipalId, QueueName, RunId, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn envelope(subject: Subject, event: Event) -> Envelope {
    Envelope {
        id: EventId::from_bytes([0x11; 16]),
        subject,
        event,
        source: "service/host-1 4711".to_owned(),
        time: Timestamp::from_millis(1_764_500_000_123),
        actor: PrincipalId::parse("user:ada").unwrap(),
        correlation: EventId::from_bytes([0x22; 16]),
        causation: Some(EventId::from_bytes([0x33; 16])),
        trace: Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    }
}

fn written(envelope: &Envelope) -> String {
    let (headers, payload) = encode(envelope).unwrap();
    let headers: serde_json::Map<String, Value> = headers.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    let whole = json!({ "subject": envelope.subject.to_string(), "headers": headers, "payload": payload });
    serde_json::to_string_pretty(&whole).unwrap() + "\n"
}

/// The golden file of a type; written when it is missing and that is asked for.
fn golden(envelope: &Envelope) -> Value {
    let path = folder().join(format!("{}.json", envelope.event.event_type()));
    if !path.exists() && std::env::var("UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(&path, written(envelope)).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; a new type gets its file by UPDATE_GOLDEN=1", path.display());
    });
    serde_json::from_str(&text).unwrap()
}

fn lines(headers: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    headers.as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

#[test]
fn every_type_has_a_sample() {
    let sampled: BTreeSet<String> = samples::samples().iter().map(|(_, event)| event.event_type().to_string()).collect();
    let known: BTreeSet<String> = known_types().iter().map(ToString::to_string).collect();
    assert_eq!(sampled, known);
}

#[test]
fn every_golden_file_reads_to_its_value_and_is_written_in_the_same_bytes() {
    for (subject, event) in samples::samples() {
        let envelope = envelope(subject, event);
        let golden = golden(&envelope);
        let headers = lines(&golden["headers"]);
        let payload = serde_json::to_vec(&golden["payload"]).unwrap();
        let at = Timestamp::from_millis(5);
        let read = decode(7, at, golden["subject"].as_str().unwrap(), &headers, &payload);
        let expected = Decoded::Known(Box::new(Recorded { sequence: 7, recorded_at: at, envelope: envelope.clone() }));
        assert_eq!(read, expected, "{}", envelope.event.event_type());
        let (headers_now, payload_now) = encode(&envelope).unwrap();
        assert_eq!(String::from_utf8_lossy(&payload_now), String::from_utf8_lossy(&payload), "{}", envelope.event.event_type());
        let headers_now: Vec<_> = headers_now.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(headers_now, headers, "{}", envelope.event.event_type());
    }
}

/// A version that was ever written stays readable: no golden file may be without its type.
#[test]
fn every_golden_file_is_of_a_known_type() {
    let known: BTreeSet<String> = known_types().iter().map(|event_type| format!("{event_type}.json")).collect();
    let found: BTreeSet<String> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(found, known);
}

/// Rule 11: a reader of an older build meets fields that it does not know, and reads the rest.
#[test]
fn a_field_that_a_newer_build_added_does_not_keep_an_older_one_from_reading() {
    for (subject, event) in samples::samples() {
        let envelope = envelope(subject, event);
        let golden = golden(&envelope);
        let mut payload = golden["payload"].clone();
        payload.as_object_mut().unwrap().insert("added_later".to_owned(), json!({ "x": [1, 2] }));
        let payload = serde_json::to_vec(&payload).unwrap();
        let read = decode(1, Timestamp::default(), golden["subject"].as_str().unwrap(), &lines(&golden["headers"]), &payload);
        assert!(matches!(&read, Decoded::Known(recorded) if recorded.envelope == envelope), "{read:?}");
    }
}

/// Rule 11: what was added to a type later stands in its payload where something was said, and reads back.
#[test]
fn a_queues_place_in_the_tree_is_written_and_read() {
    let name = |text: &str| QueueName::parse(text).unwrap();
    let guarantee = Quota { gpus: Some(8), slots: None };
    let settings = QueueConfigured { guarantee, parent: Some(name("vision")), ..QueueConfigured::default() };
    let envelope = envelope(Subject::queue(&name("cars")), settings.into());
    let (headers, payload) = encode(&envelope).unwrap();
    let value: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!((&value["guarantee"], &value["parent"]), (&json!({ "gpus": 8 }), &json!("vision")));
    let headers: Vec<(String, String)> = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let read = decode(1, Timestamp::default(), &envelope.subject.to_string(), &headers, &payload);
    assert!(matches!(&read, Decoded::Known(recorded) if recorded.envelope == envelope), "{read:?}");
}

/// Rule 11: parts of GPUs stand in payloads where they were asked, and read back.
#[test]
fn slices_and_shares_are_written_and_read_and_whole_gpus_say_nothing_of_them() {
    let gpu = |text: &str| GpuUuid::parse(text).unwrap();
    let mut placed = samples::samples()
        .into_iter()
        .find_map(|(_, event)| if let Event::JobPlaced(fact) = event { Some(fact.members[0].clone()) } else { None })
        .unwrap();
    let written = |member: &MemberPlacement| serde_json::to_value(member).unwrap();
    assert!(["gpu_share", "gpu_memory_bytes", "gpu_profile"].iter().all(|key| written(&placed).get(key).is_none()));
    (placed.gpus, placed.gpu_share, placed.gpu_memory_bytes) = (vec![gpu("GPU-0")], 250, 1 << 30);
    assert_eq!((&written(&placed)["gpu_share"], &written(&placed)["gpu_memory_bytes"]), (&json!(250), &json!(1 << 30)));
    assert_eq!(serde_json::from_value::<MemberPlacement>(written(&placed)).unwrap(), placed);
    let ask = PerNode { gpus: 2, gpu_profile: MigProfile::parse("1g.10gb").ok(), ..PerNode::default() };
    let value = serde_json::to_value(&ask).unwrap();
    assert_eq!((&value["gpu_profile"], value.get("gpu_share")), (&json!("1g.10gb"), None));
    assert_eq!(serde_json::from_value::<PerNode>(value).unwrap(), ask);
    let slice = Gpu {
        uuid: gpu("MIG-0"),
        model: GpuModel::parse("H100").unwrap(),
        memory_bytes: 10 << 30,
        island: None,
        numa: None,
        pci: None,
        mig_profile: Some("1g.10gb".to_owned()),
        parent: Some(gpu("GPU-0")),
    };
    let shape = NodeShape { gpus: vec![slice], share_gpus: true, ..NodeShape::default() };
    let value = serde_json::to_value(&shape).unwrap();
    assert_eq!((&value["gpus"][0]["parent"], &value["share_gpus"]), (&json!("GPU-0"), &json!(true)));
    assert_eq!(serde_json::from_value::<NodeShape>(value).unwrap(), shape);
}

#[test]
fn what_a_job_comes_after_is_written_only_where_there_is_something() {
    let submitted = |event| if let Event::JobSubmitted(fact) = event { Some(fact) } else { None };
    let mut fact = samples::samples().into_iter().find_map(|(_, event)| submitted(event)).unwrap();
    let written = |fact: &JobSubmitted| serde_json::to_value(fact).unwrap()["spec"]["after"].clone();
    assert_eq!(written(&fact), Value::Null);
    fact.spec.after = vec![AfterJob { run: RunId::from_bytes([0x17; 16]), when: AfterWhen::Failure }];
    assert_eq!(written(&fact), json!([{ "run": "17".repeat(16), "when": "failure" }]));
    assert_eq!(serde_json::from_value::<JobSubmitted>(serde_json::to_value(&fact).unwrap()).unwrap(), fact);
    let reason = WaitReason::Dependencies { detail: "success of run 17".to_owned() };
    assert_eq!(serde_json::to_value(reason).unwrap(), json!({ "kind": "dependencies", "detail": "success of run 17" }));
}

/// What a sweep compares and a seal keeps is the number that was logged, to its last bit.
#[test]
fn a_number_is_read_as_it_was_written() {
    let mut bits: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..2_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = f64::from_bits(bits >> 2 | 0x3f00_0000_0000_0000);
        let event = TrialObserved { rung: 3, step: 4, value: Some(value) };
        let read: TrialObserved = serde_json::from_slice(&serde_json::to_vec(&event).unwrap()).unwrap();
        assert_eq!(read.value, Some(value));
    }
}
