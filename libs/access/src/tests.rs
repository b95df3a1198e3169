//! Stories of a team, its tokens and its roles; and what no history may lead to.

use crate::{Access, Command, Facts, Refusal, Unknown};
use footplate_es::{Decide, Evolve};
use footplate_events::facts::{PrincipalCreated, ProjectRoleGiven, SubscriptionCreated, TokenCreated};
use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_types::{Bearer, Digest, EventId, PrincipalId, ProjectName, Role, SubscriptionName, Timestamp, TokenId};
use proptest::prelude::*;

fn who(text: &str) -> PrincipalId {
    PrincipalId::parse(text).unwrap()
}

fn project(text: &str) -> ProjectName {
    ProjectName::parse(text).unwrap()
}

fn id(n: u8) -> TokenId {
    TokenId::from_bytes([n; 16])
}

/// A platform with its admin `user:root`, whose deeds are done one after the other.
struct World {
    state: Access,
    sequence: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self { state: Access::default(), sequence: 0 };
        let root = who("user:root");
        world.record(&root, Subject::principal(&root).unwrap(), PrincipalCreated { principal: root.clone(), name: None });
        world.record(&root, Subject::project(&project("_")), ProjectRoleGiven { principal: root.clone(), role: Role::Admin });
        world
    }

    fn record(&mut self, actor: &PrincipalId, subject: Subject, event: impl Into<Event>) {
        self.sequence += 1;
        let at = Timestamp::from_millis(self.sequence as i64 * 1_000);
        let id = EventId::derived(&[&self.sequence.to_be_bytes()]);
        let envelope = Envelope {
            id,
            subject,
            event: event.into(),
            source: "test".to_owned(),
            time: at,
            actor: actor.clone(),
            correlation: id,
            causation: None,
            trace: None,
        };
        self.state.evolve(&Recorded { sequence: self.sequence, recorded_at: at, envelope });
    }

    fn try_as(&mut self, bearer: &Bearer, token: TokenId, command: Command) -> Result<usize, Refusal> {
        let subject = match &command {
            Command::CreatePrincipal { principal, .. }
            | Command::DisablePrincipal { principal, .. }
            | Command::EnablePrincipal { principal, .. } => Subject::principal(principal).ok(),
            Command::CreateProject { project, .. } | Command::GiveRole { project, .. } | Command::TakeRole { project, .. } => {
                Some(Subject::project(project))
            }
            Command::CreateToken { .. } => Some(Subject::token(token)),
            Command::CreateSubscription { project, name, .. } | Command::DeleteSubscription { project, name, .. } => {
                Some(Subject::subscription(project, name))
            }
            Command::RevokeToken { token, .. } => Some(Subject::token(*token)),
        };
        let facts = Facts { bearer: bearer.clone(), now: Timestamp::from_millis(self.sequence as i64 * 1_000) };
        let events = self.state.decide(command, &facts)?;
        let count = events.len();
        events.into_iter().for_each(|event| self.record(&bearer.principal, subject.clone().unwrap(), event));
        Ok(count)
    }

    fn by(&mut self, actor: &str, command: Command) -> Result<usize, Refusal> {
        self.try_as(&Bearer::of(who(actor)), id(0), command)
    }

    fn root(&mut self, command: Command) {
        assert_eq!(self.by("user:root", command), Ok(1));
    }

    fn token(&mut self, n: u8, of: &str) -> Bearer {
        assert_eq!(self.try_as(&Bearer::of(who("user:root")), id(n), token_for(n, of)), Ok(1));
        self.bearer(n).unwrap()
    }

    fn bearer(&self, n: u8) -> Result<Bearer, Unknown> {
        self.state.bearer(&Digest::of(&[n]), Timestamp::from_millis(self.sequence as i64 * 1_000))
    }
}

fn principal(text: &str) -> Command {
    Command::CreatePrincipal { principal: who(text), name: None }
}

fn new_project(name: &str) -> Command {
    Command::CreateProject { project: project(name), description: String::new() }
}

fn give(at: &str, to: &str, role: Role) -> Command {
    Command::GiveRole { project: project(at), principal: who(to), role }
}

