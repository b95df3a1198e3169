//! Arrays: one call, one append, one answer however often it is asked; listed, told and cancelled together.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{ApiError, types, v1};
use footplate_eventlog::StreamName;
use footplate_events::Event;
use std::collections::BTreeSet;

fn array(key: &str, indices: &str, at_once: u32) -> v1::SubmitArrayRequest {
    v1::SubmitArrayRequest {
        project: "vision".to_owned(),
        spec: Some(spec(1, 1)),
        indices: indices.to_owned(),
        at_once,
        request_id: key.to_owned(),
        ..v1::SubmitArrayRequest::default()
    }
}

impl Instance {
    async fn array(&self, request: v1::SubmitArrayRequest) -> Result<v1::SubmitArrayResponse, ApiError> {
        self.client.once(self.client.jobs().submit_array(request)).await
    }

    async fn listed(&self, array: &str, states: &[&str]) -> Result<Vec<v1::Job>, ApiError> {
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        let asked = v1::ListJobsRequest {
            project: "vision".to_owned(),
            array: array.to_owned(),
            states,
            page_size: 500,
            ..v1::ListJobsRequest::default()
        };
        Ok(self.client.once(self.client.jobs().list_jobs(asked)).await?.jobs)
    }

    async fn cancel_array(&self, array: &str, key: &str) -> Result<v1::CancelArrayResponse, ApiError> {
        let asked = v1::JobRequest {
            project: "vision".to_owned(),
            run_id: array.to_owned(),
            reason: "enough".to_owned(),
            request_id: key.to_owned(),
            wait: true,
        };
        self.client.once(self.client.jobs().cancel_array(asked)).await
    }
}

