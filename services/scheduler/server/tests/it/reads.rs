//! Lists, pages, and why a job waits.

use crate::stage::*;
use footplate_api::{types, v1};

async fn page(stage: &Stage, request: v1::ListJobsRequest) -> v1::ListJobsResponse {
    stage.scheduler.client.once(stage.scheduler.client.jobs().list_jobs(request)).await.unwrap()
}

#[tokio::test]
async fn pages_show_every_job_once_newest_first() {
    let stage = stage().await;
    let mut runs = Vec::new();
    for _ in 0..7 {
        runs.push(stage.scheduler.submitted(spec(1, 1)).await);
    }
    let last = stage.scheduler.submit(submission(spec(1, 1))).await.unwrap();
    runs.push(last.run_id);
    stage.scheduler.cancel(&runs[0], "").await.unwrap();
    stage.scheduler.reaches(&runs[0], "ended").await;
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let asked = v1::ListJobsRequest { page_size: 3, page_token: token, at_least: last.sequence, ..v1::ListJobsRequest::default() };
        let answer = page(&stage, asked).await;
        assert!(answer.view_sequence >= last.sequence);
        seen.extend(answer.jobs.into_iter().map(|job| job.run_id));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    runs.remove(0);
    runs.reverse();
    assert_eq!(seen, runs, "without the one that has ended");
    let ended = v1::ListJobsRequest { states: vec!["ended".to_owned()], project: "vision".to_owned(), ..Default::default() };
    assert_eq!(page(&stage, ended).await.jobs.len(), 1);
    let elsewhere = v1::ListJobsRequest { project: "speech".to_owned(), ..Default::default() };
    assert_eq!(page(&stage, elsewhere).await.jobs.len(), 0);
    for bad in [
        v1::ListJobsRequest { page_token: "x".to_owned(), ..Default::default() },
        v1::ListJobsRequest { states: vec!["flying".to_owned()], ..Default::default() },
    ] {
        assert!(stage.scheduler.client.once(stage.scheduler.client.jobs().list_jobs(bad)).await.is_err());
    }
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_waiting_job_is_explained_with_its_place_what_would_help_and_its_history() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let first = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&first, "placed").await;
    let second = stage.scheduler.submitted(spec(1, 1)).await;
    let explained = footplate_testkit::eventually(SOON, "its reason is recorded", || async {
        let asked = v1::GetJobRequest { project: "vision".to_owned(), run_id: second.clone(), at_least: 0 };
        let answer = stage.scheduler.client.once(stage.scheduler.client.jobs().explain_job(asked)).await.ok()?;
        (answer.history.len() == 2).then_some(answer)
    })
    .await;
    assert_eq!((explained.state.as_str(), explained.position), ("pending", 1));
    assert_eq!(explained.reason, "waiting: slots: 1 free asked on 1 of 1 open nodes, 0 have them; most free: n1 with 0");
    assert!(explained.would_help[0].contains("running work has to end"), "{explained:?}");
    assert!(explained.history[0].ends_with("submitted to queue default with priority 0"), "{explained:?}");
    let asked = v1::GetJobRequest { project: "vision".to_owned(), run_id: first, at_least: 0 };
    let running = stage.scheduler.client.once(stage.scheduler.client.jobs().explain_job(asked)).await.unwrap();
    assert!(running.history.last().unwrap().ends_with("attempt 1 placed on n1"), "{running:?}");
    assert_eq!((running.position, running.would_help.len()), (0, 0));
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_read_of_a_sequence_that_never_comes_ends_with_view_behind() {
    let stage = stage().await;
    let run = stage.scheduler.submitted(types::JobSpec { ..spec(1, 1) }).await;
    let asked = v1::GetJobRequest { project: "vision".to_owned(), run_id: run, at_least: 1 << 40 };
    let mut request = tonic::Request::new(asked);
    request.set_timeout(SOON);
    let refused = stage.scheduler.client.once(stage.scheduler.client.jobs().get_job(request)).await.unwrap_err();
    assert_eq!(refused.reason, "VIEW_BEHIND");
    stage.scheduler.stop().await;
}
