//! What stands: principals, projects with the roles in them, tokens.

use crate::Unknown;
use footplate_es::Evolve;
use footplate_events::facts::{SubscriptionCreated, TokenCreated};
use footplate_events::{Event, Recorded};
use footplate_types::{Bearer, Digest, PrincipalId, PrincipalKind, ProjectName, Role, SubscriptionName, Timestamp, TokenId};
use std::collections::BTreeMap;

/// Who did something, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Who.
    pub by: PrincipalId,
    /// When, by the broker's clock.
    pub at: Timestamp,
    /// At which sequence of the ledger.
    pub sequence: u64,
    /// Why; empty when nobody said.
    pub reason: String,
}

impl Mark {
    fn of(recorded: &Recorded, reason: &str) -> Self {
        let Recorded { sequence, recorded_at, envelope } = recorded;
        Self { by: envelope.actor.clone(), at: *recorded_at, sequence: *sequence, reason: reason.to_owned() }
    }
}

/// A person or a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// What people call it.
    pub name: Option<String>,
    /// Who made it.
    pub created: Mark,
    /// That it is shut out.
    pub disabled: Option<Mark>,
}

/// A project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// What it is for.
    pub description: String,
    /// Who made it; never said of the platform's own.
    pub created: Option<Mark>,
    /// The roles in it.
    pub roles: BTreeMap<PrincipalId, Role>,
}

/// What a principal shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whom it stands for, its digest, its limits.
    pub fact: TokenCreated,
    /// Who made it.
    pub created: Mark,
    /// That it was taken back.
    pub revoked: Option<Mark>,
}

impl Token {
    /// Whether it is good at `now`.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.fact.expires.is_none_or(|end| now < end)
    }
}

/// Who subscribes to a project's events at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// What it is for, from where on, and whose.
    pub fact: SubscriptionCreated,
    /// Who made it.
    pub created: Mark,
    /// That it was taken back.
    pub deleted: Option<Mark>,
}

/// How many tokens may be made one with the other.
pub(crate) const LINE_MAX: usize = 16;

/// Who may do what, as of a sequence of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    principals: BTreeMap<PrincipalId, Principal>,
    projects: BTreeMap<ProjectName, Project>,
    tokens: BTreeMap<TokenId, Token>,
    by_digest: BTreeMap<Digest, TokenId>,
    subscriptions: BTreeMap<(ProjectName, SubscriptionName), Subscription>,
}

impl Access {
    /// Whom the token with this digest stands for.
    ///
    /// # Errors
    /// A token that is not taken.
    pub fn bearer(&self, digest: &Digest, now: Timestamp) -> Result<Bearer, Unknown> {
        let id = self.by_digest.get(digest).ok_or(Unknown::Nobody)?;
        let token = self.tokens.get(id).ok_or(Unknown::Nobody)?;
        if let Some(mark) = self.line(token).find_map(|token| token.revoked.as_ref()) {
            return Err(Unknown::Revoked(mark.reason.clone()));
        }
        if let Some(end) = token.fact.expires.filter(|end| now >= *end) {
            return Err(Unknown::Over(end));
        }
        let TokenCreated { principal, project, role, expires, .. } = &token.fact;
        if self.is_disabled(principal) {
            return Err(Unknown::Disabled(principal.clone()));
        }
        Ok(Bearer { principal: principal.clone(), token: Some(*id), only: project.clone(), most: *role, expires: *expires })
    }

    /// A token, the one that it was made with, and so on. It ends: a parent is there before its child, and a line is no longer than [`LINE_MAX`].
    fn line<'a>(&'a self, token: &'a Token) -> impl Iterator<Item = &'a Token> {
        let parent = |token: &&'a Token| token.fact.parent.and_then(|id| self.tokens.get(&id));
        std::iter::successors(Some(token), parent).take(LINE_MAX + 1)
    }

    /// How many tokens stand above this one.
    pub(crate) fn depth(&self, id: &TokenId) -> usize {
        self.tokens.get(id).map_or(0, |token| self.line(token).count())
    }

    /// Whether a token is `ancestor`, or was made with it.
    pub(crate) fn descends(&self, id: &TokenId, ancestor: &TokenId) -> bool {
        let first = self.tokens.get(ancestor);
        self.tokens.get(id).is_some_and(|token| self.line(token).any(|token| first.is_some_and(|first| std::ptr::eq(first, token))))
    }

    /// The role of a principal in a project, or everywhere; the greater of both.
    pub fn role_of(&self, principal: &PrincipalId, project: &ProjectName) -> Option<Role> {
        let held = |project: &ProjectName| self.projects.get(project)?.roles.get(principal).copied();
        held(project).max(held(&ProjectName::platform())).filter(|_| !self.is_disabled(principal))
    }

    /// The role of a bearer in a project, within the limits of the token. A token that is good for one project alone is good for nothing in `_`.
    pub fn role(&self, bearer: &Bearer, project: &ProjectName) -> Option<Role> {
        if bearer.only.as_ref().is_some_and(|only| only != project) {
            return None;
        }
        let role = self.role_of(&bearer.principal, project)?;
        Some(bearer.most.map_or(role, |most| role.min(most)))
    }

    /// Those who may write in a project: its members, and those of the whole platform. Programs count, nodes do not.
    pub fn members<'a>(&'a self, project: &'a ProjectName) -> impl Iterator<Item = &'a PrincipalId> {
        self.principals.keys().filter(|who| self.role_of(who, project) >= Some(Role::Member))
    }

