//! The times of a run. Shorter than a deployment's defaults, in the same order of size.

/// A node's lease, in milliseconds of its own clock.
pub(crate) const LEASE_MS: u64 = 60_000;
/// How often a node beats.
pub(crate) const BEAT_MS: u64 = 10_000;
/// How long a supervisor needs at most to empty a tree once the lease has run out.
pub(crate) const KILL_MS: u64 = 10_000;
/// What is waited beyond lease and kill time before a node is fenced.
pub(crate) const MARGIN_MS: u64 = 15_000;
/// The lease of a service's leader.
pub(crate) const LEADER_LEASE_MS: u64 = 10_000;
/// How often an agent reads its assignment again.
pub(crate) const ASSIGNMENT_MS: u64 = 10_000;
/// How long nothing may be settled before an agent sends its spool again.
pub(crate) const RESEND_MS: u64 = 30_000;
/// How long a gang may take until it is ready.
pub(crate) const READY_WITHIN_MS: u64 = 120_000;
/// How long a job must have waited before nodes are kept free for it.
pub(crate) const PATIENCE_MS: u64 = 120_000;
/// The longest training, in true time.
pub(crate) const TRAINING_MAX_MS: u64 = 300_000;
