//! The first principals: those that whoever starts the platform vouches for, before there is anyone who could make them.

use crate::Bootstrap;
use footplate_access::Access;
use footplate_api::Refusal;
use footplate_events::facts::{PrincipalCreated, PrincipalEnabled, ProjectCreated, ProjectRoleGiven, TokenCreated};
use footplate_events::{Event, Subject};
use footplate_shell::{Shell, TRIES};
use footplate_types::{PrincipalKind, ProjectName, Role, TokenId};
use std::time::Duration;

/// How long it waits before it tries again what the broker did not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Brings the ledger to know these principals and their tokens; asks again until the broker answers. `waits` is told why it is not done yet.
pub(crate) async fn bootstrap(shell: Shell<Access>, wanted: Vec<Bootstrap>, waits: impl Fn(String)) {
    for one in &wanted {
        while let Err(refusal) = ensure(&shell, one).await {
            waits(format!("makes {}: {refusal}", one.principal));
            tokio::time::sleep(AGAIN).await;
        }
    }
}

async fn ensure(shell: &Shell<Access>, one: &Bootstrap) -> Result<(), Refusal> {
    let mut tries = 0;
    loop {
        shell.caught_up().await?;
        let Some((subject, event)) = missing(&shell.live.read(), one) else { return Ok(()) };
        let (facts, last) = shell.aggregate(&subject).await?;
        // Another instance may have been first, and its event may not be in the view yet.
        let is_there = facts.last().is_some_and(|recorded| recorded.envelope.event == event);
        if !is_there {
            let envelope = shell.envelope(footplate_clock::event_id(), subject, event, one.principal.clone());
            shell.append(envelope, last).await?;
        }
        tries += 1;
        if tries >= TRIES {
            return Err(Refusal::internal("what was written is not seen"));
        }
    }
}

/// What is still to be said.
fn missing(state: &Access, one: &Bootstrap) -> Option<(Subject, Event)> {
    let Bootstrap { principal, token, is_admin, project } = one;
    // Once its token stands it has been done whole, and what an admin changed since is not undone; unless there is no admin any more.
    if state.token_of(token).is_some() && (!is_admin || state.has_admin()) {
        return None;
    }
    let is_node = matches!(principal.kind(), Some(PrincipalKind::Node(_)));
    if !is_node {
        let subject = Subject::principal(principal).ok()?;
        let Some(known) = state.principal(principal) else {
            return Some((subject, PrincipalCreated { principal: principal.clone(), name: None }.into()));
        };
        if known.disabled.is_some() {
            return Some((subject, PrincipalEnabled { reason: "whoever starts the platform vouches for it".to_owned() }.into()));
        }
    }
    let platform = ProjectName::platform();
    let held = state.project(&platform).and_then(|project| project.roles.get(principal));
    if *is_admin && held != Some(&Role::Admin) {
        return Some((Subject::project(&platform), ProjectRoleGiven { principal: principal.clone(), role: Role::Admin }.into()));
    }
    if let Some(name) = project.as_ref().filter(|name| state.project(name).is_none_or(|known| known.created.is_none())) {
        return Some((Subject::project(name), ProjectCreated { description: String::new(), admin: principal.clone() }.into()));
    }
    let id = TokenId::derived(&[b"bootstrap", token.to_string().as_bytes()]);
    if state.token_of(token).is_some() {
        return None;
    }
    let fact = TokenCreated {
        principal: principal.clone(),
        digest: *token,
        label: "made at the start of the platform".to_owned(),
        project: None,
        role: None,
        expires: None,
        parent: None,
        broker_user: None,
    };
    Some((Subject::token(id), fact.into()))
}