fn take(at: &str, from: &str) -> Command {
    Command::TakeRole { project: project(at), principal: who(from) }
}

fn token_for(n: u8, principal: &str) -> Command {
    let label = String::new();
    Command::CreateToken {
        principal: who(principal),
        digest: Digest::of(&[n]),
        label,
        project: None,
        role: None,
        expires: None,
        broker_user: None,
    }
}

fn revoke(n: u8) -> Command {
    Command::RevokeToken { token: id(n), reason: "leaked".to_owned() }
}

/// Two projects; Ada is vision's admin, Bob its viewer, vision has a pipeline, Eve is speech's admin.
fn team() -> World {
    let mut world = World::new();
    for command in [
        new_project("vision"),
        new_project("speech"),
        principal("user:ada"),
        principal("user:bob"),
        principal("user:eve"),
        give("vision", "user:ada", Role::Admin),
        give("vision", "user:bob", Role::Viewer),
        give("speech", "user:eve", Role::Admin),
    ] {
        world.root(command);
    }
    assert_eq!(world.by("user:ada", principal("service:vision:ci")), Ok(1));
    assert_eq!(world.by("user:ada", give("vision", "service:vision:ci", Role::Member)), Ok(1));
    world
}

#[test]
fn nobody_has_a_role_that_was_not_given_and_one_in_the_platforms_own_project_holds_everywhere() {
    let mut world = team();
    let role = |world: &World, principal: &str, at: &str| world.state.role_of(&who(principal), &project(at));
    assert_eq!(role(&world, "user:ada", "vision"), Some(Role::Admin));
    assert_eq!(role(&world, "user:ada", "speech"), None);
    assert_eq!(role(&world, "user:ada", "_"), None);
    assert_eq!(role(&world, "user:root", "vision"), Some(Role::Admin));
    assert_eq!(role(&world, "user:nobody", "vision"), None);
    world.root(give("_", "user:bob", Role::Member));
    assert_eq!(role(&world, "user:bob", "vision"), Some(Role::Member), "the greater of both");
    assert_eq!(role(&world, "user:bob", "never-made"), Some(Role::Member));
    world.root(take("_", "user:bob"));
    assert_eq!(role(&world, "user:bob", "vision"), Some(Role::Viewer));
}

#[test]
fn a_token_is_taken_until_it_is_revoked_over_or_its_principal_is_shut_out() {
    let mut world = team();
    assert_eq!(world.bearer(1), Err(Unknown::Nobody));
    let bob = world.token(1, "user:bob");
    assert_eq!(bob.principal, who("user:bob"));
    world.root(Command::DisablePrincipal { principal: who("user:bob"), reason: "left".to_owned() });
    assert_eq!(world.bearer(1), Err(Unknown::Disabled(who("user:bob"))));
    assert_eq!(world.state.role(&bob, &project("vision")), None, "what is open under it has no role either");
    assert_eq!(world.by("user:root", token_for(2, "user:bob")), Err(Refusal::PrincipalDisabled(who("user:bob"))));
    world.root(Command::EnablePrincipal { principal: who("user:bob"), reason: String::new() });
    assert!(world.bearer(1).is_ok());
    world.root(revoke(1));
    assert_eq!(world.bearer(1), Err(Unknown::Revoked("leaked".to_owned())));
    assert_eq!(world.by("user:root", revoke(1)), Ok(0), "once");
    let end = Timestamp::from_millis(100_000);
    let Command::CreateToken { principal, digest, label, project, role, broker_user, .. } = token_for(3, "user:bob") else {
        unreachable!()
    };
    let ends = Command::CreateToken { principal, digest, label, project, role, broker_user, expires: Some(end) };
    assert_eq!(world.try_as(&Bearer::of(who("user:bob")), id(3), ends), Ok(1));
    let at = |seconds: i64| world.state.bearer(&Digest::of(&[3]), Timestamp::from_millis(seconds * 1_000));
    assert!(at(99).is_ok());
    assert_eq!(at(100), Err(Unknown::Over(end)));
}

