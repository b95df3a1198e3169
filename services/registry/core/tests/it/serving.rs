//! What serves, what is tried, what is retired, and which names point where.

use crate::world::*;
use footplate_es::Decide;
use footplate_events::Event;
use footplate_events::facts::Stage;
use footplate_registry_core::{Command, Facts, Pick, Refusal};

fn to_stage(version: u32, to: Stage) -> Command {
    Command::Move { version: v(version), to, reason: String::new() }
}

fn stages(world: &World) -> Vec<Stage> {
    world.model().versions.values().map(|version| version.stage).collect()
}

#[test]
fn only_what_is_approved_is_promoted_and_one_event_takes_the_former_out() {
    let mut world = World::with_versions(2);
    assert!(matches!(world.refuses("ada", promote(1)), Refusal::NotApproved { .. }));
    assert!(matches!(world.refuses("ada", to_stage(1, Stage::Production)), Refusal::NotApproved { .. }));
    world.promoted(1);
    world.promoted(2);
    let last = world.ledger.last().unwrap().envelope.event.clone();
    assert!(matches!(&last, Event::ModelPromoted(fact) if fact.from == Some(v(1)) && fact.to.version == v(2)));
    assert_eq!((stages(&world), world.model().serving), (vec![Stage::None, Stage::Production], Some(v(2))));
    assert_eq!(world.does("eve", promote(2)), [], "it serves already");
}

#[test]
fn a_roll_back_brings_back_what_served_before_and_rolling_that_back_what_served_then() {
    let mut world = World::with_versions(3);
    assert!(matches!(world.refuses("ada", roll_back(None)), Refusal::NothingBefore { serving: None, .. }));
    world.promoted(1);
    assert!(matches!(world.refuses("ada", roll_back(None)), Refusal::NothingBefore { serving: Some(_), .. }));
    world.promoted(2);
    world.promoted(3);
    for expected in [2, 3, 2] {
        world.does("bob", roll_back(None));
        assert_eq!(world.model().serving, Some(v(expected)));
    }
    world.does("bob", roll_back(Some(1)));
    assert_eq!((world.model().serving, world.does("bob", roll_back(Some(1)))), (Some(v(1)), vec![]));
    let history: Vec<u32> = world.model().history.iter().map(|version| version.0).collect();
    assert_eq!(history, [1, 2, 3, 2, 3, 2, 1], "history is kept");
    let mut fresh = World::with_versions(2);
    fresh.promoted(1);
    fresh.approved(2);
    assert!(matches!(fresh.refuses("ada", roll_back(Some(2))), Refusal::NeverServed { .. }));
}

#[test]
fn out_of_production_nothing_serves_and_a_roll_back_brings_the_last_back() {
    let mut world = World::with_versions(1);
    world.promoted(1);
    world.does("ada", to_stage(1, Stage::None));
    assert_eq!(world.model().serving, None);
    world.does("ada", roll_back(None));
    assert_eq!((world.model().serving, stages(&world)), (Some(v(1)), vec![Stage::Production]));
}

#[test]
fn staging_holds_one_and_needs_no_approval() {
    let mut world = World::with_versions(2);
    world.does("ada", to_stage(1, Stage::Staging));
    let events = world.does("ada", to_stage(2, Stage::Staging));
    assert!(matches!(&events[0], Event::ModelStaged(fact) if fact.displaced == Some(v(1))));
    assert_eq!((stages(&world), world.model().staging), (vec![Stage::None, Stage::Staging], Some(v(2))));
    world.promoted(2);
    assert_eq!((world.model().staging, world.model().serving), (None, Some(v(2))));
}

#[test]
fn what_serves_or_is_named_is_not_archived_unless_its_aliases_go_with_it() {
    let mut world = World::with_versions(2);
    world.promoted(1);
    assert!(matches!(world.refuses("ada", archive(1, true)), Refusal::Serves { .. }));
    world.does("ada", set_alias("champion", 2));
    let refused = world.refuses("ada", archive(2, false));
    assert_eq!(refused.to_string(), "version 2 of model digits is named by champion");
    assert!(matches!(world.refuses("ada", to_stage(2, Stage::Archived)), Refusal::HasAliases { .. }));
    world.does("ada", archive(2, true));
    assert_eq!((world.model().aliases.len(), stages(&world)[1]), (0, Stage::Archived));
    assert_eq!(world.does("ada", archive(2, true)), []);
    assert!(matches!(world.refuses("ada", set_alias("champion", 2)), Refusal::Archived { .. }));
    world.does("ada", to_stage(2, Stage::None));
    world.does("ada", set_alias("champion", 2));
}

#[test]
fn nothing_is_rolled_back_to_what_is_archived() {
    let mut world = World::with_versions(2);
    world.promoted(1);
    world.promoted(2);
    world.does("ada", archive(1, false));
    assert!(matches!(world.refuses("ada", roll_back(None)), Refusal::Archived { version, .. } if version == v(1)));
}

