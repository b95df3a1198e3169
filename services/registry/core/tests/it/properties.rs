//! Random histories: several people ask at once, each deciding on what they had read, and the ledger takes an event only when nothing came
//! to its aggregate since. Whatever happens, the rules hold. The checker shares no code with the core.

use crate::world::*;
use footplate_es::{Decide, Project};
use footplate_events::facts::Stage;
use footplate_events::{Event, Recorded};
use footplate_registry_core::{Command, Facts, Registry};
use footplate_types::{AliasName, EventId, PrincipalId, VersionNumber};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PEOPLE: [&str; 3] = ["ada", "bob", "eve"];
/// How far a writer's view may lag, in events.
const LAG_MAX: u64 = 4;

#[derive(Clone, Debug)]
struct Step {
    who: usize,
    command: Command,
    lag: u64,
    minds: bool,
    alone: bool,
}

fn command() -> impl Strategy<Value = Command> {
    let version = || (1..5u32).prop_map(VersionNumber);
    let reason = String::new;
    let stage = prop_oneof![Just(Stage::None), Just(Stage::Staging), Just(Stage::Production), Just(Stage::Archived)];
    let alias = || prop_oneof![Just("champion"), Just("challenger")].prop_map(|text| AliasName::parse(text).unwrap());
    prop_oneof![
        3 => Just(()).prop_map(|()| Command::Register { source: source(), note: String::new() }),
        4 => version().prop_map(move |version| Command::Propose { version, reason: reason() }),
        4 => version().prop_map(move |version| Command::Approve { version, reason: reason() }),
        1 => version().prop_map(move |version| Command::Reject { version, reason: reason() }),
        6 => version().prop_map(move |version| Command::Promote { version, reason: reason() }),
        2 => proptest::option::of(version()).prop_map(move |to| Command::RollBack { to, reason: reason() }),
        2 => (version(), stage).prop_map(move |(version, to)| Command::Move { version, to, reason: reason() }),
        1 => (version(), any::<bool>()).prop_map(move |(version, free_aliases)| Command::Archive { version, free_aliases, reason: reason() }),
        2 => (version(), alias()).prop_map(move |(version, alias)| Command::SetAlias { alias, version, reason: reason() }),
        1 => alias().prop_map(move |alias| Command::RemoveAlias { alias, reason: reason() }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    (0..PEOPLE.len(), command(), 0..LAG_MAX, any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(who, command, lag, minds, alone)| Step {
        who,
        command,
        lag,
        minds,
        alone,
    })
}

/// What the ledger of one model says, told by itself.
#[derive(Default)]
struct Checker {
    versions: u32,
    proposals: BTreeMap<EventId, PrincipalId>,
    approved: BTreeSet<VersionNumber>,
    stages: BTreeMap<VersionNumber, Stage>,
    served: BTreeSet<VersionNumber>,
    aliases: BTreeMap<AliasName, VersionNumber>,
}

impl Checker {
    fn in_stage(&self, wanted: Stage) -> Vec<VersionNumber> {
        self.stages.iter().filter(|(_, stage)| **stage == wanted).map(|(version, _)| *version).collect()
    }

    fn serves(&mut self, version: VersionNumber, from: Option<VersionNumber>) {
        assert_eq!(self.in_stage(Stage::Production), from.into_iter().collect::<Vec<_>>(), "it names what served");
        assert_ne!(self.stages[&version], Stage::Archived);
        if let Some(from) = from {
            self.stages.insert(from, Stage::None);
        }
        self.stages.insert(version, Stage::Production);
        self.served.insert(version);
    }

    fn takes(&mut self, recorded: &Recorded) {
        let (by, id) = (&recorded.envelope.actor, recorded.envelope.id);
        match &recorded.envelope.event {
            Event::ModelVersionRegistered(fact) => {
                self.versions += 1;
                assert_eq!(fact.version.0, self.versions, "no gap, none twice");
                self.stages.insert(fact.version, Stage::None);
            }
            Event::ModelVersionProposed(fact) => {
                assert!(!self.approved.contains(&fact.version));
                self.proposals.insert(id, by.clone());
            }
            Event::ModelVersionApproved(fact) => {
                let proposer = self.proposals.remove(&fact.proposal).expect("an open proposal");
                assert_eq!(&proposer == by, fact.as_only_member, "nobody approves their own unless alone");
                assert!(self.approved.insert(fact.version), "once");
            }
            Event::ModelVersionRejected(fact) => assert!(self.proposals.remove(&fact.proposal).is_some(), "an open proposal"),
            Event::ModelPromoted(fact) => {
                assert!(self.approved.contains(&fact.to.version), "only what is approved");
                self.serves(fact.to.version, fact.from);
            }
            Event::ModelRolledBack(fact) => {
                assert!(self.served.contains(&fact.to.version), "only what has served");
                self.serves(fact.to.version, fact.from);
            }
            Event::ModelStaged(fact) => {
                assert_eq!(self.stages[&fact.version], fact.from);
                if let Some(displaced) = fact.displaced {
                    self.stages.insert(displaced, Stage::None);
                }
                self.stages.insert(fact.version, fact.to);
            }
            Event::ModelArchived(fact) => {
                assert_ne!(self.stages[&fact.version], Stage::Production);
                fact.freed.iter().for_each(|alias| assert_eq!(self.aliases.remove(alias), Some(fact.version)));
                self.stages.insert(fact.version, Stage::Archived);
            }
            Event::ModelAliasSet(fact) => {
                assert_eq!(self.aliases.insert(fact.alias.clone(), fact.to.version), fact.from);
                assert_ne!(self.stages[&fact.to.version], Stage::Archived);
            }
            Event::ModelAliasRemoved(fact) => assert_eq!(self.aliases.remove(&fact.alias), Some(fact.version)),
            _ => {}
        }
        assert!(self.in_stage(Stage::Production).len() <= 1 && self.in_stage(Stage::Staging).len() <= 1);
        assert!(self.aliases.values().all(|version| self.stages[version] != Stage::Archived));
    }
}

fn folded(ledger: &[Recorded]) -> Registry {
    let mut view = Registry::default();
    ledger.iter().for_each(|recorded| footplate_es::Evolve::evolve(&mut view, recorded));
    view
}

/// One request as a server does it: decided on a view that lags, and again from a fresh one when another event came first.
fn asks(world: &mut World, step: Step) {
    let first = world.sequence() - step.lag.min(world.sequence() - 1);
    let by = who(PEOPLE[step.who]);
    let facts = Facts { by: by.clone(), is_only_member: step.alone, body: None, seen: step.minds.then_some(first) };
    for up_to in [first, world.sequence()] {
        let view = folded(&world.ledger[..up_to as usize]);
        let Some(model) = view.model(&project(), &name()) else { return };
        let Ok(events) = model.decide(step.command.clone(), &facts) else { return };
        assert!(events.len() <= 1, "one decision is one event");
        let Some(event) = events.into_iter().next() else { return };
        let (subject, expected) = model.place_of(&event);
        if world.append(&by, subject, expected, event) {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_a_rule(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::with_versions(1);
        for step in steps {
            asks(&mut world, step);
        }
        let mut checker = Checker::default();
        world.ledger.iter().for_each(|recorded| checker.takes(recorded));
        let model = world.model();
        for (version, stage) in &checker.stages {
            prop_assert_eq!(model.versions[version].stage, *stage);
        }
        prop_assert_eq!(model.serving.into_iter().collect::<Vec<_>>(), checker.in_stage(Stage::Production));
        let aliases: BTreeMap<AliasName, VersionNumber> = model.aliases.iter().map(|(alias, known)| (alias.clone(), known.version)).collect();
        prop_assert_eq!(aliases, checker.aliases);
        prop_assert_eq!(folded(&world.ledger).fingerprint(), world.view.fingerprint(), "a replay gives the same view");
    }

    #[test]
    fn whatever_is_read_as_a_reference_is_written_back_to_the_same(text in "(models|runs):/[a-f0-9@./v]{0,12}") {
        if let Ok(read) = footplate_registry_core::Reference::parse(&text) {
            prop_assert_eq!(footplate_registry_core::Reference::parse(&read.to_string()), Ok(read));
        }
    }
}
