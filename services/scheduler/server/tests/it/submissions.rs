//! Submitting: one key, one run; what is refused, and how it is told.

use crate::stage::*;
use footplate_api::{Kind, types, v1};
use footplate_types::RunId;
use std::collections::BTreeSet;

fn keyed(key: &str, spec: types::JobSpec) -> v1::SubmitJobRequest {
    v1::SubmitJobRequest { request_id: key.to_owned(), ..submission(spec) }
}

#[tokio::test]
async fn twenty_submits_of_one_key_at_two_instances_at_once_make_one_run_and_another_body_is_refused_naming_it() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    let mut calls = Vec::new();
    for n in 0..20 {
        let client = if n % 2 == 0 { stage.scheduler.client.clone() } else { other.client.clone() };
        calls.push(tokio::spawn(async move { client.once(client.jobs().submit_job(keyed("nightly-7", spec(1, 1)))).await }));
    }
    let mut answers = BTreeSet::new();
    for call in calls {
        let answer = call.await.unwrap().unwrap();
        answers.insert((answer.run_id, answer.sequence));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let (run, sequence) = answers.pop_first().unwrap();
    assert_eq!(run, RunId::for_key(&project(), "job", "nightly-7").to_string());
    let retried = other.submit(keyed("nightly-7", spec(1, 1))).await.unwrap();
    assert_eq!((retried.run_id, retried.sequence), (run.clone(), sequence));
    let refused = other.submit(keyed("nightly-7", spec(1, 2))).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason.as_str()), (Kind::Conflict, "IDEMPOTENCY_KEY_REUSED"));
    assert!(refused.message.contains(&run), "{}", refused.message);
    assert_eq!(stage.scheduler.events(&run).await.len(), 1 + 1, "submitted once, and waits for a node");
    stage.scheduler.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_time_out_whose_append_did_land_is_one_run() {
    let stage = stage().await;
    stage.scheduler.submitted(spec(1, 1)).await;
    stage.broker.faults().lose_next_ack(footplate_eventlog::StreamName::Ledger);
    let first = stage.scheduler.submit(keyed("k", spec(1, 1))).await.unwrap();
    let again = stage.scheduler.submit(keyed("k", spec(1, 1))).await.unwrap();
    assert_eq!(first, again);
    let submitted = |event: &footplate_events::Event| matches!(event, footplate_events::Event::JobSubmitted(_));
    assert_eq!(stage.scheduler.events(&first.run_id).await.iter().filter(|event| submitted(event)).count(), 1);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_minted_id_is_taken_once() {
    let stage = stage().await;
    let id = footplate_clock::run_id().to_string();
    let with_id = |spec| v1::SubmitJobRequest { run_id: id.clone(), ..submission(spec) };
    let first = stage.scheduler.submit(with_id(spec(1, 1))).await.unwrap();
    assert_eq!(stage.scheduler.submit(with_id(spec(1, 1))).await.unwrap(), first, "the same submission again");
    let refused = stage.scheduler.submit(with_id(spec(2, 1))).await.unwrap_err();
    assert_eq!(refused.reason, "ID_TAKEN");
    let elsewhere = v1::SubmitJobRequest { project: "speech".to_owned(), ..with_id(spec(1, 1)) };
    assert_eq!(stage.scheduler.submit(elsewhere).await.unwrap_err().reason, "ID_TAKEN");
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_with_the_field_and_what_is_allowed() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    stage.scheduler.submitted(spec(1, 1)).await;
    let mut memory = spec(1, 1);
    memory.resources.as_mut().unwrap().per_node.as_mut().unwrap().memory_bytes = 1 << 40;
    let cases = [
        (spec(0, 1), "INVALID_SPEC", "resources.nodes"),
        (spec(1, 0), "INVALID_SPEC", "resources"),
        (memory, "NO_NODE_FITS", "resources"),
        (spec(1, 2), "NO_NODE_FITS", "resources"),
        (types::JobSpec { queue: "nihgt".to_owned(), ..spec(1, 1) }, "QUEUE_NOT_FOUND", "queue.name"),
        (types::JobSpec { queue: "a.*".to_owned(), ..spec(1, 1) }, "INVALID_SPEC", "queue.name"),
        (types::JobSpec { name: "x".repeat(10_000), ..spec(1, 1) }, "INVALID_SPEC", "name"),
        (types::JobSpec { launch: None, ..spec(1, 1) }, "INVALID_SPEC", "launch"),
    ];
    for (job, reason, field) in cases {
        let refused = stage.scheduler.submit(submission(job)).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.field.as_deref()), (reason, Some(field)), "{}", refused.message);
    }
    let placeless = v1::SubmitJobRequest { project: "_".to_owned(), ..submission(spec(1, 1)) };
    assert_eq!(stage.scheduler.submit(placeless).await.unwrap_err().field.as_deref(), Some("project"));
    for name in ["val/acc", "推荐模型"] {
        stage.scheduler.submit(submission(types::JobSpec { name: name.to_owned(), ..spec(1, 1) })).await.unwrap();
    }
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_hopeless_job_waits_when_that_is_asked_for_and_starts_nothing() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 1).await;
    let hopeless = v1::SubmitJobRequest { queue_anyway: true, ..submission(spec(1, 12)) };
    let run = stage.scheduler.submit(hopeless).await.unwrap().run_id;
    footplate_testkit::eventually(SOON, "it is told never", || async {
        let job = stage.scheduler.reaches(&run, "pending").await;
        job.reason.starts_with("never: the largest node (n1) has 1 slot").then_some(())
    })
    .await;
    let plain = stage.scheduler.submitted(spec(1, 1)).await;
    stage.scheduler.reaches(&plain, "placed").await;
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_dry_run_records_nothing_and_tells_what_would_happen() {
    let stage = stage().await;
    let seen = register(stage.broker.as_ref(), "n1", 1).await;
    stage.scheduler.handle.live().at_least(seen, SOON).await.unwrap();
    let dry = |spec| v1::SubmitJobRequest { dry_run: true, ..submission(spec) };
    assert_eq!(stage.scheduler.submit(dry(spec(1, 1))).await.unwrap().remark, "it could start now");
    assert_eq!(stage.scheduler.submit(dry(spec(2, 1))).await.unwrap_err().reason, "NO_NODE_FITS");
    assert!(stage.scheduler.handle.live().read().jobs().is_empty());
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn with_the_broker_away_a_submit_says_so_and_nothing_is_lost() {
    let stage = stage().await;
    let run = stage.scheduler.submitted(spec(1, 1)).await;
    stage.broker.faults().unavailable(true);
    let refused = stage.scheduler.submit(keyed("k", spec(1, 1))).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason.as_str()), (Kind::Unavailable, "BROKER_AWAY"));
    assert_eq!(stage.scheduler.job(&run).await.run_id, run, "reads go on");
    stage.broker.faults().unavailable(false);
    let answered =
        footplate_testkit::eventually(SOON, "it is taken again", || async { stage.scheduler.submit(keyed("k", spec(1, 1))).await.ok() })
            .await;
    assert_eq!(answered.run_id, RunId::for_key(&project(), "job", "k").to_string());
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn an_id_that_stands_for_a_run_without_a_job_is_refused() {
    let stage = stage().await;
    let run = RunId::from_bytes([0x5A; 16]);
    let experiment_name = footplate_types::DisplayName::parse("default").unwrap();
    let created = footplate_events::facts::RunCreated {
        name: footplate_types::DisplayName::parse("notebook").unwrap(),
        experiment: footplate_types::ExperimentId::of(&project(), &experiment_name),
        experiment_name,
        body: None,
        hypothesis: String::new(),
    };
    crate::stage::record(stage.broker.as_ref(), footplate_events::Subject::run(&project(), run), created).await;
    let request = footplate_api::v1::SubmitJobRequest { run_id: run.to_string(), ..keyed("", spec(1, 1)) };
    let refused = stage.scheduler.submit(request).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason.as_str()), (Kind::Conflict, "ID_TAKEN"));
    stage.scheduler.stop().await;
}

