//! Cancel, hold, release, another priority: recorded by any instance, answered by the leader.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::{types, v1};

fn about(run_id: &str, request_id: &str, wait: bool) -> v1::JobRequest {
    let request_id = request_id.to_owned();
    v1::JobRequest { project: "vision".to_owned(), run_id: run_id.to_owned(), reason: String::new(), request_id, wait }
}

#[tokio::test]
async fn a_cancel_is_answered_repeated_with_the_same_answer_and_refused_once_the_job_has_ended() {
    let stage = stage().await;
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    let answer = stage.scheduler.cancel(&run, "c1").await.unwrap();
    assert!(answer.answered && answer.refused.is_empty(), "{answer:?}");
    let job = stage.scheduler.reaches(&run, "ended").await;
    assert_eq!((job.outcome(), job.reason.as_str()), (types::Outcome::Cancelled, "enough"));
    assert_eq!(stage.scheduler.cancel(&run, "c1").await.unwrap(), answer);
    let refused = stage.scheduler.cancel(&run, "c2").await.unwrap_err();
    assert_eq!(refused.reason, "JOB_ENDED");
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_running_job_is_cancelled_after_its_last_process_is_gone() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let hands = Hands::new(stage.broker.clone(), false);
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&run, "launched").await;
    let short = &run[..12];
    assert!(stage.scheduler.cancel(short, "").await.unwrap().answered, "a unique prefix will do");
    assert_eq!(stage.scheduler.reaches(&run, "ended").await.outcome(), types::Outcome::Cancelled);
    drop(hands);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn hold_release_and_priority_go_the_same_way() {
    let stage = stage().await;
    let jobs = || stage.scheduler.client.jobs();
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    let call = stage.scheduler.client.once(jobs().hold_job(about(&run, "h", true))).await.unwrap();
    assert!(call.answered);
    assert_eq!(stage.scheduler.job(&run).await.state, "held");
    let reused = stage.scheduler.client.once(jobs().release_job(about(&run, "h", true))).await.unwrap_err();
    assert_eq!(
        (reused.reason.as_str(), reused.field.as_deref()),
        ("IDEMPOTENCY_KEY_REUSED", Some("request_id")),
        "it would not be released"
    );
    register(stage.broker.as_ref(), "n1", 1).await;
    let asked = v1::ReprioritizeJobRequest {
        project: "vision".to_owned(),
        run_id: run.clone(),
        priority: 7,
        request_id: String::new(),
        wait: true,
    };
    assert!(stage.scheduler.client.once(jobs().reprioritize_job(asked)).await.unwrap().answered);
    let job = stage.scheduler.job(&run).await;
    assert_eq!((job.state.as_str(), job.priority), ("held", 7));
    stage.scheduler.client.once(jobs().release_job(about(&run, "r", true))).await.unwrap();
    stage.scheduler.reaches(&run, "placed").await;
    let refused = stage.scheduler.client.once(jobs().hold_job(about(&run, "h2", true))).await.unwrap();
    assert!(refused.answered && refused.refused.contains("cancel it instead"), "{refused:?}");
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn an_unknown_run_and_one_of_another_project_are_not_found() {
    let stage = stage().await;
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    let unknown = footplate_clock::run_id().to_string();
    assert_eq!(stage.scheduler.cancel(&unknown, "").await.unwrap_err().reason, "JOB_NOT_FOUND");
    let elsewhere = v1::JobRequest { project: "speech".to_owned(), ..about(&run, "", false) };
    let refused = stage.scheduler.client.once(stage.scheduler.client.jobs().cancel_job(elsewhere)).await.unwrap_err();
    assert_eq!(refused.reason, "JOB_NOT_FOUND");
    for text in ["..", "*", ">", "xyz", ""] {
        assert_eq!(stage.scheduler.cancel(text, "").await.unwrap_err().reason, "INVALID_FIELD", "{text}");
    }
    stage.scheduler.stop().await;
}
