//! Verbs of `artifact`: files of runs and of model versions, named by `runs:/RUN/PATH` or `models:/MODEL@ALIAS`.

pub mod download;
pub mod list;

use crate::{
    call,
    context::find_run_id,
    output::{Failure, tell},
};
use footplate_api::{Client, v1};
use footplate_registry_server::Reference;
use footplate_types::ArtifactPath;

/// Files asked for at a time.
const PAGE: u32 = 500;

/// What a reference names: its files, and below which path they lie.
struct Named {
    /// The path that the reference names: a file, or a folder.
    path: ArtifactPath,
    files: Vec<v1::ModelFile>,
}

/// The files that a reference names now.
///
/// # Errors
/// It names nothing, or no answer.
async fn resolve(client: &Client, reference: &Reference) -> anyhow::Result<Named> {
    match reference {
        Reference::Model(uri) => {
            let asked = v1::ResolveModelRequest { project: client.project().to_owned(), uri: uri.to_string(), at_least: 0 };
            let version = call!(client, registry.resolve_model(asked))?.version.unwrap_or_default();
            if !version.complete {
                tell(format!("note: version {} of {} is of a run whose record is incomplete", version.version, version.model));
            }
            Ok(Named { path: ArtifactPath::parse(&version.path)?, files: version.files })
        }
        Reference::Run(uri) => {
            let run_id = find_run_id(client, &uri.run).await?;
            let files = list_files(client, &run_id, uri.path.as_str()).await?;
            if files.is_empty() {
                return Err(Failure::not_found(format!("run {run_id} has no artifact {}", uri.path)).into());
            }
            Ok(Named { path: uri.path.clone(), files })
        }
    }
}

/// Every artifact of a run at or below a path; all of them below an empty one.
async fn list_files(client: &Client, run_id: &str, prefix: &str) -> anyhow::Result<Vec<v1::ModelFile>> {
    let mut asked = v1::ListArtifactsRequest {
        project: client.project().to_owned(),
        run_id: run_id.to_owned(),
        prefix: prefix.to_owned(),
        page_size: PAGE,
        ..v1::ListArtifactsRequest::default()
    };
    let mut files = Vec::new();
    loop {
        let page = call!(client, artifacts.list_artifacts(asked.clone()))?;
        files.extend(page.artifacts.into_iter().map(|artifact| v1::ModelFile {
            path: artifact.path,
            digest: artifact.digest,
            bytes: artifact.bytes,
        }));
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            return Ok(files);
        }
    }
}