#[test]
fn a_project_has_its_own_admins_who_reach_no_further() {
    let mut world = team();
    assert_eq!(world.by("user:ada", give("vision", "user:bob", Role::Approver)), Ok(1));
    assert_eq!(world.by("user:ada", give("vision", "user:bob", Role::Approver)), Ok(0), "already so");
    let denied = |answer: Result<usize, Refusal>| matches!(answer, Err(Refusal::Denied { .. }));
    assert!(denied(world.by("user:ada", give("speech", "user:bob", Role::Viewer))));
    assert!(denied(world.by("user:ada", give("_", "user:ada", Role::Admin))));
    assert!(denied(world.by("user:ada", principal("user:new"))));
    assert!(denied(world.by("user:ada", principal("service:speech:ci"))));
    assert!(denied(world.by("user:ada", new_project("robots"))));
    assert!(denied(world.by("user:bob", take("vision", "user:ada"))));
    assert!(denied(world.by("user:ada", token_for(1, "user:bob"))));
    assert!(denied(world.by("user:ada", token_for(1, "node:gpu-1"))));
    assert!(denied(world.by("user:eve", token_for(1, "service:vision:ci"))));
    assert_eq!(world.by("user:ada", token_for(1, "service:vision:ci")), Ok(1));
    assert!(matches!(world.by("user:root", give("speech", "service:vision:ci", Role::Viewer)), Err(Refusal::Invalid(_))));
    assert_eq!(world.by("user:root", give("robots", "user:bob", Role::Viewer)), Err(Refusal::NoSuchProject(project("robots"))));
    assert_eq!(world.by("user:root", give("vision", "user:typo", Role::Viewer)), Err(Refusal::NoSuchPrincipal(who("user:typo"))));
    assert!(matches!(world.by("user:root", give("vision", "node:gpu-1", Role::Viewer)), Err(Refusal::Invalid(_))));
}

#[test]
fn an_admin_of_the_platform_does_not_shut_themselves_out() {
    let mut world = team();
    let is_own = |answer: Result<usize, Refusal>| matches!(answer, Err(Refusal::OneSelf { .. }));
    assert!(is_own(world.by("user:root", take("_", "user:root"))));
    assert!(is_own(world.by("user:root", give("_", "user:root", Role::Viewer))));
    assert!(is_own(world.by("user:root", Command::DisablePrincipal { principal: who("user:root"), reason: String::new() })));
    assert!(world.state.has_admin());
}

#[test]
fn what_an_admin_of_the_platform_has_shut_out_no_admin_of_a_project_lets_in_again() {
    let mut world = team();
    let ci = || who("service:vision:ci");
    let disable = || Command::DisablePrincipal { principal: ci(), reason: "incident".to_owned() };
    let enable = || Command::EnablePrincipal { principal: ci(), reason: String::new() };
    assert_eq!(world.by("user:ada", disable()), Ok(1));
    assert_eq!(world.by("user:ada", enable()), Ok(1), "their own deed they may take back");
    world.root(disable());
    assert!(matches!(world.by("user:ada", enable()), Err(Refusal::Denied { .. })));
    world.root(enable());
}

#[test]
fn a_limited_token_makes_none_beyond_its_limits_and_hands_them_on() {
    let mut world = team();
    let all = world.token(1, "user:ada");
    let limited = Bearer {
        only: Some(project("vision")),
        most: Some(Role::Member),
        expires: Some(Timestamp::from_millis(50_000)),
        token: Some(id(1)),
        ..all
    };
    assert_eq!(world.state.role(&limited, &project("vision")), Some(Role::Member));
    assert_eq!(world.state.role(&limited, &project("speech")), None);
    assert_eq!(world.state.role(&limited, &project("_")), None);
    let ask = |n: u8, only: Option<&str>, role: Option<Role>, expires: Option<i64>| Command::CreateToken {
        principal: who("user:ada"),
        digest: Digest::of(&[n]),
        label: String::new(),
        project: only.map(project),
        role,
        expires: expires.map(|s| Timestamp::from_millis(s * 1_000)),
        broker_user: None,
    };
    for (only, role, expires) in [(Some("speech"), None, None), (None, Some(Role::Approver), None), (None, None, Some(51))] {
        let answer = world.try_as(&limited, id(9), ask(9, only, role, expires));
        assert!(matches!(answer, Err(Refusal::Beyond { .. })), "{only:?} {role:?} {expires:?}: {answer:?}");
    }
    assert_eq!(world.try_as(&limited, id(2), ask(2, None, None, None)), Ok(1));
    let made = world.bearer(2).unwrap();
    assert_eq!((made.only, made.most, made.expires), (limited.only.clone(), limited.most, limited.expires));
    assert_eq!(world.try_as(&limited, id(3), ask(3, Some("vision"), Some(Role::Viewer), Some(40))), Ok(1));
    assert_eq!(world.bearer(3).unwrap().most, Some(Role::Viewer));
    let over = world.try_as(&Bearer::of(who("user:ada")), id(4), ask(4, None, None, Some(1)));
    assert!(matches!(over, Err(Refusal::Invalid(invalid)) if invalid.field == "expires"));
}

