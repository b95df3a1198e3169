//! `RegistryService`: each method reads its request, has it decided, and writes the answer.

use crate::read::stage_of;
use crate::shell::{Shell, model_of, version_of};
use crate::write::{Asked, Caller, Written};
use footplate_api::server::named_project;
use footplate_api::server::principal;
use footplate_api::v1::{self, registry_service_server::RegistryService};
use footplate_api::{Refusal, reason};
use footplate_events::facts::EvaluationData;
use footplate_registry_core::{Allowed, Command};
use footplate_types::{AliasName, ArtifactPath, Digest, Invalid, MetricName, PrincipalId, RunId, VersionNumber};
use std::collections::BTreeMap;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Models {
    shell: Shell,
}

type Answer<T> = Result<Response<T>, Status>;

/// Who asks about which model: what the message names, whoever the call's principal is.
macro_rules! asked {
    ($request:expr, $method:literal, $model:ident) => {{
        let actor = writer(&$request)?;
        let message = $request.into_inner();
        let (project, model) = (named_project(&message.project)?, model_of(&message.$model, stringify!($model))?);
        let caller = Caller { actor, request_id: message.request_id.clone() };
        (Asked::new(project, model, caller, $method, &message), message)
    }};
}

/// Who asks for a change: agents change no models.
fn writer<T>(request: &Request<T>) -> Result<PrincipalId, Refusal> {
    let actor = principal(request)?;
    if actor.is_node() {
        let told = format!("{actor} is a node: its agent changes no models");
        return Err(Refusal::new(&reason::PROJECT_DENIED, told).next("use the token of a person or a program"));
    }
    Ok(actor)
}

/// The number of the version that a write is about; where the view is behind it is not known here, and no 0 is answered instead.
fn number_of(written: &Written) -> Result<u32, Refusal> {
    let unseen = || {
        let told = format!("it is written (ledger sequence {}), and the number of the version is not known here yet", written.sequence);
        Refusal::new(&reason::VIEW_BEHIND, told).next("repeat the request with the same request id, or list the versions")
    };
    Ok(written.version.ok_or_else(unseen)?.0)
}

fn alias_of(text: &str) -> Result<AliasName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no alias is named").field("alias"));
    }
    Ok(AliasName::parse(text).map_err(|invalid| invalid.of("alias"))?)
}

fn figures_of(figures: &BTreeMap<String, f64>) -> Result<BTreeMap<MetricName, f64>, Invalid> {
    let read =
        |(name, figure): (&String, &f64)| Ok((MetricName::parse(name).map_err(|invalid| invalid.of(format!("figures.{name}")))?, *figure));
    figures.iter().map(read).collect()
}

fn data_of(name: &str, digest: &str) -> Result<Option<EvaluationData>, Refusal> {
    let digest = match digest {
        "" => None,
        text => Some(Digest::parse(text).map_err(|invalid| invalid.of("data_digest"))?),
    };
    match (name, digest) {
        ("", None) => Ok(None),
        ("", Some(_)) => Err(Refusal::new(&reason::MISSING_FIELD, "the digest belongs to data without a name").field("data")),
        (name, digest) => Ok(Some(EvaluationData { name: name.to_owned(), digest })),
    }
}

impl Models {
    pub(crate) fn new(shell: Shell) -> Self {
        Self { shell }
    }

    async fn write(&self, asked: &Asked, command: Command) -> Answer<v1::WriteResponse> {
        let written = self.shell.write(asked, command).await?;
        Ok(Response::new(v1::WriteResponse { sequence: written.sequence }))
    }
}

