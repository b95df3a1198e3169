//! What may be changed, by whom.

use crate::refusal::makers;
use crate::state::LINE_MAX;
use crate::{Access, Refusal};
use footplate_es::Decide;
use footplate_events::Event;
use footplate_events::facts::{
    PrincipalCreated, PrincipalDisabled, PrincipalEnabled, ProjectCreated, ProjectRoleGiven, ProjectRoleTaken, SubscriptionCreated,
    SubscriptionDeleted, TokenCreated, TokenRevoked,
};
use footplate_types::{
    Bearer, Digest, DisplayName, Invalid, PRINCIPAL_FORMS, PrincipalId, PrincipalKind, ProjectName, Role, SubscriptionName, Timestamp,
    TokenId,
};

/// Principals that there may be.
const PRINCIPALS_MAX: usize = 100_000;
/// Projects that there may be.
const PROJECTS_MAX: usize = 10_000;
/// Roles in one project.
const ROLES_MAX: usize = 10_000;
/// Subscriptions of one project that stand at a time.
const SUBSCRIPTIONS_MAX: usize = 500;
/// Tokens of one principal that are good at a time.
const TOKENS_MAX: usize = 1_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a principal.
    CreatePrincipal {
        /// Who.
        principal: PrincipalId,
        /// What people call it.
        name: Option<DisplayName>,
    },
    /// Shut a principal out.
    DisablePrincipal {
        /// Who.
        principal: PrincipalId,
        /// Why.
        reason: String,
    },
    /// Let a principal in again.
    EnablePrincipal {
        /// Who.
        principal: PrincipalId,
        /// Why.
        reason: String,
    },
    /// Make a project.
    CreateProject {
        /// Its name.
        project: ProjectName,
        /// What it is for.
        description: String,
    },
    /// Give a role.
    GiveRole {
        /// Where.
        project: ProjectName,
        /// To whom.
        principal: PrincipalId,
        /// Which.
        role: Role,
    },
    /// Take a role.
    TakeRole {
        /// Where.
        project: ProjectName,
        /// From whom.
        principal: PrincipalId,
    },
    /// Make a token.
    CreateToken {
        /// For whom.
        principal: PrincipalId,
        /// SHA-256 of it.
        digest: Digest,
        /// What it is for.
        label: String,
        /// The one project that it is good for.
        project: Option<ProjectName>,
        /// The most that it may.
        role: Option<Role>,
        /// When it ends.
        expires: Option<Timestamp>,
        /// The broker's user that is made with it.
        broker_user: Option<String>,
    },
    /// Let somebody subscribe to a project's events.
    CreateSubscription {
        /// Of which project.
        project: ProjectName,
        /// Under which name.
        name: SubscriptionName,
        /// What it is for, from where on, and whose.
        fact: SubscriptionCreated,
    },
    /// Take a subscription back.
    DeleteSubscription {
        /// Of which project.
        project: ProjectName,
        /// Which.
        name: SubscriptionName,
        /// Why.
        reason: String,
    },
    /// Take a token back.
    RevokeToken {
        /// Which.
        token: TokenId,
        /// Why.
        reason: String,
    },
}

impl Command {
    /// The event that says it, asked by a bearer; of a token, as long as the bearer's own has no limits to hand on.
    pub fn event(&self, bearer: &Bearer) -> Event {
        match self.clone() {
            Self::CreatePrincipal { principal, name } => PrincipalCreated { principal, name }.into(),
            Self::DisablePrincipal { reason, .. } => PrincipalDisabled { reason }.into(),
            Self::EnablePrincipal { reason, .. } => PrincipalEnabled { reason }.into(),
            Self::CreateProject { description, .. } => ProjectCreated { description, admin: bearer.principal.clone() }.into(),
            Self::GiveRole { principal, role, .. } => ProjectRoleGiven { principal, role }.into(),
            Self::TakeRole { principal, .. } => ProjectRoleTaken { principal }.into(),
            Self::CreateToken { principal, digest, label, project, role, expires, broker_user } => {
                TokenCreated { principal, digest, label, project, role, expires, parent: None, broker_user }.into()
            }
            Self::CreateSubscription { fact, .. } => fact.into(),
            Self::DeleteSubscription { reason, .. } => SubscriptionDeleted { reason }.into(),
            Self::RevokeToken { reason, .. } => TokenRevoked { reason }.into(),
        }
    }
}

