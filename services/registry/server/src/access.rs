//! `ProjectService`, `PrincipalService`, `TokenService`, `SubscriptionService`: who may do what, changed and shown.
//!
//! The registry owns these facts as it owns models: any instance takes writes, each expecting that nothing came to the aggregate since it looked.

mod bootstrap;
mod broker;
mod show;
mod subscriptions;
mod tokens;

pub(crate) use bootstrap::bootstrap;
pub use broker::{BrokerAnswer, BrokerConsumer, BrokerCredentials, BrokerDoor, BrokerDoorError};

use footplate_access::{Access, Command, Facts, Refusal as Refused};
use footplate_api::server::bearer;
use footplate_api::v1::principal_service_server::PrincipalService;
use footplate_api::v1::project_service_server::ProjectService;
use footplate_api::v1::{self};
use footplate_api::{Refusal, reason};
use footplate_es::Decide as _;
use footplate_events::facts::cut_text;
use footplate_events::{Event, Subject};
use footplate_shell::{Shell, TRIES, repeated};
use footplate_types::{Bearer, DisplayName, EventId, PrincipalId, ProjectName, Role};
use std::sync::Arc;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// The desk at which all three are asked.
#[derive(Clone)]
pub(crate) struct AccessDesk {
    shell: Shell<Access>,
    /// Who issues credentials of the broker, where anyone does.
    door: Option<Arc<dyn BrokerDoor>>,
}

/// A change that someone asks for.
struct Asked<'a> {
    bearer: &'a Bearer,
    subject: Subject,
    /// The client's idempotency key; empty for none.
    request_id: &'a str,
}

impl Asked<'_> {
    /// The event's id; fixed by the key, if there is one.
    fn id(&self) -> EventId {
        match self.request_id {
            "" => footplate_clock::event_id(),
            key => EventId::derived(&[b"access", self.subject.to_string().as_bytes(), key.as_bytes()]),
        }
    }
}

impl AccessDesk {
    pub(crate) const fn new(shell: Shell<Access>, door: Option<Arc<dyn BrokerDoor>>) -> Self {
        Self { shell, door }
    }

    /// Decides on what stands and appends; the sequence at which it stands.
    async fn change(&self, asked: Asked<'_>, command: Command) -> Result<u64, Refusal> {
        let (id, wanted) = (asked.id(), command.event(asked.bearer));
        for _ in 0..TRIES {
            // The aggregate first, and the view at least as far: what is decided holds for the sequence that the append expects.
            let (facts, last) = self.shell.aggregate(&asked.subject).await?;
            if let Some(sequence) = repeated(&facts, id, &wanted, asked.request_id)? {
                return Ok(sequence);
            }
            let Some(event) = self.decide(&asked, command.clone()).await? else { return Ok(last) };
            let envelope = self.shell.envelope(id, asked.subject.clone(), event, asked.bearer.principal.clone());
            if let Some(sequence) = self.shell.append(envelope, last).await? {
                self.seen(sequence).await;
                return Ok(sequence);
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("{} was changed by others at the same time", asked.subject)))
    }

    /// What a command leads to, on everything that stands in the ledger now.
    async fn decide(&self, asked: &Asked<'_>, command: Command) -> Result<Option<Event>, Refusal> {
        self.shell.caught_up().await?;
        let facts = Facts { bearer: asked.bearer.clone(), now: self.shell.clock.now() };
        let decided = self.shell.live.read().decide(command, &facts);
        Ok(decided.map_err(refused)?.into_iter().next())
    }

    /// Waits until the gate of this process goes by it, so that whoever was let in is let in by their next call here. It is written in any case.
    async fn seen(&self, sequence: u64) {
        if let Err(refusal) = self.shell.at_least(sequence).await {
            tracing::warn!(%refusal, "a change of who may what is written and not seen yet");
        }
    }
}

/// A "no" of the core, in the words of the API.
fn refused(refusal: Refused) -> Refusal {
    let told = refusal.to_string();
    match refusal {
        Refused::Invalid(invalid) => invalid.into(),
        Refused::Denied { .. } => Refusal::new(&reason::PLATFORM_DENIED, told),
        Refused::OneSelf { .. } => Refusal::new(&reason::OWN_ACCESS, told),
        Refused::NoSuchPrincipal(who) => Refusal::new(&reason::PRINCIPAL_NOT_FOUND, told).field("principal").value(who.as_str()),
        Refused::PrincipalExists(who) => Refusal::new(&reason::ID_TAKEN, told).field("principal").value(who.as_str()),
        Refused::PrincipalDisabled(who) => Refusal::new(&reason::PRINCIPAL_DISABLED, told).field("principal").value(who.as_str()),
        Refused::NoSuchProject(project) => Refusal::new(&reason::PROJECT_NOT_FOUND, told)
            .field("project")
            .value(project.as_str())
            .next(format!("make it: `footplate project create {project}`")),
        Refused::ProjectExists(project) => Refusal::new(&reason::ID_TAKEN, told).field("project").value(project.as_str()),
        Refused::NoRole { principal, .. } => Refusal::new(&reason::PRINCIPAL_NOT_FOUND, told).field("principal").value(principal.as_str()),
        Refused::NoSuchToken(id) => Refusal::new(&reason::TOKEN_NOT_FOUND, told).field("id").value(id.to_string()),
        Refused::NoSuchSubscription(name) => Refusal::new(&reason::SUBSCRIPTION_NOT_FOUND, told).field("name").value(name.as_str()),
        Refused::SubscriptionExists(name) => Refusal::new(&reason::ID_TAKEN, told).field("name").value(name.as_str()),
        Refused::Beyond { .. } => Refusal::new(&reason::PLATFORM_DENIED, told).next("use a token without that limit"),
        Refused::TooMany { .. } => Refusal::new(&reason::LIMIT_REACHED, told),
    }
}

