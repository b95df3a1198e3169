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
    assert_eq!(ada.archive(2, true, 0).await.unwrap_err().reason, "VERSION_SERVES");
    ada.set_alias("old", 1).await.unwrap();
    assert_eq!(ada.archive(1, false, 0).await.unwrap_err().reason, "VERSION_HAS_ALIASES");
    ada.archive(1, true, 0).await.unwrap();
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

#[tokio::test]
async fn nobody_answers_a_proposal_or_takes_away_an_alias_that_they_have_not_seen() {
    let stage = stage().await;
    let (ada, bob) = (stage.registry.of("ada"), stage.registry.of("bob"));
    ada.create("digits").await.unwrap();
    let run = trained(stage.broker.as_ref(), "vision", 1).await;
    ada.register(ada.registration(run, "model.bin")).await.unwrap();
    let first = ada.propose(1).await.unwrap().sequence;
    let withdrawn = ada.client.once(ada.client.registry().reject_version(ada.about(1))).await.unwrap().sequence;
    let second = ada.propose(1).await.unwrap().sequence;
    for seen in [first, withdrawn] {
        let answer = || v1::VersionRequest { seen, ..bob.about(1) };
        let approved = bob.client.once(bob.client.registry().approve_version(answer())).await.unwrap_err();
        let rejected = bob.client.once(bob.client.registry().reject_version(answer())).await.unwrap_err();
        assert_eq!((approved.reason.as_str(), rejected.reason.as_str()), ("OVERTAKEN", "OVERTAKEN"));
        assert!(approved.message.contains(&format!("ledger sequence {second}")), "{approved:?}");
    }
    let seen = v1::VersionRequest { seen: second, ..bob.about(1) };
    bob.client.once(bob.client.registry().approve_version(seen)).await.unwrap();

    ada.register(ada.registration(run, "model.bin")).await.unwrap();
    let before = ada.set_alias("champion", 2).await.unwrap().sequence;
    let moved = bob.set_alias("champion", 1).await.unwrap().sequence;
    for refused in [ada.remove_alias("champion", before).await.unwrap_err(), ada.archive(1, true, before).await.unwrap_err()] {
        assert!(refused.reason == "OVERTAKEN" && refused.message.contains("bob"), "{refused:?}");
    }
    assert_eq!(ada.resolve("models:/digits@champion").await.unwrap().version.unwrap().version, 1);
    ada.remove_alias("champion", moved).await.unwrap();
    stage.registry.stop().await;
}

#[tokio::test]
async fn an_agent_reads_models_and_changes_none() {
    let stage = stage().await;
    approved_versions(&stage, 2).await;
    let (ada, agent) = (stage.registry.of("ada"), stage.registry.of("node:gpu-01"));
    ada.promote(1).await.unwrap();
    let before = ada.model().await;
    let (about, registry) = (|| agent.about(2), || agent.client.registry());
    let (project, model, reason) = ("vision".to_owned(), "digits".to_owned(), String::new());
    let moved = v1::MoveVersionRequest { project, model, version: 2, stage: "Staging".to_owned(), reason, ..Default::default() };
    let refusals = [
        agent.create("other").await.unwrap_err(),
        agent.register(agent.registration(run_id(1), "model.bin")).await.unwrap_err(),
        agent.evaluate(agent.figures(2, [("acc".to_owned(), 1.0)])).await.unwrap_err(),
        agent.propose(2).await.unwrap_err(),
        agent.approve(2).await.unwrap_err(),
        agent.client.once(registry().reject_version(about())).await.unwrap_err(),
        agent.promote(2).await.unwrap_err(),
        agent.client.once(registry().move_version(moved)).await.unwrap_err(),
        agent.roll_back().await.unwrap_err(),
        agent.archive(2, true, 0).await.unwrap_err(),
        agent.set_alias("champion", 2).await.unwrap_err(),
        agent.remove_alias("champion", 0).await.unwrap_err(),
    ];
    for refused in &refusals {
        assert!(refused.reason == "PROJECT_DENIED" && refused.message.contains("node:gpu-01"), "{refused:?}");
    }
    assert_eq!(agent.model().await, before);
    assert_eq!(agent.resolve("models:/digits/Production").await.unwrap().version.unwrap().version, 1);
    stage.registry.stop().await;
}