#[test]
fn what_was_made_with_a_token_falls_with_it_and_a_limited_one_takes_back_no_other() {
    let mut world = team();
    let leaked = world.token(1, "user:ada");
    assert_eq!(world.try_as(&leaked, id(2), token_for(2, "user:ada")), Ok(1));
    let copy = world.bearer(2).unwrap();
    assert_eq!(world.try_as(&copy, id(3), token_for(3, "user:ada")), Ok(1));
    assert_eq!(world.try_as(&copy, id(4), token_for(4, "service:vision:ci")), Ok(1));
    let other = world.token(5, "user:ada");
    world.root(revoke(1));
    for n in [1, 2, 3] {
        assert_eq!(world.bearer(n), Err(Unknown::Revoked("leaked".to_owned())), "{n}");
    }
    assert!(world.bearer(4).is_ok(), "what an admin gave to somebody else is theirs");
    let limited = Bearer { most: Some(Role::Viewer), ..other };
    world.token(6, "user:ada");
    assert!(matches!(world.try_as(&limited, id(0), revoke(6)), Err(Refusal::Denied { .. })));
    assert_eq!(world.try_as(&limited, id(7), token_for(7, "user:ada")), Ok(1));
    assert_eq!(world.try_as(&limited, id(0), revoke(7)), Ok(1));
    assert_eq!(world.try_as(&limited, id(0), revoke(5)), Ok(1), "and itself");
}

#[test]
fn a_line_of_tokens_has_an_end() {
    let mut world = team();
    let mut bearer = world.token(1, "user:ada");
    let mut made = 1;
    while world.try_as(&bearer, id(made + 1), token_for(made + 1, "user:ada")) == Ok(1) {
        made += 1;
        bearer = world.bearer(made).unwrap();
        assert!(made < 100);
    }
    assert_eq!(usize::from(made), crate::state::LINE_MAX);
    world.root(revoke(1));
    assert!(matches!(world.bearer(made), Err(Unknown::Revoked(_))), "the last falls with the first");
}

#[test]
fn tokens_of_others_are_nobodys_business_and_a_node_makes_none() {
    let mut world = team();
    world.token(1, "user:eve");
    assert_eq!(world.by("user:ada", revoke(1)), Err(Refusal::NoSuchToken(id(1))));
    assert_eq!(world.by("user:eve", revoke(1)), Ok(1));
    let node = world.token(2, "node:gpu-1");
    assert_eq!(world.state.role(&node, &project("vision")), None);
    assert!(matches!(world.try_as(&node, id(3), token_for(3, "node:gpu-1")), Err(Refusal::Denied { .. })));
}

#[test]
fn one_who_is_alone_is_told_from_one_of_several() {
    let mut world = World::new();
    assert!(world.state.is_only_member(&project("vision"), &who("user:root")));
    world.root(principal("user:ada"));
    world.root(new_project("vision"));
    assert!(world.state.is_only_member(&project("vision"), &who("user:root")), "whoever has no role does not count");
    world.root(give("vision", "user:ada", Role::Viewer));
    assert!(world.state.is_only_member(&project("vision"), &who("user:root")), "whoever only reads does not count");
    world.root(give("vision", "user:ada", Role::Member));
    assert!(!world.state.is_only_member(&project("vision"), &who("user:root")));
    assert!(!world.state.is_only_member(&project("vision"), &who("user:ada")));
    assert!(!world.state.is_only_member(&project("vision"), &who("node:gpu-1")));
}

