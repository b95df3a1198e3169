//! The stream of decisions over the wire.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{ApiError, types, v1};
use futures::StreamExt;
use tokio::time::timeout;

fn asked(project: &str) -> v1::WatchDecisionsRequest {
    v1::WatchDecisionsRequest { project: project.to_owned(), ..v1::WatchDecisionsRequest::default() }
}

async fn open(instance: &Instance, asked: v1::WatchDecisionsRequest) -> Result<tonic::Streaming<v1::Decision>, ApiError> {
    instance.client.once(instance.client.jobs().watch_decisions(asked)).await
}

/// All of a stream that ends.
async fn all(instance: &Instance, asked: v1::WatchDecisionsRequest) -> Vec<v1::Decision> {
    let stream = open(instance, asked).await.unwrap();
    let decisions = timeout(SOON, stream.map(Result::unwrap).collect()).await;
    decisions.expect("the stream ends")
}

fn kinds(decisions: &[v1::Decision]) -> Vec<&str> {
    decisions.iter().map(|decision| decision.kind.as_str()).collect()
}

fn of_queue(queue: &str, spec: types::JobSpec) -> types::JobSpec {
    types::JobSpec { queue: queue.to_owned(), ..spec }
}

/// A job of another project.
async fn of_speech(stage: &Stage) -> String {
    let request = v1::SubmitJobRequest { project: "speech".to_owned(), queue_anyway: true, ..submission(spec(1, 9)) };
    stage.scheduler.submit(request).await.unwrap().run_id
}

