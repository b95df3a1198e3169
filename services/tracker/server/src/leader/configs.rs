//! Params of a submitted job's config: the document in the object store, said in the ledger.

use super::Work;
use crate::write::Author;
use footplate_blobs::BlobError;
use footplate_events::facts::{DocumentRef, ParamValue, RunParamsLogged};
use footplate_events::{Event, PAYLOAD_MAX, Subject};
use footplate_tracker_core::Run;
use footplate_types::{AttemptNumber, EventId, ParamKey, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest config whose params are recorded: an event must hold them. A larger one stands as its document alone.
const CONFIG_BYTES_MAX: u64 = (PAYLOAD_MAX - 8 * 1024) as u64;

/// Configs read in one look.
const LOOK_MAX: usize = 16;

/// Records the params of configs that are not in the ledger yet.
pub(super) async fn read(work: &Work, opened: &[Arc<Run>]) {
    for run in opened.iter().filter(|run| run.config_wanted.is_some()).take(LOOK_MAX) {
        let (Some((document, submission)), Some(chain)) = (run.config_wanted, &run.chain) else { continue };
        let Some(params) = params_of(work, run, document).await else { continue };
        let author = Author::answering(chain.cause(submission), &Subject::run(&run.project, run.id), "config");
        let fact = RunParamsLogged { attempt: AttemptNumber(0), rank: Rank(0), params };
        let decide = |state: &Run| -> Result<Vec<Event>, footplate_api::Refusal> {
            Ok(if still_wanted(state, submission) { vec![fact.clone().into()] } else { Vec::new() })
        };
        let written = work.writer.run_with(&run.project, run.id, &author, decide).await;
        let seen = match written {
            Ok(sequence) => work.writer.view().at_least(sequence).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = seen {
            tracing::debug!(run = %run.id, %refusal, "the params of the config are not recorded now");
        }
    }
}

fn still_wanted(run: &Run, submission: EventId) -> bool {
    run.config_wanted.is_some_and(|(_, wanted)| wanted == submission)
}

/// The params of a config; empty when it has none that can be recorded; none when it cannot be read now.
async fn params_of(work: &Work, run: &Run, document: DocumentRef) -> Option<BTreeMap<ParamKey, ParamValue>> {
    let unreadable = |why: String| {
        tracing::warn!(run = %run.id, digest = %document.digest, why, "the config gives no params; its document stands");
        Some(BTreeMap::new())
    };
    let bytes = match work.blobs.get_bytes(&document.digest, CONFIG_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(BlobError::TooLarge { limit }) => return unreadable(format!("it is larger than {limit} bytes")),
        Err(error) => {
            tracing::debug!(run = %run.id, %error, "the config cannot be read now");
            return None;
        }
    };
    match serde_json::from_slice::<BTreeMap<String, ParamValue>>(&bytes) {
        Ok(config) => Some(config.into_iter().filter_map(|(key, value)| Some((ParamKey::parse(&key).ok()?, value))).collect()),
        Err(error) => unreadable(error.to_string()),
    }
}