    /// Whether a principal is the only one who may write in a project.
    pub fn is_only_member(&self, project: &ProjectName, principal: &PrincipalId) -> bool {
        let mut members = self.members(project);
        members.next() == Some(principal) && members.next().is_none()
    }

    /// Whether a principal is shut out.
    pub fn is_disabled(&self, principal: &PrincipalId) -> bool {
        self.principals.get(principal).is_some_and(|known| known.disabled.is_some())
    }

    /// Whether somebody may everything.
    pub fn has_admin(&self) -> bool {
        let everywhere = self.projects.get(&ProjectName::platform());
        everywhere.is_some_and(|project| project.roles.iter().any(|(who, role)| *role == Role::Admin && !self.is_disabled(who)))
    }

    /// A principal.
    pub fn principal(&self, id: &PrincipalId) -> Option<&Principal> {
        self.principals.get(id)
    }

    /// All principals.
    pub fn principals(&self) -> impl ExactSizeIterator<Item = (&PrincipalId, &Principal)> {
        self.principals.iter()
    }

    /// A project.
    pub fn project(&self, name: &ProjectName) -> Option<&Project> {
        self.projects.get(name)
    }

    /// All projects, the platform's own among them.
    pub fn projects(&self) -> impl ExactSizeIterator<Item = (&ProjectName, &Project)> {
        self.projects.iter()
    }

    /// A token.
    pub fn token(&self, id: &TokenId) -> Option<&Token> {
        self.tokens.get(id)
    }

    /// The token with this digest.
    pub fn token_of(&self, digest: &Digest) -> Option<TokenId> {
        self.by_digest.get(digest).copied()
    }

    /// All tokens.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = (&TokenId, &Token)> {
        self.tokens.iter()
    }

    /// A subscription, also one that was taken back and not made again.
    pub fn subscription(&self, project: &ProjectName, name: &SubscriptionName) -> Option<&Subscription> {
        self.subscriptions.get(&(project.clone(), name.clone()))
    }

    /// All subscriptions of a project that stand.
    pub fn subscriptions<'a>(&'a self, project: &'a ProjectName) -> impl Iterator<Item = (&'a SubscriptionName, &'a Subscription)> {
        let of_project = self.subscriptions.iter().filter(move |((of, _), known)| of == project && known.deleted.is_none());
        of_project.map(|((_, name), known)| (name, known))
    }

    /// Whether a principal is known: made by someone, or the agent of a node, which needs no making.
    pub(crate) fn knows(&self, id: &PrincipalId) -> bool {
        self.principals.contains_key(id) || matches!(id.kind(), Some(PrincipalKind::Node(_)))
    }

    fn token_created(&mut self, id: TokenId, fact: &TokenCreated, recorded: &Recorded) {
        // The first stands: a digest names one token for ever.
        if self.tokens.contains_key(&id) || self.by_digest.contains_key(&fact.digest) {
            return;
        }
        self.by_digest.insert(fact.digest, id);
        self.tokens.insert(id, Token { fact: fact.clone(), created: Mark::of(recorded, ""), revoked: None });
    }
}

impl Evolve for Access {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        match &recorded.envelope.event {
            Event::ProjectCreated(fact) => {
                let project = self.projects.entry(subject.project.clone()).or_default();
                if project.created.is_none() {
                    project.created = Some(Mark::of(recorded, ""));
                    project.description.clone_from(&fact.description);
                    project.roles.insert(fact.admin.clone(), Role::Admin);
                }
            }
            Event::ProjectRoleGiven(fact) => {
                self.projects.entry(subject.project.clone()).or_default().roles.insert(fact.principal.clone(), fact.role);
            }
            Event::ProjectRoleTaken(fact) => {
                if let Some(project) = self.projects.get_mut(&subject.project) {
                    project.roles.remove(&fact.principal);
                }
            }
            Event::PrincipalCreated(fact) => {
                let made =
                    || Principal { name: fact.name.as_ref().map(ToString::to_string), created: Mark::of(recorded, ""), disabled: None };
                self.principals.entry(fact.principal.clone()).or_insert_with(made);
            }
            Event::PrincipalDisabled(fact) => self.set_disabled(recorded, Some(&fact.reason)),
            Event::PrincipalEnabled(_) => self.set_disabled(recorded, None),
            Event::TokenCreated(fact) => {
                if let Some(id) = subject.token_id() {
                    self.token_created(id, fact, recorded);
                }
            }
            Event::TokenRevoked(fact) => {
                if let Some(token) = subject.token_id().and_then(|id| self.tokens.get_mut(&id)) {
                    token.revoked.get_or_insert_with(|| Mark::of(recorded, &fact.reason));
                }
            }
            Event::SubscriptionCreated(fact) => {
                if let Ok(name) = SubscriptionName::parse(subject.id()) {
                    let made = Subscription { fact: fact.clone(), created: Mark::of(recorded, ""), deleted: None };
                    self.subscriptions.insert((subject.project.clone(), name), made);
                }
            }
            Event::SubscriptionDeleted(fact) => {
                let name = SubscriptionName::parse(subject.id()).ok();
                if let Some(known) = name.and_then(|name| self.subscriptions.get_mut(&(subject.project.clone(), name))) {
                    known.deleted = Some(Mark::of(recorded, &fact.reason));
                }
            }
            _ => {}
        }
    }
}

impl Access {
    fn set_disabled(&mut self, recorded: &Recorded, reason: Option<&String>) {
        let known = recorded.envelope.subject.principal_id().and_then(|id| self.principals.get_mut(&id));
        if let Some(known) = known {
            known.disabled = reason.map(|reason| Mark::of(recorded, reason));
        }
    }
}