/// What a decision needs of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who asks.
    pub bearer: Bearer,
    /// What time it is.
    pub now: Timestamp,
}

impl Decide for Access {
    type Command = Command;
    type Facts = Facts;
    type Refusal = Refusal;

    fn decide(&self, command: Command, facts: &Facts) -> Result<Vec<Event>, Refusal> {
        let event = command.event(&facts.bearer);
        let is_new = match command {
            Command::CreatePrincipal { principal, name } => self.create_principal(principal, name, facts)?,
            Command::DisablePrincipal { principal, .. } => self.disable(&principal, facts)?,
            Command::EnablePrincipal { principal, .. } => self.enable(&principal, facts)?,
            Command::CreateProject { project, .. } => self.create_project(project, facts)?,
            Command::GiveRole { project, principal, role } => self.give_role(&project, principal, role, facts)?,
            Command::TakeRole { project, principal } => self.take_role(&project, principal, facts)?,
            Command::CreateToken { principal, digest, label, project, role, expires, broker_user } => {
                let fact = TokenCreated { principal, digest, label, project, role, expires, parent: None, broker_user };
                return Ok(vec![self.create_token(fact, facts)?]);
            }
            Command::CreateSubscription { project, name, .. } => self.create_subscription(&project, name, facts)?,
            Command::DeleteSubscription { project, name, .. } => self.delete_subscription(&project, name, facts)?,
            Command::RevokeToken { token, .. } => self.revoke_token(token, facts)?,
        };
        Ok(is_new.then_some(event).into_iter().collect())
    }
}

impl Access {
    fn is_platform_admin(&self, bearer: &Bearer) -> bool {
        self.role(bearer, &ProjectName::platform()) == Some(Role::Admin)
    }

    /// Whether a bearer may make, shut out and give tokens to a principal: an admin of the platform; of a project's program, that project's admin.
    pub fn may_make(&self, bearer: &Bearer, principal: &PrincipalId) -> bool {
        let of_own = match principal.kind() {
            Some(PrincipalKind::Service { project: Some(project) }) => self.role(bearer, &project) == Some(Role::Admin),
            _ => false,
        };
        of_own || self.is_platform_admin(bearer)
    }

    fn demand_maker(&self, bearer: &Bearer, principal: &PrincipalId, what: &str) -> Result<(), Refusal> {
        let Some(kind) = principal.kind() else {
            return Err(Invalid::new("principal", principal.as_str(), PRINCIPAL_FORMS).into());
        };
        if self.may_make(bearer, principal) {
            return Ok(());
        }
        let project = if let PrincipalKind::Service { project } = &kind { project.as_ref() } else { None };
        Err(Refusal::denied(&bearer.principal, format!("{what} {principal}"), makers(project)))
    }

    fn demand_admin(&self, bearer: &Bearer, project: &ProjectName, what: &str) -> Result<(), Refusal> {
        if self.role(bearer, project) == Some(Role::Admin) {
            return Ok(());
        }
        let needs = format!("the role {} in {project}, or in the platform's own project, _", Role::Admin);
        Err(Refusal::denied(&bearer.principal, format!("{what} {project}"), needs))
    }

    fn create_principal(&self, principal: PrincipalId, name: Option<DisplayName>, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_maker(&facts.bearer, &principal, "make the principal")?;
        match principal.kind() {
            Some(PrincipalKind::User | PrincipalKind::Service { project: None }) => {}
            Some(PrincipalKind::Service { project: Some(project) }) => self.demand_project(&project)?,
            _ => {
                let allowed = "user:<name>, service:<name> or service:<project>:<name>; nodes need none, their tokens are made by name";
                return Err(Invalid::new("principal", principal.as_str(), allowed).into());
            }
        }
        if let Some(known) = self.principal(&principal) {
            let same = known.name == name.as_ref().map(ToString::to_string);
            return if same { Ok(false) } else { Err(Refusal::PrincipalExists(principal)) };
        }
        bounded(self.principals().len(), "principals", PRINCIPALS_MAX)?;
        Ok(true)
    }