#[tokio::test]
async fn a_life_is_told_decision_by_decision_as_it_stands_in_the_ledger() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let hands = Hands::new(stage.broker.clone(), false);
    let low = stage.scheduler.submitted(types::JobSpec { preemptible: true, ..spec(1, 1) }).await;
    // Opened before anything is decided about it, it ends by itself with the job.
    let life = v1::WatchDecisionsRequest { run_id: low.clone(), follow: true, ..asked("vision") };
    let followed = open(&stage.scheduler, life.clone()).await.unwrap();
    stage.scheduler.reaches(&low, "launched").await;
    let high = stage.scheduler.submitted(types::JobSpec { priority: 9, ..spec(1, 1) }).await;
    stage.scheduler.reaches(&high, "launched").await;
    hands.finish();
    stage.scheduler.reaches(&low, "ended").await;
    let followed: Vec<v1::Decision> = timeout(SOON, followed.map(Result::unwrap).collect()).await.expect("it ends with the job");
    let mut life_of_low = kinds(&followed);
    life_of_low.retain(|kind| *kind != "waiting");
    assert_eq!(life_of_low, ["placed", "launched", "stop_requested", "requeued", "placed", "launched", "ended"]);
    let of = |kind: &str| followed.iter().find(|decision| decision.kind == kind).unwrap();
    let placed = of("placed");
    assert_eq!((placed.attempt, &placed.nodes[..], placed.queue.as_str()), (1, &["n1".to_owned()][..], "default"));
    assert_eq!((placed.text.as_str(), placed.run_id.as_str(), placed.project.as_str()), ("attempt 1 placed on n1", low.as_str(), "vision"));
    let upon = placed.upon.as_ref().unwrap();
    assert!(upon.view_sequence > 0 && upon.view_sequence < placed.sequence && !upon.policy.is_empty(), "{upon:?}");
    let stop = of("stop_requested");
    assert_eq!((stop.cause.as_str(), stop.attempt), ("preempted", 1));
    assert!(stop.text.contains(&format!("makes room for run {high}")), "{}", stop.text);
    assert_eq!((of("requeued").cause.as_str(), of("ended").cause.as_str()), ("preempted", "success"));
    // Read again it is the same, from wherever one reads, and it ends though it follows: there is nothing to come.
    assert_eq!(all(&stage.scheduler, life.clone()).await, followed);
    let from = v1::WatchDecisionsRequest { from_sequence: stop.sequence, ..life.clone() };
    let at = followed.iter().position(|decision| decision.sequence == stop.sequence).unwrap();
    assert_eq!(all(&stage.scheduler, from).await, followed[at..]);
    let newest = v1::WatchDecisionsRequest { newest: 2, ..life };
    assert_eq!(all(&stage.scheduler, newest).await, followed[followed.len() - 2..]);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_project_a_queue_and_a_job_are_told_alone() {
    let stage = stage().await;
    let set = v1::SetQueueRequest { name: "night".to_owned(), ..v1::SetQueueRequest::default() };
    stage.scheduler.client.once(stage.scheduler.client.queues().set_queue(set)).await.unwrap();
    register(stage.broker.as_ref(), "n1", 2).await;
    let day = stage.scheduler.submitted(spec(1, 1)).await;
    let night = stage.scheduler.submitted(of_queue("night", spec(1, 1))).await;
    let speech = of_speech(&stage).await;
    for run in [&day, &night] {
        stage.scheduler.reaches(run, "placed").await;
    }
    let told = async |request: v1::WatchDecisionsRequest| {
        let decisions = all(&stage.scheduler, request).await;
        decisions.into_iter().map(|decision| (decision.run_id, decision.kind)).collect::<Vec<_>>()
    };
    let everything = footplate_testkit::eventually(SOON, "the job of speech is told why it waits", || async {
        let all = told(asked("")).await;
        all.iter().any(|(run, _)| *run == speech).then_some(all)
    })
    .await;
    let placed = |run: &String| (run.clone(), "placed".to_owned());
    assert!(everything.contains(&placed(&day)) && everything.contains(&placed(&night)), "{everything:?}");
    let vision = told(asked("vision")).await;
    assert!(vision.contains(&placed(&day)) && !vision.iter().any(|(run, _)| *run == speech), "{vision:?}");
    assert!(told(asked("speech")).await.iter().all(|(run, kind)| *run == speech && kind == "waiting"));
    let by_queue = v1::WatchDecisionsRequest { queue: "night".to_owned(), ..asked("vision") };
    assert!(told(by_queue.clone()).await.iter().all(|(run, _)| *run == night));
    assert_eq!(told(v1::WatchDecisionsRequest { newest: 1, ..by_queue }).await, [placed(&night)]);
    let none = v1::WatchDecisionsRequest { queue: "nobody".to_owned(), ..asked("") };
    assert_eq!(told(none).await, []);
    // A whole id is enough to find the project; a prefix is one within a project.
    assert!(told(v1::WatchDecisionsRequest { run_id: speech.clone(), ..asked("") }).await.iter().all(|(run, _)| *run == speech));
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn what_comes_is_told_as_it_comes_and_a_stopping_instance_says_so() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    register(stage.broker.as_ref(), "n1", 1).await;
    // By the instance that does not lead, as by any.
    let mut stream = open(&other, v1::WatchDecisionsRequest { follow: true, newest: 1, ..asked("vision") }).await.unwrap();
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    let first = timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap();
    assert_eq!((first.run_id.as_str(), first.kind.as_str()), (run.as_str(), "placed"));
    let asked = v1::JobRequest { project: "vision".to_owned(), run_id: run.clone(), wait: true, ..v1::JobRequest::default() };
    let answer = stage.scheduler.client.once(stage.scheduler.client.jobs().hold_job(asked)).await.unwrap();
    assert!(!answer.refused.is_empty());
    let second = timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap();
    assert_eq!((second.kind.as_str(), second.run_id.as_str()), ("refused", run.as_str()));
    assert!(second.text.contains(&answer.refused), "{}", second.text);
    other.context.shutdown.request();
    let ended = timeout(SOON, stream.message()).await.expect("it ends").unwrap_err();
    assert_eq!(ApiError::from_status(&ended, "here").reason, "STOPPING");
    other.context.supervisor.stopped().await.unwrap();
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn what_cannot_be_told_is_refused_with_its_field() {
    let stage = stage().await;
    let bad = [
        (v1::WatchDecisionsRequest { newest: 1_001, ..asked("vision") }, "INVALID_FIELD", "newest"),
        (v1::WatchDecisionsRequest { newest: 1, from_sequence: 1, ..asked("vision") }, "INVALID_FIELD", "newest"),
        (v1::WatchDecisionsRequest { queue: "No Queue".to_owned(), ..asked("vision") }, "INVALID_FIELD", "queue"),
        (v1::WatchDecisionsRequest { run_id: "0".repeat(32), ..asked("vision") }, "JOB_NOT_FOUND", "run_id"),
        (v1::WatchDecisionsRequest { run_id: "0".repeat(32), ..asked("") }, "JOB_NOT_FOUND", "run_id"),
        (v1::WatchDecisionsRequest { run_id: "0190".to_owned(), ..asked("") }, "INVALID_FIELD", "run_id"),
    ];
    for (request, reason, field) in bad {
        let refused = open(&stage.scheduler, request.clone()).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.field.as_deref()), (reason, Some(field)), "{request:?}: {refused:?}");
    }
    assert_eq!(all(&stage.scheduler, v1::WatchDecisionsRequest { from_sequence: 1 << 40, ..asked("vision") }).await, []);
    stage.scheduler.stop().await;
}
