//! Agents' reports: folded once, in order, and only from the node that a run is placed on.

use crate::world::*;
use footplate_eventlog::{Expect, Headers, Message, StreamName};
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_events::messages::{MemberRef, Settled, TrackerReport, settled_subject};
use footplate_testkit::eventually;
use footplate_types::*;
use std::collections::BTreeMap;

fn params(run: RunId, key: &str, value: i64) -> TrackerReport {
    let params = [(ParamKey::parse(key).unwrap(), ParamValue::Int(value))].into();
    TrackerReport::Params { of: member(run), params: RunParamsLogged { attempt: AttemptNumber(9), rank: Rank(0), params } }
}

async fn settled(world: &World, node: &str, offset: u64) -> Settled {
    let subject = settled_subject(&NodeName::parse(node).unwrap(), "tracker");
    eventually(SOON, "the report is settled", || async {
        let last = world.broker.last(StreamName::Settled, &subject).await.unwrap()?;
        let settled: Settled = serde_json::from_slice(&last.payload).unwrap();
        (settled.up_to.offset >= offset).then_some(settled)
    })
    .await
}

async fn run_events(world: &World, run: RunId) -> usize {
    world.ledger.aggregate(&Subject::run(&project(), run)).await.unwrap().len()
}

#[tokio::test]
async fn reports_become_facts_of_their_members_attempt_and_are_settled() {
    let world = World::new().await;
    let run = world.running_job().await;
    let spool = footplate_clock::spool_id();
    let blobs = footplate_blobs::Blobs::local(&world.folder.path().join("objects")).unwrap();
    let blob = blobs.put_bytes(b"weights".to_vec().into()).await.unwrap();
    let artifact = LoggedArtifact {
        path: ArtifactPath::parse("图/轴.bin").unwrap(),
        digest: blob.digest,
        bytes: blob.bytes,
        attempt: AttemptNumber(0),
        rank: Rank(0),
    };
    let note = RunNoted { hypothesis: None, conclusion: Some("no gain".into()), note: None };
    let finished = RunFinished { outcome: Outcome::Failed, attempt: AttemptNumber(1), message: String::new(), sessions: Vec::new() };
    let reports = [
        params(run, "lr", 1),
        TrackerReport::Noted { of: member(run), noted: note },
        TrackerReport::Artifacts { of: member(run), artifacts: vec![artifact] },
        TrackerReport::Finished { of: member(run), finished },
    ];
    for (at, report) in reports.into_iter().enumerate() {
        world.report("n1", spool, at as u64 + 1, report).await;
    }
    settled(&world, "n1", 4).await;
    let shown = world.get(&run.to_string()).await;
    assert_eq!((shown.params["lr"].json.as_str(), shown.params["lr"].attempt), ("1", 1), "the attempt is the member's");
    assert_eq!((shown.conclusion.as_str(), shown.artifact_count), ("no gain", 1));
    assert_eq!(shown.state(), footplate_api::types::RunState::Running, "a worker's word ends nothing");
}

#[tokio::test]
async fn a_report_folded_by_a_tracker_that_died_before_it_settled_is_not_folded_again() {
    let mut world = World::new().await;
    let run = world.running_job().await;
    let spool = footplate_clock::spool_id();
    world.report("n1", spool, 1, params(run, "lr", 1)).await;
    settled(&world, "n1", 1).await;
    world.report("n1", spool, 2, params(run, "lr", 2)).await;
    world.report("n1", spool, 3, params(run, "lr", 1)).await;
    settled(&world, "n1", 3).await;
    let before = run_events(&world, run).await;
    // As if the last settled position had been lost with the broker's last messages, and the agent sent everything again.
    world.memory.as_ref().unwrap().wipe(StreamName::Settled);
    for offset in 1..=3 {
        world.report("n1", spool, offset, params(run, "lr", [1, 2, 1][offset as usize - 1])).await;
    }
    world.restart().await;
    settled(&world, "n1", 3).await;
    assert_eq!(run_events(&world, run).await, before);
    assert_eq!(world.get(&run.to_string()).await.params["lr"].json, "1");
}

#[tokio::test]
async fn a_node_cannot_speak_for_a_run_that_is_placed_elsewhere_and_its_spool_goes_on() {
    let world = World::new().await;
    let run = world.running_job().await;
    let spool = footplate_clock::spool_id();
    world.report("n2", spool, 1, params(run, "lr", 666)).await;
    let unknown = MemberRef { run: RunId::from_bytes([9; 16]), ..member(run) };
    let set = BTreeMap::from([(ParamKey::parse("a").unwrap(), "b".to_owned())]);
    world.report("n2", spool, 2, TrackerReport::Tags { of: unknown, tags: RunTagsSet { set, removed: Vec::new() } }).await;
    let missing = LoggedArtifact {
        path: ArtifactPath::parse("gone").unwrap(),
        digest: Digest::of(b"never stored"),
        bytes: 1,
        attempt: AttemptNumber(1),
        rank: Rank(0),
    };
    let artifacts = TrackerReport::Artifacts { of: member(run), artifacts: vec![missing] };
    world.report("n1", footplate_clock::spool_id(), 1, artifacts).await;
    settled(&world, "n2", 2).await;
    settled(&world, "n1", 1).await;
    assert_eq!(run_events(&world, run).await, 0);
    assert!(world.get(&run.to_string()).await.params.is_empty());
}

#[tokio::test]
async fn what_another_instance_has_settled_is_neither_folded_again_nor_settled_lower() {
    let world = World::new().await;
    let run = world.running_job().await;
    let (node, spool) = (NodeName::parse("n1").unwrap(), footplate_clock::spool_id());
    let up_to = footplate_events::messages::SpoolPosition { spool, offset: 50 };
    let payload = serde_json::to_vec(&Settled { node: node.clone(), up_to }).unwrap().into();
    let message = Message { subject: settled_subject(&node, "tracker"), headers: Headers::default(), payload };
    world.report("n1", spool, 1, params(run, "lr", 1)).await;
    settled(&world, "n1", 1).await;
    world.broker.publish(StreamName::Settled, message, Expect::Any).await.unwrap();
    world.report("n1", spool, 2, params(run, "lr", 2)).await;
    // What comes after it in the stream is settled, so it has been read.
    world.report("n2", footplate_clock::spool_id(), 1, params(run, "lr", 3)).await;
    settled(&world, "n2", 1).await;
    assert_eq!(settled(&world, "n1", 1).await.up_to.offset, 50);
    assert_eq!(world.get(&run.to_string()).await.params["lr"].json, "1");
}