fn principal_of(text: &str) -> Result<PrincipalId, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no principal is named").field("principal"));
    }
    Ok(PrincipalId::parse(text)?)
}

/// A project that may be the platform's own.
fn any_project(text: &str) -> Result<ProjectName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no project is named").field("project"));
    }
    Ok(ProjectName::parse(text)?)
}

fn written(sequence: u64) -> Answer<v1::WriteResponse> {
    Ok(Response::new(v1::WriteResponse { sequence }))
}

#[tonic::async_trait]
impl ProjectService for AccessDesk {
    async fn create_project(&self, request: Request<v1::CreateProjectRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let project = any_project(&message.project)?;
        let asked = Asked { bearer, subject: Subject::project(&project), request_id: &message.request_id };
        let command = Command::CreateProject { project, description: cut_text(&message.description) };
        written(self.change(asked, command).await?)
    }

    async fn list_projects(&self, request: Request<v1::ListProjectsRequest>) -> Answer<v1::ListProjectsResponse> {
        self.shell.at_least(request.get_ref().at_least).await?;
        let bearer = bearer(&request)?;
        let state = self.shell.live.read();
        let own = |name: &ProjectName| state.role(bearer, name);
        let projects = state.projects().filter_map(|(name, project)| Some(show::project(name, project, Some(own(name)?))));
        Ok(Response::new(v1::ListProjectsResponse { projects: projects.collect() }))
    }

    async fn get_project(&self, request: Request<v1::GetProjectRequest>) -> Answer<v1::GetProjectResponse> {
        let message = request.get_ref();
        let name = any_project(&message.project)?;
        self.shell.at_least(message.at_least).await?;
        let bearer = bearer(&request)?;
        let state = self.shell.live.read();
        let unmade = footplate_access::Project::default();
        let known = state.project(&name);
        if known.is_none() && !name.is_platform() {
            return Err(refused(Refused::NoSuchProject(name)).into());
        }
        let mut shown = show::project(&name, known.unwrap_or(&unmade), state.role(bearer, &name));
        shown.roles = show::roles(&state, &name);
        Ok(Response::new(v1::GetProjectResponse { project: Some(shown) }))
    }

    async fn give_role(&self, request: Request<v1::GiveRoleRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let (project, principal) = (any_project(&message.project)?, principal_of(&message.principal)?);
        let role = Role::parse(&message.role).map_err(Refusal::from)?;
        let asked = Asked { bearer, subject: Subject::project(&project), request_id: &message.request_id };
        written(self.change(asked, Command::GiveRole { project, principal, role }).await?)
    }

    async fn take_role(&self, request: Request<v1::TakeRoleRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let (project, principal) = (any_project(&message.project)?, principal_of(&message.principal)?);
        let asked = Asked { bearer, subject: Subject::project(&project), request_id: &message.request_id };
        written(self.change(asked, Command::TakeRole { project, principal }).await?)
    }
}

#[tonic::async_trait]
impl PrincipalService for AccessDesk {
    async fn create_principal(&self, request: Request<v1::CreatePrincipalRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let principal = principal_of(&message.principal)?;
        let name = Some(message.name.as_str()).filter(|name| !name.is_empty()).map(DisplayName::parse).transpose();
        let asked = Asked { bearer, subject: Subject::principal(&principal).map_err(Refusal::from)?, request_id: &message.request_id };
        written(self.change(asked, Command::CreatePrincipal { principal, name: name.map_err(Refusal::from)? }).await?)
    }

    async fn list_principals(&self, request: Request<v1::ListPrincipalsRequest>) -> Answer<v1::ListPrincipalsResponse> {
        self.shell.at_least(request.get_ref().at_least).await?;
        let bearer = bearer(&request)?;
        let state = self.shell.live.read();
        // Whoever may give roles somewhere has to find whom to give them to; everyone else sees themselves.
        let sees_all = state.projects().any(|(name, _)| state.role(bearer, name) == Some(Role::Admin));
        let shown = state.principals().filter(|(id, _)| sees_all || **id == bearer.principal);
        let principals = shown.map(|(id, principal)| show::principal(&state, id, principal)).collect();
        Ok(Response::new(v1::ListPrincipalsResponse { principals }))
    }

    async fn disable_principal(&self, request: Request<v1::DisablePrincipalRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let principal = principal_of(&message.principal)?;
        let asked = Asked { bearer, subject: Subject::principal(&principal).map_err(Refusal::from)?, request_id: &message.request_id };
        written(self.change(asked, Command::DisablePrincipal { principal, reason: cut_text(&message.reason) }).await?)
    }

    async fn enable_principal(&self, request: Request<v1::EnablePrincipalRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let principal = principal_of(&message.principal)?;
        let asked = Asked { bearer, subject: Subject::principal(&principal).map_err(Refusal::from)?, request_id: &message.request_id };
        written(self.change(asked, Command::EnablePrincipal { principal, reason: cut_text(&message.reason) }).await?)
    }

    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Answer<v1::WhoAmIResponse> {
        let bearer = bearer(&request)?;
        Ok(Response::new(show::who(&self.shell.live.read(), bearer)))
    }
}
