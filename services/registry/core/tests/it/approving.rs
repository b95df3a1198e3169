//! Who may say that a version may serve.

use crate::world::*;
use footplate_es::Decide;
use footplate_events::Event;
use footplate_registry_core::{Command, Facts, Refusal};

fn propose(version: u32) -> Command {
    Command::Propose { version: v(version), reason: "val/acc 0.94".to_owned() }
}

fn approve(version: u32) -> Command {
    Command::Approve { version: v(version), reason: "looked at it".to_owned() }
}

fn reject(version: u32) -> Command {
    Command::Reject { version: v(version), reason: "too slow".to_owned() }
}

#[test]
fn someone_else_than_the_proposer_approves() {
    let mut world = World::with_versions(1);
    assert!(matches!(world.refuses("bob", approve(1)), Refusal::NotProposed { .. }));
    world.does("ada", propose(1));
    assert_eq!(world.does("ada", propose(1)), [], "proposed is proposed");
    assert!(matches!(world.refuses("bob", propose(1)), Refusal::ProposalOpen { by, .. } if by == who("ada")));
    assert!(matches!(world.refuses("ada", approve(1)), Refusal::OwnProposal { by, .. } if by == who("ada")));
    world.does("bob", approve(1));
    let approval = world.model().versions[&v(1)].approval.clone().unwrap();
    assert_eq!((approval.mark.by, approval.as_only_member), (who("bob"), false));
    for again in [propose(1), approve(1)] {
        assert!(matches!(world.refuses("eve", again), Refusal::AlreadyApproved { by, .. } if by == who("bob")));
    }
}

#[test]
fn the_only_member_of_a_project_approves_its_own_and_that_is_recorded() {
    let mut world = World::with_versions(2);
    world.does("ada", propose(1));
    let alone = Facts { is_only_member: true, ..World::facts("ada") };
    let events = world.ask(approve(1), &alone).unwrap();
    assert!(matches!(&events[0], Event::ModelVersionApproved(fact) if fact.as_only_member));
    assert!(world.model().versions[&v(1)].approval.as_ref().unwrap().as_only_member);
    // Whoever approves another's (a member that has left) does not do it as the only member.
    world.does("bob", propose(2));
    let events = world.ask(approve(2), &alone).unwrap();
    assert!(matches!(&events[0], Event::ModelVersionApproved(fact) if !fact.as_only_member));
}

#[test]
fn a_rejected_proposal_is_answered_and_another_may_follow() {
    let mut world = World::with_versions(1);
    world.does("ada", propose(1));
    world.does("bob", reject(1));
    let told = world.refuses("eve", approve(1)).to_string();
    assert!(told.contains("bob rejected it"), "{told}");
    assert!(matches!(world.refuses("ada", promote(1)), Refusal::NotApproved { .. }));
    world.does("bob", propose(1));
    world.does("ada", approve(1));
    world.does("bob", promote(1));
    assert!(matches!(world.refuses("ada", reject(1)), Refusal::NotProposed { .. }), "an approval stands for ever");
}

#[test]
fn a_proposer_withdraws_by_rejecting() {
    let mut world = World::with_versions(1);
    world.does("ada", propose(1));
    world.does("ada", reject(1));
    assert!(matches!(world.refuses("bob", approve(1)), Refusal::NotProposed { .. }));
}

#[test]
fn an_archived_version_is_neither_proposed_nor_approved() {
    let mut world = World::with_versions(1);
    world.does("ada", propose(1));
    world.does("ada", archive(1, false));
    for command in [propose(1), approve(1), promote(1)] {
        assert!(matches!(world.refuses("bob", command), Refusal::Archived { .. }));
    }
}

#[test]
fn nobody_answers_a_proposal_that_came_after_they_looked() {
    let mut world = World::with_versions(1);
    world.does("ada", propose(1));
    let seen = Facts { seen: Some(world.sequence()), ..World::facts("bob") };
    // What else is said of the version in between does not matter.
    world.does("ada", set_alias("candidate", 1));
    assert!(world.model().decide(approve(1), &seen).is_ok());
    world.does("ada", reject(1));
    world.does("eve", propose(1));
    for answer in [approve(1), reject(1)] {
        let refused = world.ask(answer, &seen).unwrap_err();
        assert!(matches!(&refused, Refusal::Overtaken { by, now, .. } if *by == who("eve") && now == "one by eve"), "{refused:?}");
    }
    let now = Facts { seen: Some(world.sequence()), ..World::facts("bob") };
    world.ask(approve(1), &now).unwrap();
}
