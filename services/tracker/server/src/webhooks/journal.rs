//! How far a webhook has come, and its newest deliveries: one object each in the object store.
//!
//! It is written after what it tells, so that after a crash events come once more and none is missing; and only by who sends. A leader that was
//! deposed may write once more what it had delivered before: that is further back or the same, which again costs repeats and no event.

use footplate_eventlog::Landmark;
use footplate_tracker_core::Webhook;
use footplate_types::{EventId, ProjectName, WebhookName};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Where they lie in the object store.
const FOLDER: &str = "webhooks";
/// Tries that are remembered of a webhook.
pub(crate) const ENTRIES_MAX: usize = 1_000;

/// One try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub sequence: u64,
    pub event_type: String,
    pub attempt: u32,
    pub at: footplate_types::Timestamp,
    pub status: u16,
    pub took_ms: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub delivery: EventId,
}

/// An event that was not taken yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failing {
    pub sequence: u64,
    /// The webhook's last event when it began to fail: after a resume it is counted anew.
    pub seen: u64,
    pub failures: u32,
    /// For how long it had failed when this was written.
    pub for_ms: u64,
    pub error: String,
    pub next_try: footplate_types::Timestamp,
}

/// How far one webhook has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Whose it is: the event that made the webhook.
    webhook: Option<EventId>,
    /// The event that it began with: it was made, or replayed.
    round: u64,
    /// Everything that is wanted up to here is delivered.
    pub delivered: u64,
    /// The last event that was looked at, by which the ledger is known again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landmark: Option<Landmark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
    /// Oldest first.
    pub entries: VecDeque<Entry>,
}

impl Journal {
    /// What was kept, as far as it is about the webhook as it stands now.
    pub(crate) fn fitting(self, webhook: &Webhook) -> Self {
        let is_same = self.round == webhook.round;
        let delivered = if is_same { self.delivered } else { webhook.from.saturating_sub(1) };
        let failing = self.failing.filter(|failing| is_same && failing.seen == webhook.sequence);
        // Of a former webhook of the same name nothing is told.
        let entries = if self.webhook == Some(webhook.id) { self.entries } else { VecDeque::new() };
        let landmark = self.landmark.filter(|_| is_same);
        Self { webhook: Some(webhook.id), round: webhook.round, delivered, landmark, failing, entries }
    }

    /// As if nothing had been sent since the webhook was made, or replayed.
    pub(crate) fn begin_anew(&mut self, webhook: &Webhook) {
        (self.delivered, self.landmark, self.failing) = (webhook.from.saturating_sub(1), None, None);
    }

    /// Writes a try down.
    pub(crate) fn note(&mut self, entry: Entry) {
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}

/// All journals.
#[derive(Clone, Debug)]
pub(crate) struct Journals(Arc<dyn ObjectStore>);

impl Journals {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self(store)
    }

    fn path(project: &ProjectName, name: &WebhookName) -> Path {
        Path::from_iter([FOLDER, project.as_str(), &format!("{name}.json")])
    }

    /// What is kept; nothing when there is none, or when it cannot be understood: then the webhook begins where it was told to.
    pub(crate) async fn load(&self, project: &ProjectName, name: &WebhookName) -> Result<Journal, String> {
        let bytes = match self.0.get(&Self::path(project, name)).await {
            Ok(found) => found.bytes().await.map_err(|error| error.to_string())?,
            Err(object_store::Error::NotFound { .. }) => return Ok(Journal::default()),
            Err(error) => return Err(error.to_string()),
        };
        Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%project, webhook = %name, %error, "what was kept of a webhook is not understood; it sends again from its beginning");
            Journal::default()
        }))
    }

    /// Forgets what was kept of a webhook that was taken away. What could not be removed says nothing about another of its name.
    pub(crate) async fn remove(&self, project: &ProjectName, name: &WebhookName) {
        match self.0.delete(&Self::path(project, name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => tracing::warn!(%project, webhook = %name, %error, "what was kept of a webhook that is gone stays"),
        }
    }

    /// Keeps it instead of what was kept before.
    pub(crate) async fn save(&self, project: &ProjectName, name: &WebhookName, journal: &Journal) -> Result<(), String> {
        let bytes = serde_json::to_vec(journal).map_err(|error| error.to_string())?;
        self.0.put(&Self::path(project, name), bytes.into()).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
