//! ArtifactService.

use super::{actor_of, page_size, project_of};
use crate::leader::check_artifacts;
use crate::view::View;
use crate::write::{Author, Writer};
use footplate_api::v1::{self, artifact_service_server::ArtifactService};
use footplate_api::{Refusal, reason};
use footplate_blobs::Blobs;
use footplate_events::facts::LoggedArtifact;
use footplate_tracker_core::RunCommand;
use footplate_types::{ArtifactPath, AttemptNumber, Digest, Rank};
use prost::Message as _;
use std::ops::Bound;
use tonic::{Request, Response, Status};

/// Artifacts of a page when nothing is asked.
const PAGE_DEFAULT: usize = 200;

/// The service.
#[derive(Clone)]
pub(crate) struct Artifacts {
    view: View,
    writer: Writer,
    blobs: Blobs,
}

impl Artifacts {
    /// The service over its parts.
    pub(crate) fn new(view: View, writer: Writer, blobs: Blobs) -> Self {
        Self { view, writer, blobs }
    }
}

/// What a client logs: by a client (attempt 0) unless it names an attempt.
fn artifact_in(artifact: &v1::Artifact) -> Result<LoggedArtifact, Refusal> {
    Ok(LoggedArtifact {
        path: ArtifactPath::parse(&artifact.path).map_err(|invalid| invalid.of("artifacts.path"))?,
        digest: Digest::parse(&artifact.digest).map_err(|invalid| invalid.of("artifacts.digest"))?,
        bytes: artifact.bytes,
        attempt: AttemptNumber(artifact.attempt),
        rank: Rank(artifact.rank),
    })
}

#[tonic::async_trait]
impl ArtifactService for Artifacts {
    async fn log_artifacts(&self, request: Request<v1::LogArtifactsRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        let artifacts: Vec<LoggedArtifact> = message.artifacts.iter().map(artifact_in).collect::<Result<_, _>>()?;
        let run = self.view.resolve(&project, &message.run_id).await?.id;
        check_artifacts(&self.blobs, &artifacts).await?;
        let author = Author::client(actor_of(&request), &message.request_id, "LogArtifacts", &message.encode_to_vec());
        let sequence = self.writer.run(&project, run, &author, RunCommand::LogArtifacts(artifacts)).await?;
        Ok(Response::new(v1::WriteResponse { sequence }))
    }

    async fn list_artifacts(&self, request: Request<v1::ListArtifactsRequest>) -> Result<Response<v1::ListArtifactsResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        self.view.at_least(message.at_least).await?;
        let run = self.view.resolve(&project, &message.run_id).await?;
        let after = match message.page_token.as_str() {
            "" => Bound::Unbounded,
            token => {
                let refused = |_| Refusal::new(&reason::INVALID_PAGE_TOKEN, format!("page_token: {token:?} is none of ours"));
                Bound::Excluded(ArtifactPath::parse(token).map_err(refused)?)
            }
        };
        let below = |path: &ArtifactPath| {
            let prefix = message.prefix.trim_end_matches('/');
            prefix.is_empty() || path.as_str() == prefix || path.as_str().strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        };
        let size = page_size(message.page_size, PAGE_DEFAULT);
        let mut found = run.artifacts.range((after, Bound::Unbounded)).filter(|(path, _)| below(path));
        let shown = |(path, artifact): (&ArtifactPath, &footplate_tracker_core::Artifact)| v1::Artifact {
            path: path.to_string(),
            digest: artifact.digest.to_string(),
            bytes: artifact.bytes,
            attempt: artifact.attempt.0,
            rank: artifact.rank.0,
            sequence: artifact.sequence,
        };
        let artifacts: Vec<v1::Artifact> = found.by_ref().take(size).map(shown).collect();
        let more = found.next().is_some();
        let next_page_token = artifacts.last().filter(|_| more).map_or_else(String::new, |last| last.path.clone());
        Ok(Response::new(v1::ListArtifactsResponse { artifacts, next_page_token }))
    }
}
