//! Reads: one model, one version, pages of both, what a name means.

use crate::refused::refused;
use crate::shell::{Shell, model_of, version_of};
use crate::show;
use footplate_api::server::named_project;
use footplate_api::v1;
use footplate_api::{Refusal, reason};
use footplate_events::facts::Stage;
use footplate_registry_core::{Model, Reference, Refusal as No, Registry};
use footplate_types::{ModelName, ProjectName, VersionNumber};
use std::ops::Bound;

/// Entries of a page when the client names no number.
const PAGE_DEFAULT: u32 = 100;
/// The most entries of a page.
const PAGE_MAX: u32 = 1_000;

fn page_size(asked: u32) -> usize {
    (if asked == 0 { PAGE_DEFAULT } else { asked.min(PAGE_MAX) }) as usize
}

fn bad_token() -> Refusal {
    Refusal::new(&reason::INVALID_PAGE_TOKEN, "the page token is none of ours").field("page_token")
}

fn known<'a>(state: &'a Registry, project: &ProjectName, name: &ModelName) -> Result<&'a Model, Refusal> {
    state.model(project, name).ok_or_else(|| refused(No::NoSuchModel { model: name.clone() }))
}

impl Shell {
    pub(crate) async fn get_model(&self, request: v1::GetModelRequest) -> Result<v1::GetModelResponse, Refusal> {
        let (project, name) = (named_project(&request.project)?, model_of(&request.name, "name")?);
        self.at_least(request.at_least).await?;
        let (state, view_sequence) = self.live.read_at();
        Ok(v1::GetModelResponse { model: Some(show::model(known(&state, &project, &name)?)), view_sequence })
    }

    pub(crate) async fn list_models(&self, request: v1::ListModelsRequest) -> Result<v1::ListModelsResponse, Refusal> {
        let project = named_project(&request.project)?;
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(ModelName::parse(token).map_err(|_| bad_token())?),
        };
        self.at_least(request.at_least).await?;
        let (state, view_sequence) = self.live.read_at();
        let mut found = state.models(&project, after.as_ref());
        let models: Vec<v1::Model> = found.by_ref().take(page_size(request.page_size)).map(show::model).collect();
        let more = found.next().is_some();
        let next_page_token = models.last().filter(|_| more).map(|model| model.name.clone()).unwrap_or_default();
        Ok(v1::ListModelsResponse { models, next_page_token, view_sequence })
    }

    pub(crate) async fn get_version(&self, request: v1::GetVersionRequest) -> Result<v1::GetVersionResponse, Refusal> {
        let (project, name) = (named_project(&request.project)?, model_of(&request.model, "model")?);
        let number = version_of(request.version)?;
        self.at_least(request.at_least).await?;
        let (state, view_sequence) = self.live.read_at();
        let model = known(&state, &project, &name)?;
        let version = model.version(number).map_err(refused)?;
        Ok(v1::GetVersionResponse { version: Some(show::version(model, version)), view_sequence })
    }

    pub(crate) async fn list_versions(&self, request: v1::ListVersionsRequest) -> Result<v1::ListVersionsResponse, Refusal> {
        let (project, name) = (named_project(&request.project)?, model_of(&request.model, "model")?);
        let stages: Vec<Stage> = request.stages.iter().map(|text| stage_of(text, "stages")).collect::<Result<_, _>>()?;
        let before = match request.page_token.as_str() {
            "" => Bound::Unbounded,
            token => Bound::Excluded(VersionNumber::parse(token).map_err(|_| bad_token())?),
        };
        self.at_least(request.at_least).await?;
        let (state, view_sequence) = self.live.read_at();
        let model = known(&state, &project, &name)?;
        let wanted = |stage: Stage| stages.is_empty() || stages.contains(&stage);
        let found = model.versions.range((Bound::Unbounded, before)).rev().map(|(_, version)| version);
        let mut found = found.filter(|version| wanted(version.stage));
        let brief = |version| show::brief(model, version);
        let versions: Vec<v1::ModelVersion> = found.by_ref().take(page_size(request.page_size)).map(brief).collect();
        let more = found.next().is_some();
        let next_page_token = versions.last().filter(|_| more).map(|version| version.version.to_string()).unwrap_or_default();
        Ok(v1::ListVersionsResponse { versions, next_page_token, view_sequence })
    }

    pub(crate) async fn resolve(&self, request: v1::ResolveModelRequest) -> Result<v1::ResolveModelResponse, Refusal> {
        let project = named_project(&request.project)?;
        let uri = match Reference::parse(&request.uri) {
            Ok(Reference::Model(uri)) => uri,
            Ok(Reference::Run(_)) => {
                let told = format!("uri: {:?} names an artifact of a run, not a model", request.uri);
                return Err(Refusal::new(&reason::INVALID_FIELD, told).field("uri").value(&request.uri).allowed("models:/..."));
            }
            Err(invalid) => return Err(invalid.of("uri").into()),
        };
        self.at_least(request.at_least).await?;
        let (state, view_sequence) = self.live.read_at();
        let model = known(&state, &project, &uri.model)?;
        let version = model.pick(&uri.pick).map_err(refused)?;
        Ok(v1::ResolveModelResponse { version: Some(show::version(model, version)), view_sequence })
    }
}

/// The stage that a request names.
pub(crate) fn stage_of(text: &str, field: &str) -> Result<Stage, Refusal> {
    let allowed = || Stage::ALL.map(Stage::as_str).join(", ");
    Stage::parse(text).ok_or_else(|| footplate_types::Invalid::new(field, text, allowed()).into())
}
