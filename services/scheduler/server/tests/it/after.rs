//! Jobs that come after others, and pipelines: what is refused, what is told, and that a pipeline stands whole or not at all.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{ApiError, Kind, types, v1};
use footplate_eventlog::StreamName;
use footplate_events::facts::{JobEnded, Outcome};
use footplate_events::{Event, Subject};
use footplate_types::{AttemptNumber, RunId};
use std::collections::BTreeSet;

fn after(named: &[(&str, types::AfterWhen)]) -> types::JobSpec {
    let after = named.iter().map(|(run, when)| types::AfterJob { run_id: (*run).to_owned(), when: (*when).into() });
    types::JobSpec { after: after.collect(), ..spec(1, 1) }
}

/// A job of a pipeline that comes after others of it.
fn part(name: &str, after: &[(&str, types::AfterWhen)]) -> v1::PipelineJob {
    let after = after.iter().map(|(name, when)| v1::PipelineAfter { name: (*name).to_owned(), when: (*when).into() });
    v1::PipelineJob {
        name: name.to_owned(),
        spec: Some(types::JobSpec { name: name.to_owned(), ..spec(1, 1) }),
        after: after.collect(),
        ..v1::PipelineJob::default()
    }
}

fn pipeline(key: &str, jobs: Vec<v1::PipelineJob>) -> v1::SubmitPipelineRequest {
    v1::SubmitPipelineRequest { project: "vision".to_owned(), jobs, request_id: key.to_owned(), ..v1::SubmitPipelineRequest::default() }
}

const SUCCESS: types::AfterWhen = types::AfterWhen::Success;
const FAILURE: types::AfterWhen = types::AfterWhen::Failure;
const ANY: types::AfterWhen = types::AfterWhen::Any;

/// Written so that the first one comes last.
fn training() -> Vec<v1::PipelineJob> {
    vec![
        part("report", &[("train", ANY), ("prepare", SUCCESS)]),
        part("alarm", &[("train", FAILURE)]),
        part("train", &[("prepare", SUCCESS)]),
        part("prepare", &[]),
    ]
}

impl Instance {
    async fn together(&self, request: v1::SubmitPipelineRequest) -> Result<v1::SubmitPipelineResponse, ApiError> {
        self.client.once(self.client.jobs().submit_pipeline(request)).await
    }

    async fn explained(&self, run_id: &str) -> v1::ExplainJobResponse {
        let asked = v1::GetJobRequest { project: "vision".to_owned(), run_id: run_id.to_owned(), at_least: 0 };
        self.client.once(self.client.jobs().explain_job(asked)).await.unwrap()
    }
}

