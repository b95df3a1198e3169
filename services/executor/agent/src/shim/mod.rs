//! The shim: one small blocking process a member, which starts the member's workers, outlives the agent, and has the last word.
//!
//! It runs on one thread, knows no network, no ledger and no platform word, and holds nothing in memory that matters. It records that
//! the tree has ended only when the kernel says that no descendant is left (it is the child subreaper of everything it started).
//! Workers write their stdout and stderr straight into files opened for appending: no pipe can fill, no byte hangs on the shim's or
//! the agent's life. The price: bytes carry the time at which the agent read them, not that of the write.

mod enclosure;
mod files;
mod handle;
mod start;
mod supervise;
pub(crate) mod tree;

pub use files::{
    EndedBy, Exit, Lease, MARKER_VARIABLE, MemberDir, Notice, ProcessId, ShimSpec, Started, StartedWorker, Stop, WorkerExit, WorkerSpec,
};
pub use handle::{MemberState, ShimHandle};
pub use start::shim_main;

use std::{io, path::PathBuf};

/// Why a shim could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// A file of the member's folder could not be read or written.
    #[error("{doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused something that supervising needs.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The start was refused, and nothing was started.
    #[error("not started: {0}")]
    Refused(String),
}

impl ShimError {
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }

    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { doing, source: source.into() }
    }
}
