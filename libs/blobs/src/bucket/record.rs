//! What is written down of an upload under way, in the store itself: `blobs/uploads/<digest, or "staging">/<a name of its own>`.

use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the records lie.
pub(crate) const UPLOADS: &str = "blobs/uploads";

/// A record is a list of at most 10,000 parts.
pub(crate) const RECORD_MAX_BYTES: u64 = 4 << 20;

/// An upload under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Which process began it or took it over.
    pub(crate) owner: String,
    /// The object that it will become.
    pub(crate) key: String,
    /// The name that the store gave it.
    pub(crate) upload: String,
    /// What is stored of it, by part.
    pub(crate) parts: BTreeMap<usize, Part>,
}

/// A part that the store has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// What the store calls it.
    pub(crate) id: String,
    /// The SHA-256 of its content. A part is used again only where the new content of its place has the same.
    pub(crate) sha256: footplate_types::Digest,
}

impl Record {
    /// Reads a record; none for what no build of ours wrote.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Where the object will lie.
    pub(crate) fn object(&self) -> Key {
        Key::from(self.key.as_str())
    }
}