#[test]
fn an_alias_moves_with_one_event_and_is_removed_by_name() {
    let mut world = World::with_versions(2);
    world.does("ada", set_alias("champion", 1));
    let events = world.does("ada", set_alias("champion", 2));
    assert!(matches!(&events[0], Event::ModelAliasSet(fact) if fact.from == Some(v(1)) && fact.to.version == v(2)));
    assert_eq!(world.does("ada", set_alias("champion", 2)), []);
    assert_eq!(world.model().pick(&Pick::Alias(alias("champion"))).unwrap().number, v(2));
    let remove = |text: &str| Command::RemoveAlias { alias: alias(text), reason: String::new() };
    let refused = world.refuses("ada", remove("chmpion"));
    assert!(matches!(&refused, Refusal::NoSuchAlias { there, .. } if there == "champion"), "{refused:?}");
    world.does("ada", remove("champion"));
    assert!(world.model().pick(&Pick::Alias(alias("champion"))).is_err());
}

#[test]
fn whoever_comes_second_with_another_version_is_told_who_was_first() {
    let mut world = World::with_versions(2);
    world.approved(1);
    world.approved(2);
    let seen = Facts { seen: Some(world.sequence()), ..World::facts("eve") };
    // Something else about the model in between does not matter.
    world.does("bob", set_alias("candidate", 2));
    world.does("bob", promote(1));
    let refused = world.ask(promote(2), &seen).unwrap_err();
    assert!(matches!(&refused, Refusal::Overtaken { by, now, .. } if *by == who("bob") && now == "version 1"), "{refused:?}");
    assert_eq!(world.ask(promote(1), &seen).unwrap(), [], "the same wish is fulfilled");
    assert!(world.model().decide(promote(2), &World::facts("eve")).is_ok(), "who did not look does not mind");
}

#[test]
fn two_who_roll_back_at_once_roll_back_once() {
    let mut world = World::with_versions(2);
    world.promoted(1);
    world.promoted(2);
    let seen = |by: &str, world: &World| Facts { seen: Some(world.sequence()), ..World::facts(by) };
    let (one, other) = (seen("ada", &world), seen("bob", &world));
    world.ask(roll_back(None), &one).unwrap();
    assert!(matches!(world.ask(roll_back(None), &other), Err(Refusal::Overtaken { .. })));
    assert_eq!(world.model().serving, Some(v(1)));
    assert_eq!(world.ask(roll_back(Some(1)), &other).unwrap(), [], "whoever names the version has what they asked");
}

#[test]
fn an_alias_that_someone_else_moved_meanwhile_is_left_to_them() {
    let mut world = World::with_versions(3);
    world.does("ada", set_alias("champion", 1));
    let seen = Facts { seen: Some(world.sequence()), ..World::facts("eve") };
    world.does("bob", set_alias("champion", 2));
    assert!(matches!(world.ask(set_alias("champion", 3), &seen), Err(Refusal::Overtaken { .. })));
    assert_eq!(world.ask(set_alias("champion", 2), &seen).unwrap(), []);
    let remove = Command::RemoveAlias { alias: alias("champion"), reason: String::new() };
    for taken_away in [remove.clone(), archive(2, true)] {
        let refused = world.ask(taken_away, &seen).unwrap_err();
        assert!(matches!(&refused, Refusal::Overtaken { by, now, .. } if *by == who("bob") && now == "version 2"), "{refused:?}");
    }
    let now = Facts { seen: Some(world.sequence()), ..World::facts("eve") };
    assert!(world.model().decide(archive(2, true), &now).is_ok());
    world.ask(remove, &now).unwrap();
}

#[test]
fn of_many_aliases_a_refusal_names_ten() {
    let mut world = World::with_versions(1);
    for n in 0..10 {
        world.does("ada", set_alias(&format!("a{n}"), 1));
    }
    let told = |world: &mut World| {
        let picked = world.model().pick(&Pick::Alias(alias("nobody"))).map(|_| ());
        (world.refuses("ada", archive(1, false)).to_string(), picked)
    };
    let (archived, picked) = told(&mut world);
    assert!(archived.ends_with("named by a0, a1, a2, a3, a4, a5, a6, a7, a8, a9"), "{archived}");
    assert!(matches!(picked, Err(Refusal::NoSuchAlias { there, .. }) if there.ends_with("a8, a9")));
    world.does("ada", set_alias("b", 1));
    world.does("ada", set_alias("c", 1));
    let (archived, picked) = told(&mut world);
    assert!(archived.ends_with("a8, a9 and 2 more"), "{archived}");
    assert!(matches!(picked, Err(Refusal::NoSuchAlias { there, .. }) if there.ends_with("a8, a9 and 2 more")));
}
