//! The port between the node's judgement and its members: processes, or members on paper.

use crate::core::{End, Held, MemberKey};
use footplate_events::{
    facts::{MemberExited, Rendezvous, StopCause, WorkerStarted},
    messages::Task,
};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// What can be done to members. Each call is for one member and may run beside calls for others.
pub(crate) trait Hands: Send + Sync + 'static {
    /// Makes a member known again after a restart (desk, log files), before anything else is asked of it.
    fn adopt<'a>(&'a self, key: MemberKey, held: &'a Held) -> BoxFuture<'a, Result<Adopted, String>>;

    /// Called once every member is adopted: what the spools know of them is read, and their workers may log.
    fn recovered(&self) -> BoxFuture<'_, ()>;

    /// Unpacks, sets up, reserves the rendezvous when this is member 0.
    fn prepare<'a>(
        &'a self,
        key: MemberKey,
        task: &'a Task,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Rendezvous>, String>>;

    /// Starts the workers, once in the member's life.
    fn launch<'a>(
        &'a self,
        key: MemberKey,
        task: &'a Task,
        rendezvous: &'a Rendezvous,
        peers: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<WorkerStarted>, String>>;

    /// Waits until the tree is empty.
    fn ended(&self, key: MemberKey) -> BoxFuture<'_, ()>;

    /// Asks the tree to end.
    fn stop<'a>(&'a self, key: MemberKey, stop: &'a crate::shim::Stop, cause: StopCause) -> BoxFuture<'a, ()>;

    /// Makes sure that nothing of the member runs or ever will, and gathers its last words.
    fn gather<'a>(&'a self, key: MemberKey, task: &'a Task, end: End) -> BoxFuture<'a, MemberExited>;

    /// Forgets the member's files.
    fn forget(&self, key: MemberKey) -> BoxFuture<'_, ()>;

    /// What must be on disk before entries of the spools may be forgotten.
    fn write_progress(&self) -> BoxFuture<'_, std::io::Result<()>>;
}

/// How an adopted member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    /// Its workers run under their shim.
    Running(Vec<WorkerStarted>),
    /// They don't.
    NotRunning,
}
