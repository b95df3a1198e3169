//! Trials from suggestion to end, over the broker in memory.

use crate::stage::*;
use footplate_api::v1;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Keeper, Live};
use footplate_events::Event;
use footplate_events::facts::{DocumentRef, Outcome, PruneCause};
use footplate_sweep_core::{SWEEP_LABEL, Sweeps, TRIAL_LABEL};
use std::sync::Arc;

async fn stage() -> (Stage, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Stage::on(Arc::new(MemoryBroker::new()), folder.path(), "one").await, folder)
}

/// The trials that run, by number.
async fn running(stage: &Stage, id: &str, count: u32) -> Vec<v1::Trial> {
    stage.reaches(id, "trials are under way", |sweep| sweep.running == count).await;
    stage.trials(id).await.into_iter().filter(|trial| trial.state == "running").collect()
}

#[tokio::test]
async fn a_sweep_suggests_finishes_and_knows_its_best() {
    let (stage, _folder) = stage().await;
    let config = stage.stored(r#"{"opt":{"name":"adam"},"epochs":3}"#).await;
    let document = stage.stored(r#"{"kind":"Job","config":{"epochs":3}}"#).await;
    let mut asked = spec("random", vec![float("opt.lr", 0.0, 1.0)]);
    asked.job = Some(footplate_api::types::JobSpec { document: Some(document), ..job(Some(config)) });
    let id = stage.create(asked, "").await.unwrap().sweep_id;
    for value in [0.4, 0.1, 0.1, 0.9] {
        let trials = stage.reaches(&id, "a trial is under way", |sweep| sweep.running > 0).await;
        assert!(trials.running <= 2);
        let first = stage.trials(&id).await.into_iter().find(|trial| trial.state == "running").unwrap();
        stage.seals(&first.run_id, Outcome::Succeeded, Some(value)).await;
        stage.reaches(&id, "the trial is finished", |sweep| sweep.complete == first.number).await;
    }
    let sweep = stage.reaches(&id, "the sweep is finished", |sweep| sweep.state == "finished").await;
    let best = sweep.best.unwrap();
    assert_eq!((best.number, best.value, sweep.suggested), (2, Some(0.1), 4), "of equal trials the first");
    for (event, trial) in stage.events("suggested").await.into_iter().zip(stage.trials(&id).await) {
        let Event::TrialSuggested(fact) = event else { panic!("{event:?}") };
        assert_eq!(fact.run.to_string(), trial.run_id);
        assert_eq!((fact.job.labels[SWEEP_LABEL].as_str(), fact.job.labels[TRIAL_LABEL].clone()), (id.as_str(), trial.number.to_string()));
        assert_eq!(fact.job.objectives.iter().map(ToString::to_string).collect::<Vec<_>>(), ["loss"]);
        let read = |document: Option<DocumentRef>| async move { document.unwrap().digest };
        let bytes = stage.blobs.get_bytes(&read(fact.job.config).await, 1 << 20).await.unwrap();
        let config: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((config["opt"]["lr"].to_string(), &config["opt"]["name"]), (trial.values["opt.lr"].clone(), &"adam".into()));
        let bytes = stage.blobs.get_bytes(&read(fact.job.document).await, 1 << 20).await.unwrap();
        let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(document["config"], config, "a rerun of the trial's run repeats the point");
    }
    stage.verifies().await;
    stage.stop().await;
}

#[tokio::test]
async fn a_grid_ends_by_itself_and_failed_points_stay_failed() {
    let (stage, _folder) = stage().await;
    let mut asked = spec("grid", vec![choice("a", &["1", "2"]), choice("b", &["\"x\"", "true"])]);
    asked.trials = None;
    asked.parallel = 10;
    let created = stage.create(asked, "").await.unwrap();
    assert_eq!(created.points, Some(4));
    let trials = running(&stage, &created.sweep_id, 4).await;
    stage.seals(&trials[0].run_id, Outcome::Failed, Some(-5.0)).await;
    stage.seals(&trials[1].run_id, Outcome::Succeeded, None).await;
    stage.seals(&trials[2].run_id, Outcome::Cancelled, None).await;
    stage.seals(&trials[3].run_id, Outcome::Succeeded, Some(2.0)).await;
    let sweep = stage.reaches(&created.sweep_id, "it is finished", |sweep| sweep.state == "finished").await;
    assert_eq!((sweep.complete, sweep.failed, sweep.cancelled, sweep.best.unwrap().number), (1, 2, 1, 4));
    stage.stop().await;
}

#[tokio::test]
async fn stopped_with_a_cancel_resumed_and_led_by_another_it_goes_on_with_the_same_points() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Arc::new(MemoryBroker::new());
    let stage = Stage::on(broker.clone(), folder.path(), "one").await;
    let id = stage.create(spec("random", vec![float("lr", 0.0, 1.0)]), "").await.unwrap().sweep_id;
    let undisturbed = stage.create(spec("random", vec![float("lr", 0.0, 1.0)]), "other").await.unwrap().sweep_id;
    running(&stage, &undisturbed, 2).await;
    let trials = running(&stage, &id, 2).await;
    let stop = v1::StopSweepRequest {
        project: PROJECT.into(),
        sweep_id: id[..12].into(),
        cancel: true,
        reason: "enough".into(),
        ..Default::default()
    };
    stage.client.once(stage.client.sweeps().stop_sweep(stop.clone())).await.unwrap();
    stage.client.once(stage.client.sweeps().stop_sweep(stop)).await.unwrap();
    for trial in &trials {
        stage.seals(&trial.run_id, Outcome::Cancelled, None).await;
    }
    let sweep = stage.reaches(&id, "it is stopped", |sweep| sweep.state == "stopped").await;
    assert_eq!((sweep.cancelled, sweep.stop_reason.as_str()), (2, "enough"));
    assert_eq!(stage.events("pruned").await.len(), 2, "each trial is ended once");
    stage.stop().await;

    let stage = Stage::on(broker, folder.path(), "two").await;
    let resume = v1::ResumeSweepRequest { project: PROJECT.into(), sweep_id: id.clone(), request_id: "again".into(), ..Default::default() };
    let first = stage.client.once(stage.client.sweeps().resume_sweep(resume.clone())).await.unwrap();
    let second = stage.client.once(stage.client.sweeps().resume_sweep(resume)).await.unwrap();
    assert_eq!(first.sequence, second.sequence, "the same request is the same event");
    let other = v1::StopSweepRequest { project: PROJECT.into(), sweep_id: id.clone(), request_id: "again".into(), ..Default::default() };
    let error = stage.client.once(stage.client.sweeps().stop_sweep(other)).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.field.as_deref()), ("IDEMPOTENCY_KEY_REUSED", Some("request_id")), "nothing would be stopped");
    running(&stage, &id, 2).await;
    for trial in stage.trials(&undisturbed).await {
        stage.seals(&trial.run_id, Outcome::Succeeded, Some(1.0)).await;
    }
    stage.reaches(&undisturbed, "the other goes on", |sweep| sweep.suggested == 4).await;
    let points = |trials: Vec<v1::Trial>| trials.into_iter().map(|trial| trial.values).collect::<Vec<_>>();
    assert_eq!(points(stage.trials(&id).await), points(stage.trials(&undisturbed).await));
    stage.verifies().await;
    stage.stop().await;
}