    fn disable(&self, principal: &PrincipalId, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_maker(&facts.bearer, principal, "disable")?;
        if *principal == facts.bearer.principal {
            return Err(Refusal::OneSelf { who: principal.clone(), what: "disable" });
        }
        let known = self.principal(principal).ok_or_else(|| Refusal::NoSuchPrincipal(principal.clone()))?;
        Ok(known.disabled.is_none())
    }

    fn enable(&self, principal: &PrincipalId, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_maker(&facts.bearer, principal, "enable")?;
        let known = self.principal(principal).ok_or_else(|| Refusal::NoSuchPrincipal(principal.clone()))?;
        // What an admin of the platform has shut out, after an incident, no admin of a project lets in again.
        let by_another = known.disabled.as_ref().is_some_and(|mark| mark.by != facts.bearer.principal);
        if by_another && !self.is_platform_admin(&facts.bearer) {
            return Err(Refusal::denied(&facts.bearer.principal, format!("enable {principal}"), makers(None)));
        }
        Ok(known.disabled.is_some())
    }

    fn create_project(&self, project: ProjectName, facts: &Facts) -> Result<bool, Refusal> {
        if project.is_platform() {
            return Err(Invalid::new("project", project.as_str(), "a project's own name; _ is the platform's").into());
        }
        self.demand_admin(&facts.bearer, &ProjectName::platform(), "make projects of")?;
        if self.project(&project).is_some_and(|known| known.created.is_some()) {
            return Err(Refusal::ProjectExists(project));
        }
        bounded(self.projects().len(), "projects", PROJECTS_MAX)?;
        Ok(true)
    }

    fn demand_project(&self, project: &ProjectName) -> Result<(), Refusal> {
        if project.is_platform() || self.project(project).is_some_and(|known| known.created.is_some()) {
            return Ok(());
        }
        Err(Refusal::NoSuchProject(project.clone()))
    }

    fn give_role(&self, project: &ProjectName, principal: PrincipalId, role: Role, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_admin(&facts.bearer, project, "give roles in")?;
        self.demand_project(project)?;
        match principal.kind() {
            None => return Err(Invalid::new("principal", principal.as_str(), PRINCIPAL_FORMS).into()),
            Some(PrincipalKind::Node(_)) => {
                return Err(Invalid::new("principal", principal.as_str(), "a person or a program; what nodes may is fixed").into());
            }
            Some(PrincipalKind::Service { project: Some(own) }) if own != *project => {
                return Err(Invalid::new("principal", principal.as_str(), format!("one of {project}'s; this one is {own}'s alone")).into());
            }
            Some(_) => {}
        }
        if !self.knows(&principal) {
            return Err(Refusal::NoSuchPrincipal(principal));
        }
        let roles = self.project(project).map(|known| &known.roles);
        let had = roles.and_then(|roles| roles.get(&principal)).copied();
        if had == Some(role) {
            return Ok(false);
        }
        self.demand_not_own_admin(project, &principal, facts)?;
        if had.is_none() {
            bounded(roles.map_or(0, |roles| roles.len()), &format!("roles in {project}"), ROLES_MAX)?;
        }
        Ok(true)
    }

    fn take_role(&self, project: &ProjectName, principal: PrincipalId, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_admin(&facts.bearer, project, "take roles in")?;
        if !self.project(project).is_some_and(|known| known.roles.contains_key(&principal)) {
            return Err(Refusal::NoRole { principal, project: project.clone() });
        }
        self.demand_not_own_admin(project, &principal, facts)?;
        Ok(true)
    }

    /// An admin of the platform does not give up being one: else it could be left with none.
    fn demand_not_own_admin(&self, project: &ProjectName, principal: &PrincipalId, facts: &Facts) -> Result<(), Refusal> {
        if project.is_platform() && *principal == facts.bearer.principal {
            return Err(Refusal::OneSelf { who: principal.clone(), what: "change the role in the platform's own project" });
        }
        Ok(())
    }

