//! Versions of artifacts of sealed runs, and of nothing else.

use crate::stage::*;
use crate::watched::Watched;
use footplate_api::v1;
use footplate_events::Subject;
use footplate_events::facts::Outcome;
use footplate_types::Digest;
use std::sync::Arc;

#[tokio::test]
async fn a_version_keeps_what_the_run_recorded() {
    let stage = stage().await;
    let ada = stage.registry.of("ada");
    ada.create("digits").await.unwrap();
    let run = trained(stage.broker.as_ref(), "vision", 1).await;
    let first = ada.register(ada.registration(run, "model.bin")).await.unwrap();
    assert_eq!((first.version, first.digest), (1, Digest::of(b"weights 1").to_string()));
    let shown = ada.version(1).await;
    assert_eq!((shown.run_id, shown.path, shown.stage.as_str(), shown.bytes), (run.to_string(), "model.bin".to_owned(), "None", 9));
    assert_eq!(shown.registered.unwrap().by, "ada");
    assert_eq!(ada.register(ada.registration(run, "model.bin")).await.unwrap().version, 2, "the same again is another version");
    stage.registry.stop().await;
}

#[tokio::test]
async fn what_is_missing_unsealed_failed_or_of_another_project_is_refused_by_name() {
    let stage = stage().await;
    let broker = stage.broker.as_ref();
    let ada = stage.registry.of("ada");
    let unknown = ada.register(ada.registration(run_id(1), "model.bin")).await.unwrap_err();
    assert_eq!(unknown.reason, "RUN_NOT_FOUND");
    ada.create("digits").await.unwrap();
    let elsewhere = trained(broker, "audio", 2).await;
    let foreign = ada.register(ada.registration(elsewhere, "model.bin")).await.unwrap_err();
    assert!(foreign.reason == "RUN_NOT_FOUND" && foreign.message.contains(&elsewhere.to_string()), "{foreign:?}");

    let subject = Subject::run(&project(), run_id(3));
    record(broker, subject.clone(), opened()).await;
    record(broker, subject.clone(), artifacts(&[("model.bin", "w")])).await;
    let of_three = ada.registration(run_id(3), "model.bin");
    assert_eq!(ada.register(of_three.clone()).await.unwrap_err().reason, "RUN_NOT_SEALED");
    record(broker, subject, sealed(Outcome::Failed)).await;
    assert_eq!(ada.register(of_three.clone()).await.unwrap_err().reason, "RUN_NOT_SUCCEEDED");
    let meant = v1::RegisterVersionRequest { allow_failed: true, ..of_three };
    assert_eq!(ada.register(meant).await.unwrap().version, 1);

    let run = trained(broker, "vision", 4).await;
    let missing = ada.register(ada.registration(run, "model.pt")).await.unwrap_err();
    assert_eq!(missing.reason, "ARTIFACT_NOT_FOUND");
    assert!(missing.message.contains("model.pt"), "{missing:?}");
    for (path, run_id) in [("../model.bin", run.to_string()), ("", run.to_string()), ("model.bin", "0190".to_owned())] {
        let wrong = v1::RegisterVersionRequest { run_id, ..ada.registration(run, path) };
        assert_eq!(ada.register(wrong).await.unwrap_err().reason, "INVALID_FIELD", "{path}");
    }
    let no_model = v1::RegisterVersionRequest { model: "dogits".to_owned(), ..ada.registration(run, "model.bin") };
    assert_eq!(ada.register(no_model).await.unwrap_err().reason, "MODEL_NOT_FOUND");
    stage.registry.stop().await;
}

#[tokio::test]
async fn figures_are_kept_and_what_is_no_figure_is_refused() {
    let stage = stage().await;
    approved_versions(&stage, 1).await;
    let ada = stage.registry.of("ada");
    let acc = |figure: f64| ada.evaluate(ada.figures(1, [("acc".to_owned(), figure)]));
    acc(0.5).await.unwrap();
    acc(0.75).await.unwrap();
    let shown = ada.version(1).await;
    assert_eq!((shown.figures["acc"], shown.evaluations.len(), shown.evaluations[0].data.as_str()), (0.75, 2, "test@3"));
    let refused = acc(f64::NAN).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FIELD", Some("figures.acc")));
    assert_eq!(ada.evaluate(ada.figures(1, [])).await.unwrap_err().reason, "INVALID_FIELD");
    stage.registry.stop().await;
}

#[tokio::test]
async fn a_version_takes_no_more_names_of_figures_than_are_shown() {
    let stage = stage().await;
    approved_versions(&stage, 1).await;
    let ada = stage.registry.of("ada");
    let named = |names: std::ops::Range<u32>| ada.evaluate(ada.figures(1, names.map(|n| (format!("f{n}"), 0.5))));
    named(0..1_000).await.unwrap();
    named(1_000..2_000).await.unwrap();
    let refused = named(1_999..2_001).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FIELD", Some("figures")));
    assert_eq!(refused.allowed.as_deref(), Some("at most 2000 names of figures a version"));
    assert!(refused.value.as_deref().is_some_and(|value| value.starts_with("2001 names")), "{refused:?}");
    named(0..1_000).await.unwrap();
    let shown = ada.version(1).await;
    assert_eq!((shown.figures.len(), shown.evaluations.len()), (2_000, 2));
    stage.registry.stop().await;
}

#[tokio::test]
async fn a_run_is_read_page_by_page_however_much_it_logged() {
    let broker = Arc::new(Watched::new());
    let registry = instance(broker.clone(), "one").await;
    let ada = registry.of("ada");
    ada.create("digits").await.unwrap();
    let subject = Subject::run(&project(), run_id(1));
    record(broker.as_ref(), subject.clone(), opened()).await;
    for n in 0..240 {
        record(broker.as_ref(), subject.clone(), artifacts(&[("model.bin", &format!("weights {n}"))])).await;
    }
    record(broker.as_ref(), subject.clone(), sealed(Outcome::Succeeded)).await;
    let made = ada.register(ada.registration(run_id(1), "model.bin")).await.unwrap();
    assert_eq!(made.digest, Digest::of(b"weights 239").to_string());
    assert_eq!(broker.reads_of(&subject.to_string()), [100, 100, 100]);
    registry.stop().await;
}