/// Series know runs by their id alone: whoever submits under the id of another project's run would read and write its metrics.
#[tokio::test]
async fn an_id_of_another_project_is_refused_whatever_it_is_there_and_nothing_of_it_is_told() {
    let stage = stage().await;
    let other = footplate_types::ProjectName::parse("secret").unwrap();
    let run = RunId::from_bytes([0x5B; 16]);
    let experiment_name = footplate_types::DisplayName::parse("default").unwrap();
    let created = footplate_events::facts::RunCreated {
        name: footplate_types::DisplayName::parse("hidden").unwrap(),
        experiment: footplate_types::ExperimentId::of(&other, &experiment_name),
        experiment_name,
        body: None,
        hypothesis: String::new(),
    };
    crate::stage::record(stage.broker.as_ref(), footplate_events::Subject::run(&other, run), created).await;
    let request = footplate_api::v1::SubmitJobRequest { run_id: run.to_string(), ..keyed("", spec(1, 1)) };
    let refused = stage.scheduler.submit(request).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason.as_str()), (Kind::Conflict, "ID_TAKEN"));
    assert!(!refused.message.contains("hidden") && !refused.message.contains("secret"), "{}", refused.message);

    let id = RunId::from_bytes([0x5C; 16]);
    let theirs = footplate_api::v1::SubmitJobRequest { project: "secret".to_owned(), run_id: id.to_string(), ..keyed("", spec(1, 1)) };
    stage.scheduler.submit(theirs).await.unwrap();
    let ours = footplate_api::v1::SubmitJobRequest { run_id: id.to_string(), ..keyed("", spec(1, 1)) };
    let refused = stage.scheduler.submit(ours).await.unwrap_err();
    assert_eq!(refused.reason, "ID_TAKEN", "{}", refused.message);
    stage.scheduler.stop().await;
}