#[tokio::test]
async fn a_job_comes_after_runs_that_are_there_and_is_told_what_it_waits_for() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    let first = stage.scheduler.submitted(spec(1, 1)).await;
    // At once, and at an instance that has not seen the first one yet.
    let second = other.submitted(after(&[(&first, SUCCESS)])).await;
    let job = stage.scheduler.reaches(&second, "pending").await;
    assert_eq!(job.spec.unwrap().after[0].run_id, first);
    let told = format!("success of run {first} (train)");
    footplate_testkit::eventually(SOON, "the wait is told", || async {
        (stage.scheduler.job(&second).await.reason == format!("waits for {told}")).then_some(())
    })
    .await;
    let why = stage.scheduler.explained(&second).await;
    assert_eq!((why.reason.as_str(), why.position), (format!("waits for {told}, which is in line").as_str(), 0));
    let stranger = RunId::from_bytes([0x17; 16]).to_string();
    let refused = other.submit(submission(after(&[(&first, ANY), (&stranger, ANY)]))).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason.as_str()), (Kind::NotFound, "JOB_NOT_FOUND"));
    assert!(refused.message.contains(&stranger), "{}", refused.message);
    let elsewhere = v1::SubmitJobRequest { project: "speech".to_owned(), ..submission(after(&[(&first, ANY)])) };
    assert_eq!(other.submit(elsewhere).await.unwrap_err().reason, "JOB_NOT_FOUND", "runs of another project are not told of");
    let twice = other.submit(submission(after(&[(&first, ANY), (&first, SUCCESS)]))).await.unwrap_err();
    assert_eq!((twice.reason.as_str(), twice.field.as_deref()), ("INVALID_SPEC", Some("after")));
    let dry = |spec| v1::SubmitJobRequest { dry_run: true, ..submission(spec) };
    assert_eq!(other.submit(dry(after(&[(&first, SUCCESS)]))).await.unwrap().remark, format!("waits for {told}"));
    stage.scheduler.cancel(&first, "").await.unwrap();
    let over = stage.scheduler.reaches(&second, "ended").await;
    assert_eq!((over.outcome(), over.cause.as_str(), over.attempt), (types::Outcome::Cancelled, "dependency", 0));
    assert!(over.reason.contains(&format!("{told}, which was cancelled")), "{}", over.reason);
    let never = other.submit(dry(after(&[(&first, SUCCESS)]))).await.unwrap().remark;
    assert!(never.contains("can never come: it was cancelled"), "{never}");
    let verified = stage.scheduler.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    stage.scheduler.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_pipeline_is_one_append_in_order_and_plays_to_its_end() {
    let stage = stage().await;
    let before = stage.scheduler.ledger.end().await.unwrap();
    let answer = stage.scheduler.together(pipeline("", training())).await.unwrap();
    let names: Vec<&str> = answer.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["prepare", "train", "report", "alarm"], "each after those it names, else as they were written");
    let first = answer.jobs[0].sequence;
    assert!(first > before && answer.jobs.iter().map(|job| job.sequence).eq(first..first + 4), "{answer:?}");
    assert_eq!(answer.sequence, first + 3);
    let (items, _) = stage.scheduler.ledger.read("fp.ledger.>", first, 4).await.unwrap();
    let chains: BTreeSet<_> = items
        .into_iter()
        .map(|item| match item {
            footplate_eventlog::LedgerItem::Fact(recorded) => recorded.envelope.correlation,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(chains.len(), 1, "one submit, one chain");
    let _hands = Hands::new(stage.broker.clone(), true);
    register(stage.broker.as_ref(), "n1", 4).await;
    let mut ends = Vec::new();
    for job in &answer.jobs {
        let ended = stage.scheduler.reaches(&job.run_id, "ended").await;
        ends.push((ended.name.clone(), ended.outcome(), ended.cause.clone()));
    }
    let succeeded = |name: &str| (name.to_owned(), types::Outcome::Succeeded, "success".to_owned());
    let alarm = ("alarm".to_owned(), types::Outcome::Cancelled, "dependency".to_owned());
    assert_eq!(ends, [succeeded("prepare"), succeeded("train"), succeeded("report"), alarm]);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn twenty_submits_of_one_key_at_two_instances_at_once_make_one_pipeline_and_another_body_is_refused() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    // One answer gets lost on the way.
    stage.broker.faults().lose_next_ack(StreamName::Ledger);
    let mut calls = Vec::new();
    for n in 0..20 {
        let client = if n % 2 == 0 { stage.scheduler.client.clone() } else { other.client.clone() };
        calls.push(tokio::spawn(async move { client.once(client.jobs().submit_pipeline(pipeline("nightly", training()))).await }));
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap().unwrap());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(stage.scheduler.together(pipeline("nightly", training())).await.unwrap(), answers[0]);
    stage.scheduler.handle.live().at_least(answers[0].sequence, SOON).await.unwrap();
    assert_eq!(stage.scheduler.handle.live().read().jobs().len(), 4);
    let mut fewer = training();
    fewer.remove(1);
    let mut changed = training();
    changed[3].spec.as_mut().unwrap().priority = 7;
    for jobs in [fewer, changed] {
        let refused = other.together(pipeline("nightly", jobs)).await.unwrap_err();
        assert_eq!(refused.reason, "IDEMPOTENCY_KEY_REUSED");
    }
    // A job and a pipeline of one key are two things.
    let single = v1::SubmitJobRequest { request_id: "nightly".to_owned(), ..submission(spec(1, 1)) };
    assert!(stage.scheduler.submit(single).await.is_ok());
    stage.scheduler.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn what_is_no_pipeline_is_refused_whole_with_the_job_that_is_to_blame() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 4).await;
    let before = stage.scheduler.ledger.end().await.unwrap();
    stage.scheduler.handle.live().at_least(before, SOON).await.unwrap();
    let refused = |jobs: Vec<v1::PipelineJob>| async {
        let refused = stage.scheduler.together(pipeline("", jobs)).await.unwrap_err();
        (refused.reason.clone(), refused.field.clone().unwrap_or_default(), refused.message)
    };
    let circle = vec![part("a", &[]), part("b", &[("a", ANY), ("d", ANY)]), part("c", &[("b", ANY)]), part("d", &[("c", ANY)])];
    let (reason, field, message) = refused(circle).await;
    assert_eq!((reason.as_str(), field.as_str()), ("INVALID_SPEC", "jobs.after"));
    assert!(message.ends_with("b after d after c after b"), "{message}");
    let (reason, field, message) = refused(vec![part("a", &[("prepare", ANY)])]).await;
    assert_eq!((reason.as_str(), field.as_str()), ("INVALID_SPEC", "jobs.a.after"));
    assert!(message.contains("a comes after prepare"), "{message}");
    let mut wide = training();
    wide[2].spec.as_mut().unwrap().resources = spec(1, 99).resources;
    let (reason, field, message) = refused(wide).await;
    assert_eq!((reason.as_str(), field.as_str()), ("NO_NODE_FITS", "jobs.train.resources"));
    assert!(message.starts_with("job train: "), "{message}");
    let mut stray = training();
    stray[0].spec.as_mut().unwrap().after = after(&[(&"17".repeat(16), ANY)]).after;
    assert_eq!(refused(stray).await.1, "jobs.report.after");
    assert_eq!(refused(vec![part("a", &[]), part("a", &[])]).await.1, "jobs.name");
    assert_eq!(refused(vec![part("a b", &[])]).await.1, "jobs.name");
    assert_eq!(refused(Vec::new()).await.1, "jobs");
    assert_eq!(refused((0..257).map(|n| part(&format!("j{n}"), &[])).collect()).await.1, "jobs");
    let nothing = v1::PipelineJob { spec: None, ..part("a", &[]) };
    assert_eq!(refused(vec![nothing]).await.0, "MISSING_FIELD");
    let one = v1::PipelineJob { run_id: "17".repeat(16), ..part("a", &[]) };
    let same = v1::PipelineJob { run_id: "17".repeat(16), ..part("b", &[]) };
    assert_eq!(refused(vec![one, same]).await.0, "ID_TAKEN");
    let dry = v1::SubmitPipelineRequest { dry_run: true, ..pipeline("", training()) };
    let answer = stage.scheduler.together(dry).await.unwrap();
    assert!(answer.jobs.iter().all(|job| job.run_id.is_empty()) && answer.jobs[0].remark == "it could start now", "{answer:?}");
    assert!(stage.scheduler.handle.live().read().jobs().is_empty());
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn an_id_of_a_pipeline_that_stands_for_something_else_keeps_the_whole_out() {
    let stage = stage().await;
    let known = stage.scheduler.submitted(spec(1, 1)).await;
    let mut jobs = training();
    jobs[1].run_id.clone_from(&known);
    let refused = stage.scheduler.together(pipeline("", jobs.clone())).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("ID_TAKEN", Some("jobs.alarm.run_id")));
    // Somebody else's, told by the ledger alone: the append finds it.
    let foreign = RunId::from_bytes([0x18; 16]);
    let ended = JobEnded {
        outcome: Outcome::Failed,
        cause: footplate_events::facts::Cause::UserCode,
        attempt: AttemptNumber(0),
        root: None,
        request: None,
        message: String::new(),
    };
    record(stage.broker.as_ref(), Subject::job(&project(), foreign), ended).await;
    jobs[1].run_id = foreign.to_string();
    assert!(stage.scheduler.together(pipeline("", jobs)).await.is_err());
    assert_eq!(stage.scheduler.handle.live().read().jobs().len(), 1);
    assert_eq!(stage.scheduler.events(&known).await.iter().filter(|event| matches!(event, Event::JobSubmitted(_))).count(), 1);
    stage.scheduler.stop().await;
}
