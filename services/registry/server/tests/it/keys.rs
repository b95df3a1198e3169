//! Idempotency keys.

use crate::stage::*;
use footplate_api::v1;

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
