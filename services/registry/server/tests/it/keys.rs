//! Idempotency keys.

use crate::stage::*;
use crate::watched::Watched;
use footplate_api::v1;
use footplate_events::Subject;
use footplate_registry_server::Config;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn one_key_is_one_version_however_often_and_another_body_is_refused() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    let (ada, elsewhere) = (stage.registry.of("ada"), other.of("ada"));
    ada.create("digits").await.unwrap();
    let run = trained(stage.broker.as_ref(), "vision", 1).await;
    let keyed = v1::RegisterVersionRequest { request_id: "nightly".to_owned(), ..ada.registration(run, "model.bin") };
    let asked = (0..20).map(|n| (if n % 2 == 0 { &ada } else { &elsewhere }).register(keyed.clone()));
    let answers = futures::future::join_all(asked).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.version == 1)), "{answers:?}");
    assert_eq!(ada.model().await.versions, 1);
    let another = v1::RegisterVersionRequest { note: "other words".to_owned(), ..keyed.clone() };
    assert_eq!(ada.register(another).await.unwrap_err().reason, "IDEMPOTENCY_KEY_REUSED");
    let method = v1::VersionRequest { request_id: "nightly".to_owned(), ..ada.about(1) };
    let refused = ada.client.once(ada.client.registry().propose_version(method)).await.unwrap_err();
    assert_eq!(refused.reason, "IDEMPOTENCY_KEY_REUSED");
    other.stop().await;
    stage.registry.stop().await;
}

#[tokio::test]
async fn a_roll_back_sent_again_rolls_back_once() {
    let stage = stage().await;
    approved_versions(&stage, 2).await;
    let ada = stage.registry.of("ada");
    ada.promote(1).await.unwrap();
    ada.promote(2).await.unwrap();
    let keyed = v1::RollBackModelRequest {
        project: "vision".to_owned(),
        model: "digits".to_owned(),
        request_id: "tonight".to_owned(),
        ..v1::RollBackModelRequest::default()
    };
    let one = ada.client.once(ada.client.registry().roll_back_model(keyed.clone())).await.unwrap();
    let again = ada.client.once(ada.client.registry().roll_back_model(keyed)).await.unwrap();
    assert_eq!((one.version, &one), (1, &again));
    assert_eq!(ada.model().await.serving, 1);
    stage.registry.stop().await;
}

#[tokio::test]
async fn a_registration_sent_again_is_answered_without_reading_the_run_again() {
    let broker = Arc::new(Watched::new());
    let (one, two) = (instance(broker.clone(), "one").await, instance(broker.clone(), "two").await);
    let (ada, elsewhere) = (one.of("ada"), two.of("ada"));
    let keyed = |run| v1::RegisterVersionRequest { request_id: "nightly".to_owned(), ..ada.registration(run, "model.bin") };
    let run = trained(broker.as_ref(), "vision", 1).await;
    // What is refused is not remembered: a missing model is found after the run, and the key is free for when there is one.
    assert_eq!(ada.register(keyed(run_id(2))).await.unwrap_err().reason, "RUN_NOT_FOUND");
    assert_eq!(ada.register(keyed(run)).await.unwrap_err().reason, "MODEL_NOT_FOUND");
    ada.create("digits").await.unwrap();
    let made = ada.register(keyed(run)).await.unwrap();
    let reads = || broker.reads_of(&Subject::run(&project(), run).to_string()).len();
    let before = reads();
    for person in [&ada, &elsewhere] {
        assert_eq!(person.register(keyed(run)).await.unwrap(), made);
    }
    let another = ada.register(v1::RegisterVersionRequest { note: "other words".to_owned(), ..keyed(run) }).await.unwrap_err();
    assert_eq!((another.reason.as_str(), reads()), ("IDEMPOTENCY_KEY_REUSED", before));
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn what_is_written_and_not_seen_yet_is_told_as_such_and_never_as_version_0() {
    let broker = Arc::new(Watched::new());
    // Twice it is waited for in vain; everything else is given as much time.
    let config = Config { wait: Duration::from_secs(2), ..Config::new("one") };
    let stage = Stage { broker: broker.clone(), registry: instance_of(broker.clone(), config).await };
    approved_versions(&stage, 2).await;
    let ada = stage.registry.of("ada");
    ada.promote(1).await.unwrap();
    ada.promote(2).await.unwrap();
    let run = trained(broker.as_ref(), "vision", 3).await;
    let end = ada.set_alias("champion", 1).await.unwrap().sequence;
    let register = v1::RegisterVersionRequest { request_id: "nightly".to_owned(), ..ada.registration(run, "model.bin") };
    let roll_back = v1::RollBackModelRequest {
        project: "vision".to_owned(),
        model: "digits".to_owned(),
        request_id: "tonight".to_owned(),
        ..v1::RollBackModelRequest::default()
    };
    let rolled = || ada.client.once(async { ada.client.registry().roll_back_model(roll_back.clone()).await });

    broker.hold(true);
    let behind = ada.register(register.clone()).await.unwrap_err();
    assert!(behind.reason == "VIEW_BEHIND" && behind.message.contains(&format!("sequence {}", end + 1)), "{behind:?}");
    broker.hold(false);
    assert_eq!(ada.register(register).await.unwrap().version, 3);

    broker.hold(true);
    let behind = rolled().await.unwrap_err();
    assert!(behind.reason == "VIEW_BEHIND" && behind.message.contains(&format!("sequence {}", end + 2)), "{behind:?}");
    broker.hold(false);
    assert_eq!(rolled().await.unwrap().version, 1);
    stage.registry.stop().await;
}
