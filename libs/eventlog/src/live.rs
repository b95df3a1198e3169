//! Live views: a state that follows the ledger, and "at least N" reads.

use crate::ledger::Ledger;
use footplate_es::Evolve;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A view that follows the ledger. Cheap to clone; one task ([`follow`]) writes it.
#[derive(Debug)]
pub struct Live<S> {
    state: Arc<RwLock<S>>,
    position: watch::Receiver<u64>,
    mover: Arc<watch::Sender<u64>>,
}

impl<S> Clone for Live<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), position: self.position.clone(), mover: self.mover.clone() }
    }
}

/// The view did not reach a position in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the view stands at {position}, asked for at least {wanted}")]
pub struct Behind {
    /// What was asked.
    pub wanted: u64,
    /// Where it stands.
    pub position: u64,
}

impl<S: Evolve> Live<S> {
    /// A view that stands at `position` with `state` (0 and the empty state, or a snapshot's).
    pub fn new(state: S, position: u64) -> Self {
        let (mover, receiver) = watch::channel(position);
        Self { state: Arc::new(RwLock::new(state)), position: receiver, mover: Arc::new(mover) }
    }

    /// The state now. Hold it briefly and never across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, S> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Up to which sequence the view is folded.
    pub fn position(&self) -> u64 {
        *self.position.borrow()
    }

    /// Changes of the position.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.position.clone()
    }

    /// Waits until the view stands at `wanted` or later.
    pub async fn at_least(&self, wanted: u64, within: Duration) -> Result<(), Behind> {
        let mut position = self.position.clone();
        let reached = tokio::time::timeout(within, position.wait_for(|at| *at >= wanted)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Behind { wanted, position: self.position() }),
        }
    }

    /// Folds one item in (tests, and [`follow`]).
    pub fn fold(&self, _item: &crate::LedgerItem) {
        unimplemented!()
    }
}

/// Follows the ledger into a view until shut down: `filters` as in [`crate::Broker::tail`], from the view's position on.
pub async fn follow<S: Evolve + Send + Sync + 'static>(
    _ledger: Ledger,
    _filters: Vec<String>,
    _live: Live<S>,
    _shutdown: CancellationToken,
) {
    unimplemented!()
}