#[tokio::test]
async fn an_array_is_one_append_of_jobs_that_differ_in_a_number_and_plays_to_its_end_two_at_a_time() {
    let stage = stage().await;
    let before = stage.scheduler.ledger.end().await.unwrap();
    let answer = stage.scheduler.array(array("", "1,5-7", 2)).await.unwrap();
    assert_eq!(answer.jobs.iter().map(|job| job.index).collect::<Vec<_>>(), [1, 5, 6, 7]);
    let first = answer.jobs[0].sequence;
    assert!(first > before && answer.jobs.iter().map(|job| job.sequence).eq(first..first + 4), "{answer:?}");
    assert_eq!((answer.sequence, answer.array_id.as_str()), (first + 3, answer.jobs[0].run_id.as_str()));
    let job = stage.scheduler.reaches(&answer.jobs[2].run_id, "pending").await;
    let shown = job.array.unwrap();
    assert_eq!(
        (job.name.as_str(), shown.id.as_str(), shown.index, shown.count, shown.at_once),
        ("train-6", answer.array_id.as_str(), 6, 4, 2)
    );
    let labels = job.spec.unwrap().labels;
    assert_eq!((labels["array"].as_str(), labels["array_index"].as_str()), (answer.array_id.as_str(), "6"));
    let _hands = Hands::new(stage.broker.clone(), true);
    register(stage.broker.as_ref(), "n1", 8).await;
    for job in &answer.jobs {
        let ended = stage.scheduler.reaches(&job.run_id, "ended").await;
        assert_eq!((ended.outcome(), ended.array.unwrap().index), (types::Outcome::Succeeded, job.index));
    }
    // In the ledger's order: never more than two between their placement and their end.
    let (mut placed, mut most) = (0, 0);
    let (items, _) = stage.scheduler.ledger.read("fp.ledger.>", 1, 10_000).await.unwrap();
    for item in items {
        let footplate_eventlog::LedgerItem::Fact(recorded) = item else { continue };
        match recorded.envelope.event {
            Event::JobPlaced(_) => placed += 1,
            Event::JobEnded(_) => placed -= 1,
            _ => {}
        }
        most = most.max(placed);
    }
    assert_eq!(most, 2);
    let verified = stage.scheduler.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn twenty_submits_of_one_key_at_two_instances_at_once_make_one_array_and_another_body_is_refused() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    stage.broker.faults().lose_next_ack(StreamName::Ledger);
    let mut calls = Vec::new();
    for n in 0..20 {
        let client = if n % 2 == 0 { stage.scheduler.client.clone() } else { other.client.clone() };
        calls.push(tokio::spawn(async move { client.once(client.jobs().submit_array(array("nightly", "0-99", 3))).await }));
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap().unwrap());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let runs: BTreeSet<&str> = answers[0].jobs.iter().map(|job| job.run_id.as_str()).collect();
    assert_eq!(runs.len(), 100);
    stage.scheduler.handle.live().at_least(answers[0].sequence, SOON).await.unwrap();
    assert_eq!(stage.scheduler.handle.live().read().jobs().len(), 100);
    for another in [array("nightly", "0-98", 3), array("nightly", "0-99", 4), array("nightly", "1-100", 3)] {
        assert_eq!(other.array(another).await.unwrap_err().reason, "IDEMPOTENCY_KEY_REUSED");
    }
    // A job, a pipeline and an array of one key are three things; two arrays without a key are two.
    let single = v1::SubmitJobRequest { request_id: "nightly".to_owned(), ..submission(spec(1, 1)) };
    assert!(stage.scheduler.submit(single).await.is_ok());
    let (one, two) = (stage.scheduler.array(array("", "0-1", 0)).await.unwrap(), stage.scheduler.array(array("", "0-1", 0)).await.unwrap());
    assert_ne!((one.array_id, &one.jobs[1].run_id), (two.array_id, &two.jobs[1].run_id));
    stage.scheduler.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn an_id_that_the_client_minted_names_the_array_and_one_that_stands_is_refused() {
    let stage = stage().await;
    let id = "17".repeat(16);
    let minted = || v1::SubmitArrayRequest { array_id: id.clone(), ..array("", "0-2", 1) };
    let answer = stage.scheduler.array(minted()).await.unwrap();
    assert_eq!((answer.array_id.as_str(), answer.jobs[0].run_id.as_str()), (id.as_str(), id.as_str()));
    assert_eq!(stage.scheduler.array(minted()).await.unwrap(), answer, "the same again");
    let other = v1::SubmitArrayRequest { at_once: 2, ..minted() };
    assert_eq!(stage.scheduler.array(other).await.unwrap_err().reason, "ID_TAKEN");
    let taken = stage.scheduler.submitted(spec(1, 1)).await;
    let refused = stage.scheduler.array(v1::SubmitArrayRequest { array_id: taken, ..array("", "0-2", 1) }).await.unwrap_err();
    assert_eq!(refused.reason, "ID_TAKEN");
    assert_eq!(stage.scheduler.handle.live().read().jobs().len(), 4);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn what_is_no_array_is_refused_whole_with_its_field() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 4).await;
    let before = stage.scheduler.ledger.end().await.unwrap();
    stage.scheduler.handle.live().at_least(before, SOON).await.unwrap();
    let refused = |request: v1::SubmitArrayRequest| async {
        let refused = stage.scheduler.array(request).await.unwrap_err();
        (refused.reason.clone(), refused.field.clone().unwrap_or_default(), refused.allowed.clone().unwrap_or_default())
    };
    let (reason, field, allowed) = refused(array("", "0-1000", 0)).await;
    assert_eq!((reason.as_str(), field.as_str()), ("INVALID_SPEC", "array.indices"));
    assert!(allowed.starts_with("at most 1000 indices"), "{allowed}");
    for (indices, at_once, expected) in
        [("", 0, "array.indices"), ("5-1", 0, "array.indices"), ("0,0", 0, "array.indices"), ("0", 1_001, "array.at_once")]
    {
        assert_eq!(refused(array("", indices, at_once)).await.1, expected, "{indices}");
    }
    let of = |spec: types::JobSpec| v1::SubmitArrayRequest { spec: Some(spec), ..array("", "0-9", 0) };
    assert_eq!(refused(of(spec(1, 99))).await.0, "NO_NODE_FITS");
    assert_eq!(refused(of(types::JobSpec { name: "x".repeat(250), ..spec(1, 1) })).await.1, "name");
    let told = types::ArrayMember { id: "17".repeat(16), index: 1, count: 1, at_once: 0 };
    assert_eq!(refused(of(types::JobSpec { array: Some(told), ..spec(1, 1) })).await.1, "spec.array");
    assert_eq!(refused(v1::SubmitArrayRequest { spec: None, ..array("", "0", 0) }).await.0, "MISSING_FIELD");
    assert_eq!(refused(v1::SubmitArrayRequest { array_id: "zz".to_owned(), ..array("", "0", 0) }).await.1, "array_id");
    let heavy = types::JobSpec { why: Some(types::Why { hypothesis: "x".repeat(30_000), ..types::Why::default() }), ..spec(1, 1) };
    assert_eq!(refused(v1::SubmitArrayRequest { spec: Some(heavy), ..array("", "0-999", 0) }).await.1, "indices");
    let dry = stage.scheduler.array(v1::SubmitArrayRequest { dry_run: true, ..array("", "0-9", 2) }).await.unwrap();
    assert_eq!((dry.remark.as_str(), dry.jobs.len(), dry.array_id.as_str()), ("it could start now", 10, ""));
    assert!(dry.jobs.iter().all(|job| job.run_id.is_empty()));
    assert!(stage.scheduler.handle.live().read().jobs().is_empty());
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn an_array_is_listed_told_and_cancelled_by_any_job_of_it() {
    let stage = stage().await;
    let hands = Hands::new(stage.broker.clone(), false);
    register(stage.broker.as_ref(), "n1", 8).await;
    let alone = stage.scheduler.submitted(spec(1, 1)).await;
    let answer = stage.scheduler.array(array("", "0-19", 3)).await.unwrap();
    for job in &answer.jobs[..3] {
        stage.scheduler.reaches(&job.run_id, "launched").await;
    }
    let member = &answer.jobs[15].run_id;
    let why = footplate_testkit::eventually(SOON, "the wait is told", || async {
        let asked = v1::GetJobRequest { project: "vision".to_owned(), run_id: member.clone(), at_least: 0 };
        let why = stage.scheduler.client.once(stage.scheduler.client.jobs().explain_job(asked)).await.unwrap();
        why.reason.contains("others of its array").then_some(why)
    })
    .await;
    assert!(why.reason.ends_with("3 are, 0 stand in line, 12 wait before it"), "{}", why.reason);
    let names = |jobs: Vec<v1::Job>| jobs.into_iter().map(|job| job.name).collect::<BTreeSet<_>>();
    let all = names(stage.scheduler.listed(member, &[]).await.unwrap());
    assert!(all.len() == 20 && all.iter().all(|name| name.starts_with("train-")), "{all:?}");
    assert_eq!(stage.scheduler.listed(&answer.array_id[..30], &["launched"]).await.unwrap().len(), 3);
    let refused = stage.scheduler.listed(&alone, &[]).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("JOB_NOT_FOUND", Some("array")));
    assert_eq!(stage.scheduler.cancel_array(&"17".repeat(16), "").await.unwrap_err().reason, "JOB_NOT_FOUND");
    assert_eq!(stage.scheduler.cancel_array(&alone, "").await.unwrap_err().reason, "JOB_NOT_FOUND");
    let cancelled = stage.scheduler.cancel_array(member, "stop").await.unwrap();
    assert_eq!((cancelled.array_id.as_str(), cancelled.asked, cancelled.answered), (answer.array_id.as_str(), 20, 20));
    for job in &answer.jobs {
        assert_eq!(stage.scheduler.reaches(&job.run_id, "ended").await.outcome(), types::Outcome::Cancelled);
    }
    let placed = answer.jobs.iter().map(|job| stage.scheduler.events(&job.run_id));
    let placed = futures::future::join_all(placed).await;
    assert_eq!(placed.iter().flatten().filter(|event| matches!(event, Event::JobPlaced(_))).count(), 3, "none was placed on the way");
    assert_eq!(stage.scheduler.cancel_array(member, "again").await.unwrap().asked, 0, "nothing is left of it");
    assert_eq!(stage.scheduler.listed(&answer.array_id, &["ended"]).await.unwrap().len(), 20);
    hands.finish();
    assert_eq!(stage.scheduler.reaches(&alone, "ended").await.outcome(), types::Outcome::Succeeded);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_job_that_repeats_one_of_an_array_counts_with_it() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 8).await;
    let answer = stage.scheduler.array(array("", "0-1", 1)).await.unwrap();
    stage.scheduler.reaches(&answer.jobs[0].run_id, "placed").await;
    let spec = stage.scheduler.job(&answer.jobs[1].run_id).await.spec.unwrap();
    let again = stage.scheduler.submitted(types::JobSpec { rerun_of: answer.jobs[1].run_id.clone(), ..spec }).await;
    footplate_testkit::eventually(SOON, "it is told", || async {
        stage.scheduler.job(&again).await.reason.contains("others of its array").then_some(())
    })
    .await;
    assert_eq!(stage.scheduler.listed(&answer.array_id, &[]).await.unwrap().len(), 3);
    stage.scheduler.stop().await;
}