#[tokio::test]
async fn a_trial_without_hope_is_pruned_at_its_rung_by_what_its_worker_logs() {
    let (stage, _folder) = stage().await;
    let mut asked = spec("random", vec![float("lr", 0.0, 1.0)]);
    (asked.pruner, asked.pruner_startup, asked.rungs, asked.parallel) = ("median".into(), 2, vec![2, 4], 3);
    let id = stage.create(asked, "").await.unwrap().sweep_id;
    let trials = running(&stage, &id, 3).await;
    for (trial, value) in trials.iter().zip([0.1, 0.2, 0.9]) {
        stage.logs(&trial.run_id, 1, 1, f64::NAN).await;
        stage.logs(&trial.run_id, 2, 2, value).await;
        stage.logs(&trial.run_id, 2, 2, value).await;
        footplate_testkit::eventually(SOON, "the rung is seen", || async {
            let trials = stage.trials(&id).await;
            let seen = trials.iter().find(|known| known.number == trial.number)?.observations.len();
            (seen == 1).then_some(())
        })
        .await;
    }
    footplate_testkit::eventually(SOON, "the third is pruned", || async { (stage.events("pruned").await.len() == 1).then_some(()) }).await;
    let [Event::TrialPruned(pruned)] = &stage.events("pruned").await[..] else { panic!("one") };
    assert_eq!((pruned.cause, pruned.rung), (PruneCause::Rule, Some(2)));
    stage.seals(&trials[2].run_id, Outcome::Cancelled, Some(0.9)).await;
    stage.reaches(&id, "it counts as pruned, and its place is taken", |sweep| sweep.pruned == 1 && sweep.running == 3).await;
    assert_eq!(stage.events("observed").await.len(), 3);
    stage.verifies().await;
    stage.stop().await;
}

#[tokio::test]
async fn a_start_from_a_snapshot_is_what_the_whole_ledger_says() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, store) = (Arc::new(MemoryBroker::new()), InMemory::default());
    let keeper = Keeper::new(Arc::new(store), SOON);
    let stage = Stage::kept(broker.clone(), folder.path(), "one", Some(keeper.clone())).await;
    // Every kind of value and a condition.
    let mut momentum = float("momentum", 0.0, 1.0);
    momentum.when = vec![v1::SweepCondition { parameter: "on".into(), one_of: vec!["true".into(), "1.5".into()] }];
    let mut asked = spec("random", vec![float("lr", 0.0, 1.0), choice("on", &["true", "1.5", "2", "\"x\""]), momentum]);
    (asked.pruner, asked.pruner_startup, asked.rungs) = ("median".into(), 1, vec![1]);
    let id = stage.create(asked, "").await.unwrap().sweep_id;
    let trials = running(&stage, &id, 2).await;
    stage.logs(&trials[0].run_id, 1, 1, f64::NAN).await;
    stage.seals(&trials[1].run_id, Outcome::Succeeded, Some(0.1)).await;
    stage.reaches(&id, "one is finished, one is pruned", |sweep| sweep.complete == 1).await;
    footplate_testkit::eventually(SOON, "the other is pruned", || async { (stage.events("pruned").await.len() == 1).then_some(()) }).await;
    let (live, ledger) = (stage.handle.live().clone(), stage.ledger.clone());
    stage.stop().await;
    let kept: Live<Sweeps> = keeper.of("sweep", "1").open(&ledger).await;
    assert!(kept.position() > 0 && *kept.read() == *live.read(), "the snapshot holds what the view held");
    let stage = Stage::kept(broker, folder.path(), "two", Some(keeper)).await;
    stage.seals(&trials[0].run_id, Outcome::Cancelled, None).await;
    stage.reaches(&id, "it goes on", |sweep| sweep.pruned == 1 && sweep.suggested == 4).await;
    stage.verifies().await;
    stage.stop().await;
}
