//! What can go wrong, by what the caller can do.

use std::{path::PathBuf, sync::Arc};

/// Why the store did not do what was asked. Nothing of the failed call is stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SeriesError {
    /// Another process, or another part of this one, has the store open: stop it, or use another data folder.
    #[error("the series store {path} is in use by another process; only one tracker may open it")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// No room on the disk: free some and send again; the store takes writes again by itself.
    #[error("no space left on the disk of the series store {path}; free some, writing then resumes by itself")]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The file or a chunk in it is damaged: restore it from a backup, or delete the run named by `what`.
    #[error("the series store {path} is damaged: {what}")]
    Corrupted {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// The file was written by a newer version: upgrade.
    #[error("the series store {path} has format {found}, this program reads up to {known}; upgrade it")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u64,
        /// The newest format that this program reads.
        known: u64,
    },
    /// The caller asked something that makes no sense (a page token of another series).
    #[error("{0}")]
    Invalid(String),
    /// The disk or the folder fails otherwise: permissions, a lost mount.
    #[error("the series store {path} cannot be read or written: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// The servers of the store do not answer, or not in time; what was not acknowledged is sent again.
    #[error("the series store {address} does not answer: {what}")]
    Away {
        /// Where it is.
        address: String,
        /// What was tried, and what came of it.
        what: String,
    },
    /// The servers answer and will not do it: credentials, permissions, a table that is missing.
    #[error("the series store {address} refuses: {what}")]
    Refused {
        /// Where it is.
        address: String,
        /// What it said.
        what: String,
    },
    /// The tables are not those that this program works with.
    #[error("the schema of the series store {address} has version {found}, this program works with version {needed}: {next}")]
    Schema {
        /// Where it is.
        address: String,
        /// The version of its tables; 0 when there are none.
        found: i32,
        /// The version that this program works with.
        needed: i32,
        /// What to do.
        next: String,
    },
    /// Another instance stores what METRICS brings; this one stores when that one has stopped to.
    #[error("the series store {address} is written by another tracker, {writer}, and does not have this yet")]
    Elsewhere {
        /// Where it is.
        address: String,
        /// Who writes.
        writer: String,
    },
    /// The store was closed, or its writer ended after a fault that it could not mend; open it again.
    #[error("the series store is closed")]
    Closed,
}

impl SeriesError {
    /// Whether the same call may succeed later without anything but the disk or the servers changing.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::Io { .. } | Self::Away { .. } | Self::Elsewhere { .. })
    }
}
