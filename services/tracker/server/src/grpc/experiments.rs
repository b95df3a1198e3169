//! ExperimentService.

use super::convert::experiment_out;
use super::{actor_of, page_size, project_of};
use crate::view::View;
use crate::write::{Author, Writer};
use footplate_api::v1::{self, experiment_service_server::ExperimentService};
use footplate_api::{Refusal, reason};
use footplate_tracker_core::{Experiment, ExperimentCommand};
use footplate_types::{DisplayName, ExperimentId, ProjectName};
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Experiments of a page when nothing is asked.
const PAGE_DEFAULT: usize = 100;

/// The service.
#[derive(Clone)]
pub(crate) struct Experiments {
    view: View,
    writer: Writer,
}

impl Experiments {
    /// The service over its parts.
    pub(crate) fn new(view: View, writer: Writer) -> Self {
        Self { view, writer }
    }

    /// The experiment that an id or a name means.
    async fn resolve(&self, project: &ProjectName, text: &str) -> Result<Arc<Experiment>, Refusal> {
        if let Some(found) = self.look_up(project, text) {
            return Ok(found);
        }
        self.view.catch_up().await?;
        self.look_up(project, text).ok_or_else(|| {
            let message = format!("project {project} has no experiment {text:?}");
            Refusal::new(&reason::EXPERIMENT_NOT_FOUND, message).field("experiment").value(text)
        })
    }

    fn look_up(&self, project: &ProjectName, text: &str) -> Option<Arc<Experiment>> {
        let by_id = ExperimentId::parse(text).ok().and_then(|id| self.view.experiment(project, id));
        let by_name = || DisplayName::parse(text).ok().and_then(|name| self.view.experiment(project, ExperimentId::of(project, &name)));
        by_id.or_else(by_name)
    }

    fn runs_of(&self, project: &ProjectName) -> BTreeMap<ExperimentId, u64> {
        let mut counts = BTreeMap::new();
        for id in self.view.live().read().runs(project).filter_map(|run| run.experiment) {
            *counts.entry(id).or_insert(0) += 1;
        }
        counts
    }
}

#[tonic::async_trait]
impl ExperimentService for Experiments {
    async fn create_experiment(
        &self,
        request: Request<v1::CreateExperimentRequest>,
    ) -> Result<Response<v1::CreateExperimentResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        let name = DisplayName::parse(&message.name).map_err(|invalid| Refusal::from(invalid.of("name")))?;
        let author = Author::client(actor_of(&request), "", "CreateExperiment", &[]);
        let (id, sequence) = self.writer.experiment_named(&project, &name, &message.note, &author).await?;
        Ok(Response::new(v1::CreateExperimentResponse { experiment_id: id.to_string(), sequence }))
    }

    async fn get_experiment(&self, request: Request<v1::GetExperimentRequest>) -> Result<Response<v1::GetExperimentResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        self.view.at_least(message.at_least).await?;
        let experiment = self.resolve(&project, &message.experiment).await?;
        let runs = self.runs_of(&project).get(&experiment.id).copied().unwrap_or(0);
        Ok(Response::new(v1::GetExperimentResponse { experiment: Some(experiment_out(&experiment, runs)) }))
    }

    async fn list_experiments(
        &self,
        request: Request<v1::ListExperimentsRequest>,
    ) -> Result<Response<v1::ListExperimentsResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        self.view.at_least(message.at_least).await?;
        let counts = self.runs_of(&project);
        let mut all: Vec<Arc<Experiment>> = self.view.live().read().experiments(&project).cloned().collect();
        all.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        let from = match message.page_token.as_str() {
            "" => 0,
            token => {
                let refused = || Refusal::new(&reason::INVALID_PAGE_TOKEN, format!("page_token: {token:?} is none of ours"));
                let last = ExperimentId::parse(token).map_err(|_| refused())?;
                all.iter().position(|one| one.id == last).ok_or_else(refused)? + 1
            }
        };
        let page: Vec<_> = all.iter().skip(from).take(page_size(message.page_size, PAGE_DEFAULT)).collect();
        let more = all.len() > from + page.len();
        let next_page_token = page.last().filter(|_| more).map_or_else(String::new, |last| last.id.to_string());
        let experiments = page.iter().map(|one| experiment_out(one, counts.get(&one.id).copied().unwrap_or(0))).collect();
        Ok(Response::new(v1::ListExperimentsResponse { experiments, next_page_token }))
    }

    async fn note_experiment(&self, request: Request<v1::NoteExperimentRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        let id = self.resolve(&project, &message.experiment).await?.id;
        let author = Author::client(actor_of(&request), "", "NoteExperiment", &[]);
        let command = ExperimentCommand::Note(message.note.clone());
        let sequence = self.writer.experiment(&project, id, &author, command).await?;
        Ok(Response::new(v1::WriteResponse { sequence }))
    }
}
