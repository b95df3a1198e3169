//! Bad input at the door, and writes that are repeated.

use crate::stage::*;
use footplate_api::{ApiError, types, v1};
use footplate_eventlog::memory::MemoryBroker;
use std::sync::Arc;

fn told(error: &ApiError) -> (&str, &str, &str) {
    (error.reason.as_str(), error.field.as_deref().unwrap_or_default(), error.value.as_deref().unwrap_or_default())
}

#[tokio::test]
async fn what_cannot_be_searched_is_refused_by_field_and_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::on(Arc::new(MemoryBroker::new()), folder.path(), "one").await;
    let lr = || vec![float("lr", 0.0, 1.0)];
    let int = |name: &str| v1::SweepParameter {
        name: name.into(),
        when: Vec::new(),
        domain: Some(v1::sweep_parameter::Domain::Int(v1::IntDomain { low: 1, high: 1_000, log: false, step: None })),
    };
    let missing = types::DocumentRef { digest: "0".repeat(64), bytes: 2 };
    let text = stage.stored("[1]").await;
    let flat = stage.stored(r#"{"opt":3}"#).await;
    let of = |change: fn(&mut v1::SweepSpec)| {
        let mut asked = spec("random", vec![float("lr", 0.0, 1.0)]);
        change(&mut asked);
        asked
    };
    let with = |config: &types::DocumentRef, space: Vec<v1::SweepParameter>| v1::SweepSpec {
        job: Some(job(Some(config.clone()))),
        ..spec("random", space)
    };
    for (asked, field, value) in [
        (spec("random", Vec::new()), "space", "0 params"),
        (spec("random", vec![float("lr", f64::NAN, 1.0)]), "space.lr.low", "NaN"),
        (spec("random", vec![float("lr", 2.0, 1.0)]), "space.lr.low", "2"),
        (spec("grid", vec![int("a"), int("b"), int("c")]), "space", "1000000000 points"),
        (spec("random", vec![choice("a", &["nan"])]), "space.a.choices", "nan"),
        (spec("bayes", lr()), "sampler", "bayes"),
        (of(|asked| asked.direction = "up".into()), "direction", "up"),
        (of(|asked| asked.metric = String::new()), "metric", ""),
        (of(|asked| asked.job = None), "job", "nothing"),
        (of(|asked| asked.job.as_mut().unwrap().resources = None), "job.resources", "nothing"),
        (of(|asked| asked.pruner = "hope".into()), "pruner", "hope"),
        (of(|asked| asked.trials = Some(1_000_000)), "trials", "1000000"),
        (with(&missing, lr()), "job.config", missing.digest.as_str()),
        (with(&text, lr()), "job.config", text.digest.as_str()),
        (with(&flat, vec![float("opt.lr", 0.0, 1.0)]), "space", "opt.lr"),
    ] {
        let error = stage.create(asked, "").await.unwrap_err();
        assert_eq!(told(&error), ("INVALID_SWEEP", field, value), "{error}");
        assert!(error.allowed.is_some(), "{error}");
    }
    // 270 choices of 1,000 letters each, all of them allowed one by one, are more than an event holds.
    let texts: Vec<String> = (0..270).map(|at| format!("\"{at:0>1000}\"")).collect();
    let large = choice("a", &texts.iter().map(String::as_str).collect::<Vec<_>>());
    let error = stage.create(spec("random", vec![large]), "").await.unwrap_err();
    let (reason, field, value) = told(&error);
    assert!((reason, field) == ("INVALID_SWEEP", "space") && value.ends_with(" bytes"), "{error}");
    let nowhere = v1::GetSweepRequest { project: PROJECT.into(), sweep_id: "ab".repeat(16), at_least: 0 };
    let error = stage.client.once(stage.client.sweeps().get_sweep(nowhere)).await.unwrap_err();
    assert_eq!(error.reason, "SWEEP_NOT_FOUND");
    assert!(stage.handle.live().read().sweeps().is_empty());
    stage.stop().await;
}

#[tokio::test]
async fn one_key_is_one_sweep_and_another_body_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::on(Arc::new(MemoryBroker::new()), folder.path(), "one").await;
    let asked = || spec("random", vec![float("lr", 0.0, 1.0)]);
    let first = stage.create(asked(), "nightly").await.unwrap();
    let second = stage.create(asked(), "nightly").await.unwrap();
    assert_eq!((first.sweep_id.clone(), first.sequence), (second.sweep_id, second.sequence));
    let error = stage.create(v1::SweepSpec { seed: 8, ..asked() }, "nightly").await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.value.as_deref()), ("IDEMPOTENCY_KEY_REUSED", Some(first.sweep_id.as_str())));
    let dry = v1::CreateSweepRequest { project: PROJECT.into(), spec: Some(asked()), dry_run: true, ..Default::default() };
    assert_eq!(stage.client.once(stage.client.sweeps().create_sweep(dry)).await.unwrap().sweep_id, "");
    let resume = v1::ResumeSweepRequest { project: PROJECT.into(), sweep_id: first.sweep_id.clone(), ..Default::default() };
    let error = stage.client.once(stage.client.sweeps().resume_sweep(resume)).await.unwrap_err();
    assert_eq!(error.reason, "SWEEP_STATE", "nothing more is asked of it");
    stage.get(&first.sweep_id).await;
    let list = |token: &str| v1::ListSweepsRequest { project: PROJECT.into(), page_size: 1, page_token: token.into(), at_least: 0 };
    let later = stage.create(asked(), "").await.unwrap();
    stage.get(&later.sweep_id).await;
    let page = stage.client.once(stage.client.sweeps().list_sweeps(list(""))).await.unwrap();
    assert_eq!(page.sweeps[0].sweep_id, later.sweep_id, "newest first");
    let page = stage.client.once(stage.client.sweeps().list_sweeps(list(&page.next_page_token))).await.unwrap();
    assert_eq!((page.sweeps[0].sweep_id.as_str(), page.next_page_token.as_str()), (first.sweep_id.as_str(), ""));
    stage.stop().await;
}
