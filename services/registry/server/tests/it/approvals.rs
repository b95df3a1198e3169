//! Who may have a version serve.

use crate::stage::*;
use footplate_api::v1;

#[tokio::test]
async fn the_proposer_does_not_approve_and_nothing_unapproved_is_promoted() {
    let stage = stage().await;
    let (ada, bob) = (stage.registry.of("ada"), stage.registry.of("bob"));
    ada.create("digits").await.unwrap();
    let run = trained(stage.broker.as_ref(), "vision", 1).await;
    ada.register(ada.registration(run, "model.bin")).await.unwrap();
    assert_eq!(ada.promote(1).await.unwrap_err().reason, "NOT_APPROVED");
    assert_eq!(bob.approve(1).await.unwrap_err().reason, "NOT_PROPOSED");
    ada.propose(1).await.unwrap();
    assert_eq!(bob.propose(1).await.unwrap_err().reason, "PROPOSAL_OPEN");
    let own = ada.approve(1).await.unwrap_err();
    assert_eq!((own.reason.as_str(), own.exit().code()), ("OWN_PROPOSAL", 4));
    bob.approve(1).await.unwrap();
    assert_eq!(bob.approve(1).await.unwrap_err().reason, "ALREADY_APPROVED");
    ada.promote(1).await.unwrap();
    let version = ada.version(1).await;
    assert_eq!((version.stage.as_str(), version.approval.as_str(), version.as_only_member), ("Production", "approved", false));
    assert_eq!(version.answered.unwrap().by, "bob");
    assert_eq!(ada.model().await.serving, 1);
    stage.registry.stop().await;
}

#[tokio::test]
async fn who_is_alone_in_a_project_approves_their_own_and_it_is_shown() {
    let stage = stage().await;
    let ada = stage.registry.of("ada").in_project(ALONE);
    ada.create("digits").await.unwrap();
    let run = trained(stage.broker.as_ref(), ALONE, 1).await;
    ada.register(ada.registration(run, "model.bin")).await.unwrap();
    ada.propose(1).await.unwrap();
    ada.approve(1).await.unwrap();
    ada.promote(1).await.unwrap();
    assert!(ada.version(1).await.as_only_member);
    stage.registry.stop().await;
}

#[tokio::test]
async fn stages_roll_backs_and_the_archive_follow_the_rules_over_the_wire() {
    let stage = stage().await;
    approved_versions(&stage, 2).await;
    let ada = stage.registry.of("ada");
    assert_eq!(ada.roll_back().await.unwrap_err().reason, "NEVER_SERVED");
    ada.promote(1).await.unwrap();
    ada.promote(2).await.unwrap();
    assert_eq!(ada.roll_back().await.unwrap().version, 1);
    assert_eq!(ada.roll_back().await.unwrap().version, 2);
    assert_eq!(ada.model().await.history, [1, 2, 1, 2]);
    let archive = |version, free_aliases| v1::ArchiveVersionRequest {
        project: "vision".to_owned(),
        model: "digits".to_owned(),
        version,
        free_aliases,
        ..v1::ArchiveVersionRequest::default()
    };
    let archived = |request| ada.client.once(async { ada.client.registry().archive_version(request).await });
    assert_eq!(archived(archive(2, true)).await.unwrap_err().reason, "VERSION_SERVES");
    ada.set_alias("old", 1).await.unwrap();
    assert_eq!(archived(archive(1, false)).await.unwrap_err().reason, "VERSION_HAS_ALIASES");
    archived(archive(1, true)).await.unwrap();
    assert_eq!(ada.roll_back().await.unwrap_err().reason, "VERSION_ARCHIVED");
    let staged = |stage: &str| v1::MoveVersionRequest {
        project: "vision".to_owned(),
        model: "digits".to_owned(),
        version: 1,
        stage: stage.to_owned(),
        ..v1::MoveVersionRequest::default()
    };
    let unknown = ada.client.once(ada.client.registry().move_version(staged("Prod"))).await.unwrap_err();
    assert_eq!((unknown.reason.as_str(), unknown.field.as_deref()), ("INVALID_FIELD", Some("stage")));
    ada.client.once(ada.client.registry().move_version(staged("staging"))).await.unwrap();
    assert_eq!(ada.resolve("models:/digits/Staging").await.unwrap().version.unwrap().version, 1);
    assert!(stage.registry.verified().await.equal);
    stage.registry.stop().await;
}
