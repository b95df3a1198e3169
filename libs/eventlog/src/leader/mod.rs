//! Leaders: leases for liveness, terms for safety, one append in flight.
//!
//! A leader writes what its service owns and nothing else. It never sends an append again: after an unknown outcome it begins a new term, reads up to it, and decides anew. Nothing here
//! knows what is decided.

mod append;
mod lease;
mod reign;

use crate::{
    ledger::{Ledger, NotUnderstood},
    live::Live,
};
use footplate_es::{Decision, Evolve};
use footplate_types::{ServiceName, Timestamp};
use futures::future::BoxFuture;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a decider is told of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The leader's term: the sequence of its term event.
    pub term: u64,
    /// The ledger sequence up to which the state is folded.
    pub view: u64,
    /// The wall clock; for records only.
    pub now: Timestamp,
    /// Time since some fixed instant of this process; for deadlines.
    pub elapsed: Duration,
}

/// What a look at the state led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// What to append, as one batch under the term; at most [`crate::port::BATCH_MAX`].
    pub decisions: Vec<Decision>,
    /// When to look again if nothing changes.
    pub wake_in: Option<Duration>,
}

/// The leading part of a service: pure decisions over a view, and level-triggered effects outside the ledger.
pub trait Decider: Send + 'static {
    /// The view it decides upon.
    type State: Evolve + Send + Sync + 'static;

    /// A term began (again): forget what stood in memory only, the ledger may have moved under another leader.
    fn term_began(&mut self, look: &Look);

    /// Decides. Called at the start of a term, after every change of the view, when woken, and when the wait asked for is over. The state is
    /// folded up to `look.view`, which includes everything that this leader appended before.
    fn decide(&mut self, state: &Self::State, look: &Look) -> Verdict;

    /// Brings the world outside the ledger in line (assignments, settled positions). Called after each decide whose decisions are in the
    /// ledger and folded. An error is logged and tried again at the next look.
    fn act<'a>(&'a mut self, live: &'a Live<Self::State>, look: &'a Look) -> BoxFuture<'a, Result<(), String>>;
}

/// The lease of a leader.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The service that is led.
    pub service: ServiceName,
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// After how long without a change, on its own clock, a candidate takes over.
    pub lease: Duration,
}

/// Why leading ended for good (a lost lease or term does not end it: the instance becomes a candidate again).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadError {
    /// An event of the service's own aggregates cannot be understood by this build; it must not lead.
    #[error("own event {sequence} on {subject} cannot be understood: {reason}; upgrade this instance")]
    NotUnderstood {
        /// Where it stands.
        sequence: u64,
        /// On which subject.
        subject: String,
        /// Why.
        reason: String,
    },
}

impl From<NotUnderstood> for LeadError {
    fn from(event: NotUnderstood) -> Self {
        let NotUnderstood { sequence, subject, reason } = event;
        Self::NotUnderstood { sequence, subject, reason }
    }
}

/// Time since some fixed instant of this process, as in [`Look::elapsed`].
pub fn elapsed() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    Instant::now().saturating_duration_since(start)
}

/// Where an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another instance leads, or nobody does yet.
    Candidate,
    /// It leads under this term.
    Leads {
        /// The term's sequence.
        term: u64,
    },
}

/// Stands for election, leads while it may, and stands again, until shut down. `wake` makes the leader look at once. The view must be
/// followed by another task ([`crate::follow`]).
pub async fn lead<D: Decider>(
    ledger: Ledger,
    lease: LeaseConfig,
    live: Live<D::State>,
    decider: D,
    wake: Arc<Notify>,
    shutdown: CancellationToken,
) -> Result<(), LeadError> {
    let (standing, _) = watch::channel(Standing::Candidate);
    reign::run(ledger, lease, live, decider, wake, standing, shutdown).await
}

/// [`lead`], telling where the instance stands (for readiness and metrics).
pub async fn lead_watched<D: Decider>(
    ledger: Ledger,
    lease: LeaseConfig,
    live: Live<D::State>,
    decider: D,
    wake: Arc<Notify>,
    standing: watch::Sender<Standing>,
    shutdown: CancellationToken,
) -> Result<(), LeadError> {
    reign::run(ledger, lease, live, decider, wake, standing, shutdown).await
}