#[tonic::async_trait]
impl RegistryService for Models {
    async fn create_model(&self, request: Request<v1::CreateModelRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "CreateModel", name);
        self.write(&asked, Command::Create { note: message.note }).await
    }

    async fn get_model(&self, request: Request<v1::GetModelRequest>) -> Answer<v1::GetModelResponse> {
        Ok(Response::new(self.shell.get_model(request.into_inner()).await?))
    }

    async fn list_models(&self, request: Request<v1::ListModelsRequest>) -> Answer<v1::ListModelsResponse> {
        Ok(Response::new(self.shell.list_models(request.into_inner()).await?))
    }

    async fn register_version(&self, request: Request<v1::RegisterVersionRequest>) -> Answer<v1::RegisterVersionResponse> {
        let (asked, message) = asked!(request, "RegisterVersion", model);
        let run = RunId::parse(&message.run_id).map_err(|invalid| Refusal::from(invalid.of("run_id")))?;
        let path = ArtifactPath::parse(&message.path).map_err(|invalid| Refusal::from(invalid.of("path")))?;
        let allowed = Allowed { failed: message.allow_failed, incomplete: message.allow_incomplete };
        let (written, digest) = match self.shell.registered_before(&asked).await? {
            Some(before) => before,
            None => {
                let source = self.shell.source(&asked.project, run, path, allowed).await?;
                let digest = source.digest;
                (self.shell.write(&asked, Command::Register { source, note: message.note }).await?, digest)
            }
        };
        let (version, digest) = (number_of(&written)?, digest.to_string());
        Ok(Response::new(v1::RegisterVersionResponse { version, digest, sequence: written.sequence }))
    }

    async fn get_version(&self, request: Request<v1::GetVersionRequest>) -> Answer<v1::GetVersionResponse> {
        Ok(Response::new(self.shell.get_version(request.into_inner()).await?))
    }

    async fn list_versions(&self, request: Request<v1::ListVersionsRequest>) -> Answer<v1::ListVersionsResponse> {
        Ok(Response::new(self.shell.list_versions(request.into_inner()).await?))
    }

    async fn evaluate_version(&self, request: Request<v1::EvaluateVersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "EvaluateVersion", model);
        let figures = figures_of(&message.figures).map_err(Refusal::from)?;
        let data = data_of(&message.data, &message.data_digest)?;
        self.write(&asked, Command::Evaluate { version: version_of(message.version)?, figures, data, note: message.note }).await
    }

    async fn propose_version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "ProposeVersion", model);
        let version = version_of(message.version)?;
        self.write(&asked.seen(message.seen), Command::Propose { version, reason: message.reason }).await
    }

    async fn approve_version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "ApproveVersion", model);
        let version = version_of(message.version)?;
        self.write(&asked.seen(message.seen), Command::Approve { version, reason: message.reason }).await
    }

    async fn reject_version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "RejectVersion", model);
        let version = version_of(message.version)?;
        self.write(&asked.seen(message.seen), Command::Reject { version, reason: message.reason }).await
    }

    async fn promote_version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "PromoteVersion", model);
        let version = version_of(message.version)?;
        self.write(&asked.seen(message.seen), Command::Promote { version, reason: message.reason }).await
    }

    async fn move_version(&self, request: Request<v1::MoveVersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "MoveVersion", model);
        let (version, to) = (version_of(message.version)?, stage_of(&message.stage, "stage")?);
        self.write(&asked.seen(message.seen), Command::Move { version, to, reason: message.reason }).await
    }

    async fn roll_back_model(&self, request: Request<v1::RollBackModelRequest>) -> Answer<v1::RollBackModelResponse> {
        let (asked, message) = asked!(request, "RollBackModel", model);
        let to = (message.to > 0).then_some(VersionNumber(message.to));
        let written = self.shell.write(&asked.seen(message.seen), Command::RollBack { to, reason: message.reason }).await?;
        let version = number_of(&written)?;
        Ok(Response::new(v1::RollBackModelResponse { version, sequence: written.sequence }))
    }

    async fn archive_version(&self, request: Request<v1::ArchiveVersionRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "ArchiveVersion", model);
        let (version, free_aliases) = (version_of(message.version)?, message.free_aliases);
        self.write(&asked.seen(message.seen), Command::Archive { version, free_aliases, reason: message.reason }).await
    }

    async fn set_alias(&self, request: Request<v1::SetAliasRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "SetAlias", model);
        let (alias, version) = (alias_of(&message.alias)?, version_of(message.version)?);
        self.write(&asked.seen(message.seen), Command::SetAlias { alias, version, reason: message.reason }).await
    }

    async fn remove_alias(&self, request: Request<v1::RemoveAliasRequest>) -> Answer<v1::WriteResponse> {
        let (asked, message) = asked!(request, "RemoveAlias", model);
        let alias = alias_of(&message.alias)?;
        self.write(&asked.seen(message.seen), Command::RemoveAlias { alias, reason: message.reason }).await
    }

    async fn resolve_model(&self, request: Request<v1::ResolveModelRequest>) -> Answer<v1::ResolveModelResponse> {
        Ok(Response::new(self.shell.resolve(request.into_inner()).await?))
    }

    async fn get_model_lineage(&self, request: Request<v1::GetModelLineageRequest>) -> Answer<v1::GetLineageResponse> {
        Ok(Response::new(self.shell.lineage(request.into_inner()).await?))
    }
}
