//! Verbs of `model`: versions of what runs made, who approved them, what serves.

pub mod alias;
pub mod approve;
pub mod archive;
pub mod evaluate;
pub mod lineage;
pub mod list;
pub mod promote;
pub mod propose;
pub mod register;
pub mod reject;
pub mod rollback;
pub mod show;

use crate::{
    call,
    context::{Context, SEEN},
    output::Exit,
};
use footplate_api::{Client, v1};
use footplate_types::{ModelName, VersionNumber};

/// Says what was done once whoever asks next sees it. A view that is away or late is told, since the write stands.
async fn written(ctx: &Context, client: &Client, model: &ModelName, done: Done, sequence: u64) -> anyhow::Result<Exit> {
    let asked = v1::GetModelRequest { project: client.project().to_owned(), name: model.to_string(), at_least: sequence };
    if let Err(error) = call!(client, within SEEN, registry.get_model(asked)) {
        ctx.note(format!("note: it is written, and will be shown a little later ({error})"));
    }
    let version = done.version.map(|version| version.to_string());
    let id = version.as_ref().map_or_else(|| model.to_string(), |version| format!("models:/{model}/{version}"));
    let data = serde_json::json!({
        "model": model.to_string(),
        "version": done.version.map(|version| version.0),
        "sequence": sequence.to_string(),
    });
    ctx.output.one(&id, &data, &format!("{id} {}\n", done.what))?;
    Ok(Exit::Done)
}

/// What was done with a version, or with the model.
struct Done {
    version: Option<VersionNumber>,
    what: String,
}

impl Done {
    fn with(version: VersionNumber, what: impl Into<String>) -> Self {
        Self { version: Some(version), what: what.into() }
    }
}

/// The request of the verbs that name one version and a reason.
fn about(client: &Client, model: &ModelName, version: VersionNumber, reason: String) -> v1::VersionRequest {
    v1::VersionRequest {
        project: client.project().to_owned(),
        model: model.to_string(),
        version: version.0,
        reason,
        request_id: footplate_clock::request_id().to_string(),
        seen: 0,
    }
}