    fn create_token(&self, mut fact: TokenCreated, facts: &Facts) -> Result<Event, Refusal> {
        let bearer = &facts.bearer;
        let is_own = fact.principal == bearer.principal;
        if bearer.principal.is_node() {
            return Err(Refusal::denied(&bearer.principal, "make tokens", makers(None)));
        }
        if !is_own {
            self.demand_maker(bearer, &fact.principal, "make a token for")?;
        }
        if !self.knows(&fact.principal) {
            return Err(Refusal::NoSuchPrincipal(fact.principal));
        }
        if self.is_disabled(&fact.principal) {
            return Err(Refusal::PrincipalDisabled(fact.principal));
        }
        if fact.principal.is_node() && (fact.project.is_some() || fact.role.is_some()) {
            let field = if fact.project.is_some() { "project" } else { "role" };
            return Err(Invalid::new(field, fact.principal.as_str(), "nothing, in a token for a node: what nodes may is fixed").into());
        }
        if let Some(project) = &fact.project {
            self.demand_project(project)?;
        }
        if let Some(end) = fact.expires.filter(|end| *end <= facts.now) {
            return Err(Invalid::new("expires", end.to_string(), "a time to come").into());
        }
        // A token of another principal is given by an admin, whose own token's limits are upon the admin's deeds, and this is one of them.
        within(&mut fact, bearer)?;
        if is_own && let Some(parent) = bearer.token {
            bounded(self.depth(&parent), "tokens one made with the other", LINE_MAX)?;
            fact.parent = Some(parent);
        }
        let good = self.tokens().filter(|(_, token)| token.fact.principal == fact.principal && token.is_good(facts.now)).count();
        bounded(good, &format!("good tokens of {}", fact.principal), TOKENS_MAX)?;
        Ok(fact.into())
    }

    fn create_subscription(&self, project: &ProjectName, name: SubscriptionName, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_admin(&facts.bearer, project, "let others subscribe to")?;
        if project.is_platform() {
            return Err(Invalid::new("project", project.as_str(), "a project's own name; _ is the platform's").into());
        }
        if self.subscription(project, &name).is_some_and(|known| known.deleted.is_none()) {
            return Err(Refusal::SubscriptionExists(name));
        }
        bounded(self.subscriptions(project).count(), &format!("subscriptions of {project}"), SUBSCRIPTIONS_MAX)?;
        Ok(true)
    }

    fn delete_subscription(&self, project: &ProjectName, name: SubscriptionName, facts: &Facts) -> Result<bool, Refusal> {
        self.demand_admin(&facts.bearer, project, "take subscriptions from")?;
        match self.subscription(project, &name) {
            Some(known) => Ok(known.deleted.is_none()),
            None => Err(Refusal::NoSuchSubscription(name)),
        }
    }

    fn revoke_token(&self, id: TokenId, facts: &Facts) -> Result<bool, Refusal> {
        let token = self.token(&id).ok_or(Refusal::NoSuchToken(id))?;
        let principal = &token.fact.principal;
        if *principal != facts.bearer.principal && !self.may_make(&facts.bearer, principal) {
            // Whose it is, is nobody else's business.
            return Err(Refusal::NoSuchToken(id));
        }
        // Whoever was given less than the principal takes back no more than what they were given.
        let is_limited = facts.bearer.only.is_some() || facts.bearer.most.is_some();
        if is_limited && !facts.bearer.token.is_some_and(|own| self.descends(&id, &own)) {
            return Err(Refusal::denied(
                &facts.bearer.principal,
                "revoke another token with one that is limited",
                "a token without limits",
            ));
        }
        Ok(token.revoked.is_none())
    }
}

/// Keeps a new token within the limits of the one that was shown: takes them over where nothing is said, and refuses what goes beyond.
fn within(fact: &mut TokenCreated, bearer: &Bearer) -> Result<(), Refusal> {
    let beyond = |limit: String| Refusal::Beyond { limit };
    if let Some(only) = &bearer.only {
        match &fact.project {
            Some(project) if project != only => return Err(beyond(format!("project {only}"))),
            _ => fact.project = Some(only.clone()),
        }
    }
    if let Some(most) = bearer.most {
        match fact.role {
            Some(role) if role > most => return Err(beyond(format!("role {most}"))),
            None => fact.role = Some(most),
            Some(_) => {}
        }
    }
    if let Some(end) = bearer.expires {
        match fact.expires {
            Some(at) if at > end => return Err(beyond(format!("the time until {end}"))),
            None => fact.expires = Some(end),
            Some(_) => {}
        }
    }
    Ok(())
}

fn bounded(count: usize, what: &str, most: usize) -> Result<(), Refusal> {
    if count < most { Ok(()) } else { Err(Refusal::TooMany { what: what.to_owned(), most }) }
}