#[test]
fn a_projects_admin_lets_others_subscribe_and_takes_it_back() {
    let mut world = team();
    let name = || SubscriptionName::parse("serving").unwrap();
    let fact =
        || SubscriptionCreated { description: String::new(), aggregate: None, from: None, broker_user: "UA".to_owned(), expires: None };
    let make = |at: &str| Command::CreateSubscription { project: project(at), name: name(), fact: fact() };
    let drop = |at: &str| Command::DeleteSubscription { project: project(at), name: name(), reason: String::new() };
    assert!(matches!(world.by("user:bob", make("vision")), Err(Refusal::Denied { .. })));
    assert!(matches!(world.by("user:ada", make("speech")), Err(Refusal::Denied { .. })));
    assert!(matches!(world.by("user:root", make("_")), Err(Refusal::Invalid(_))));
    assert_eq!(world.by("user:ada", make("vision")), Ok(1));
    assert_eq!(world.by("user:ada", make("vision")), Err(Refusal::SubscriptionExists(name())));
    assert_eq!(world.state.subscriptions(&project("vision")).count(), 1);
    assert_eq!(world.by("user:eve", drop("speech")), Err(Refusal::NoSuchSubscription(name())));
    assert_eq!(world.by("user:ada", drop("vision")), Ok(1));
    assert_eq!(world.by("user:ada", drop("vision")), Ok(0), "once");
    assert_eq!(world.by("user:ada", make("vision")), Ok(1), "and made again");
}

/// A digest that is said twice names its first token for ever: whoever learned a digest cannot take it over.
#[test]
fn a_digest_names_its_first_token() {
    let mut world = team();
    world.token(1, "user:ada");
    let copy = TokenCreated {
        principal: who("user:eve"),
        digest: Digest::of(&[1]),
        label: String::new(),
        project: None,
        role: None,
        expires: None,
        parent: None,
        broker_user: None,
    };
    world.record(&who("user:eve"), Subject::token(id(7)), copy);
    assert_eq!(world.bearer(1).unwrap().principal, who("user:ada"));
    assert!(world.state.token(&id(7)).is_none());
}

proptest! {
    /// Whatever people ask of each other, nobody gains what no admin gave them, and the platform keeps an admin.
    #[test]
    fn no_history_lets_anyone_rise_by_themselves(steps in proptest::collection::vec((0usize..4, 0usize..8, 0usize..4, 0usize..3, 0usize..4), 1..60)) {
        let people = ["user:root", "user:ada", "user:bob", "user:eve"];
        let places = ["_", "vision", "speech"];
        let mut world = team();
        for (actor, what, whom, place, role) in steps {
            let (actor, whom, place, role) = (people[actor], people[whom], places[place], Role::ALL[role]);
            let before = world.state.role_of(&who(actor), &project(place));
            let admin = before == Some(Role::Admin);
            let command = match what {
                0 | 1 => give(place, whom, role),
                2 => take(place, whom),
                3 => Command::DisablePrincipal { principal: who(whom), reason: String::new() },
                4 => Command::EnablePrincipal { principal: who(whom), reason: String::new() },
                5 => principal(&format!("service:{}:x{role}", if place == "_" { "vision" } else { place })),
                6 => token_for(u8::try_from(world.sequence % 250).unwrap(), whom),
                _ => revoke(u8::try_from(world.sequence % 7).unwrap()),
            };
            let token = id(u8::try_from(world.sequence % 250).unwrap());
            let done = world.try_as(&Bearer::of(who(actor)), token, command);
            if !admin && what < 3 {
                prop_assert!(done.is_err(), "{actor} did {what} in {place} as {before:?}");
            }
            let after = world.state.role_of(&who(actor), &project(place));
            prop_assert!(after <= before || admin, "{actor} rose from {before:?} to {after:?} in {place}");
            prop_assert!(world.state.has_admin());
        }
    }
}
