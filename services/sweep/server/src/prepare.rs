//! The documents of wanted points, stored before the trial is suggested, so that its event names what is there.

use crate::config::{DocumentError, read_object, set_values};
use bytes::Bytes;
use footplate_blobs::Blobs;
use footplate_events::facts::{DocumentRef, JobSpec, SweepCreated, Values};
use footplate_sweep_core::{Draft, Sweeps, trial_job};
use footplate_types::TrialId;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A point whose documents are stored.
struct Prepared {
    values: Values,
    job: JobSpec,
}

pub(crate) struct Preparer {
    blobs: Blobs,
    prepared: BTreeMap<TrialId, Prepared>,
}

impl Preparer {
    pub(crate) fn new(blobs: Blobs) -> Self {
        Self { blobs, prepared: BTreeMap::new() }
    }

    /// The job of a point, once its documents are stored.
    pub(crate) fn job(&self, draft: &Draft) -> Option<&JobSpec> {
        self.prepared.get(&draft.id).filter(|prepared| prepared.values == draft.values).map(|prepared| &prepared.job)
    }

    /// Stores what is missing of the wanted points and forgets the others; whether there is something new.
    pub(crate) async fn prepare(&mut self, drafts: &[Draft], wanted_by: &BTreeMap<TrialId, Arc<SweepCreated>>) -> Result<bool, String> {
        self.prepared.retain(|id, _| wanted_by.contains_key(id));
        let mut is_new = false;
        let mut failed = None;
        for draft in drafts {
            if self.job(draft).is_some() {
                continue;
            }
            let Some(sweep) = wanted_by.get(&draft.id) else { continue };
            match self.store(sweep, draft).await {
                Ok(job) => {
                    self.prepared.insert(draft.id, Prepared { values: draft.values.clone(), job });
                    is_new = true;
                }
                Err(why) => failed = Some(format!("trial {} cannot be suggested now: {why}", draft.id)),
            }
        }
        match failed {
            // What was stored is suggested at the look that follows the failure.
            Some(why) => Err(why),
            None => Ok(is_new),
        }
    }

    async fn store(&self, sweep: &SweepCreated, draft: &Draft) -> Result<JobSpec, String> {
        let told = |error: DocumentError| match error {
            DocumentError::Unfit(why) | DocumentError::Away(why) => why,
        };
        let mut config = match &sweep.job.config {
            Some(base) => read_object(&self.blobs, base).await.map_err(told)?,
            None => Map::new(),
        };
        set_values(&mut config, &draft.values).map_err(|invalid| invalid.to_string())?;
        let document = match &sweep.job.document {
            Some(base) => {
                let mut document = read_object(&self.blobs, base).await.map_err(told)?;
                document.insert("config".to_owned(), Value::Object(config.clone()));
                Some(self.put(document).await?)
            }
            None => None,
        };
        let config = self.put(config).await?;
        Ok(trial_job(sweep, draft.id, config, document))
    }

    async fn put(&self, object: Map<String, Value>) -> Result<DocumentRef, String> {
        let bytes = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
        let stored = self.blobs.put_bytes(Bytes::from(bytes)).await.map_err(|error| error.to_string())?;
        Ok(DocumentRef { digest: stored.digest, bytes: stored.bytes })
    }
}

/// The sweeps that want points, by trial.
pub(crate) fn wanted_by(state: &Sweeps, drafts: &[Draft]) -> BTreeMap<TrialId, Arc<SweepCreated>> {
    drafts.iter().filter_map(|draft| Some((draft.id, state.sweep(&draft.id.sweep)?.fact.clone()))).collect()
}
