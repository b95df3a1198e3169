//! Webhooks: where a project's events are posted to. That a webhook stands, from where on it sends and whether it is paused are facts; that this or
//! that event was delivered is none: how far each has come is kept beside the ledger.

use footplate_types::Digest;
use serde::{Deserialize, Serialize};

/// A webhook was made: events of its project are posted to an address from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WebhookCreated {
    /// Where to.
    pub url: String,
    /// What the types of the wanted events begin with; every event when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// The first ledger sequence that is wanted.
    pub from: u64,
    /// SHA-256 of the secret that deliveries are signed with. The secret itself is derived and stands nowhere.
    pub secret: Digest,
}

/// A webhook sends again from a sequence on, whatever it has sent before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WebhookReplayed {
    /// The first ledger sequence that is wanted.
    pub from: u64,
}

/// A webhook sends nothing any more until it is resumed: the receiver took an event too often or too long not, or said that it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WebhookPaused {
    /// The event that was not taken: a resumed webhook goes on with it.
    pub sequence: u64,
    /// Why.
    pub reason: String,
}

/// A webhook that was paused sends again, from the event on that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WebhookResumed {
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A webhook was taken away. Its name may be given again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WebhookDeleted {
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
