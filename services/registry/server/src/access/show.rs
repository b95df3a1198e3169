//! Who may do what, as messages.

use super::subscriptions::filter_of;
use footplate_access::{Access, Principal, Project, Subscription, Token};
use footplate_api::v1;
use footplate_types::{Bearer, PrincipalId, ProjectName, Role, SubscriptionName, TokenId};

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub(super) fn project(name: &ProjectName, project: &Project, own: Option<Role>) -> v1::Project {
    v1::Project {
        name: name.to_string(),
        description: project.description.clone(),
        created_at: text(project.created.as_ref().map(|mark| mark.at)),
        created_by: text(project.created.as_ref().map(|mark| &mark.by)),
        roles: Vec::new(),
        role: text(own),
    }
}

/// Everyone who has a role in a project, those of the whole platform at the end.
pub(super) fn roles(state: &Access, name: &ProjectName) -> Vec<v1::ProjectRole> {
    let of = |place: &ProjectName, everywhere: bool| {
        let roles = state.project(place).into_iter().flat_map(|project| &project.roles);
        let shown = roles.map(|(who, role)| v1::ProjectRole { principal: who.to_string(), role: role.to_string(), everywhere });
        shown.collect::<Vec<_>>()
    };
    let platform = ProjectName::platform();
    let everywhere = of(&platform, true);
    if name.is_platform() { everywhere } else { [of(name, false), everywhere].concat() }
}

pub(super) fn principal(state: &Access, id: &PrincipalId, principal: &Principal) -> v1::Principal {
    let platform = state.project(&ProjectName::platform());
    v1::Principal {
        id: id.to_string(),
        name: principal.name.clone().unwrap_or_default(),
        disabled: principal.disabled.is_some(),
        reason: principal.disabled.as_ref().map(|mark| mark.reason.clone()).unwrap_or_default(),
        created_at: principal.created.at.to_string(),
        created_by: principal.created.by.to_string(),
        platform_role: text(platform.and_then(|project| project.roles.get(id))),
    }
}

pub(super) fn token(id: &TokenId, token: &Token) -> v1::Token {
    let fact = &token.fact;
    v1::Token {
        id: id.to_string(),
        principal: fact.principal.to_string(),
        label: fact.label.clone(),
        project: text(fact.project.as_ref()),
        role: text(fact.role),
        expires_at: text(fact.expires),
        created_at: token.created.at.to_string(),
        created_by: token.created.by.to_string(),
        revoked_at: text(token.revoked.as_ref().map(|mark| mark.at)),
        revoked_by: text(token.revoked.as_ref().map(|mark| &mark.by)),
        reason: token.revoked.as_ref().map(|mark| mark.reason.clone()).unwrap_or_default(),
    }
}

/// The name of a project's mirror of the ledger in the project's own account.
const MIRROR: &str = "LEDGER";

pub(super) fn subscription(project: &ProjectName, name: &SubscriptionName, known: &Subscription, address: &str) -> v1::Subscription {
    let fact = &known.fact;
    v1::Subscription {
        name: name.to_string(),
        project: project.to_string(),
        description: fact.description.clone(),
        aggregate: text(fact.aggregate.as_ref()),
        from_sequence: fact.from.unwrap_or_default(),
        expires_at: text(fact.expires),
        created_at: known.created.at.to_string(),
        created_by: known.created.by.to_string(),
        broker_address: address.to_owned(),
        stream: MIRROR.to_owned(),
        consumer: name.to_string(),
        // A kind that a newer build knows is shown by the word alone.
        filter: filter_of(project, fact.aggregate.as_deref()).unwrap_or_default(),
    }
}

pub(super) fn who(state: &Access, bearer: &Bearer) -> v1::WhoAmIResponse {
    let role = |name: &ProjectName| state.role(bearer, name);
    let roles = state.projects().filter(|(name, _)| !name.is_platform());
    let roles = roles.filter_map(|(name, _)| Some(v1::OwnRole { project: name.to_string(), role: role(name)?.to_string() }));
    v1::WhoAmIResponse {
        principal: bearer.principal.to_string(),
        platform_role: text(role(&ProjectName::platform())),
        token: text(bearer.token),
        expires_at: text(bearer.expires),
        only_project: text(bearer.only.as_ref()),
        most_role: text(bearer.most),
        roles: roles.collect(),
    }
}
