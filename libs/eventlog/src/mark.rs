//! How far a reader has come, and who waits for it to come further.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a reader is left to come by itself before the broker is asked for a position: what concerns it arrives sooner than that.
const ASK_AFTER: Duration = Duration::from_millis(5);

/// The reader did not reach a position in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the view stands at {position}, asked for at least {wanted}")]
pub struct Behind {
    /// What was asked.
    pub wanted: u64,
    /// Where it stands.
    pub position: u64,
}

/// A position that only moves forward. Cheap to clone; one task advances it.
#[derive(Clone, Debug)]
pub struct Mark {
    position: watch::Receiver<u64>,
    mover: Arc<watch::Sender<u64>>,
    wanted: Arc<watch::Sender<u64>>,
}

impl Mark {
    /// A mark at `position`.
    pub fn new(position: u64) -> Self {
        let (mover, receiver) = watch::channel(position);
        let (wanted, _) = watch::channel(0);
        Self { position: receiver, mover: Arc::new(mover), wanted: Arc::new(wanted) }
    }

    /// Where it stands.
    pub fn position(&self) -> u64 {
        *self.position.borrow()
    }

    /// Changes of the position.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.position.clone()
    }

    /// Moves it forward; a lower position changes nothing.
    pub fn advance(&self, to: u64) {
        self.mover.send_if_modified(|at| {
            let forward = to > *at;
            *at = to.max(*at);
            forward
        });
    }

    /// The highest position that somebody has waited for: whoever reads asks the broker for a position when this changes.
    pub fn wanted(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    /// Waits until it stands at `wanted` or later.
    pub async fn at_least(&self, wanted: u64, within: Duration) -> Result<(), Behind> {
        let deadline = Instant::now() + within;
        if self.reached(wanted, deadline.min(Instant::now() + ASK_AFTER)).await {
            return Ok(());
        }
        self.wanted.send_modify(|asked| *asked = wanted.max(*asked));
        if self.reached(wanted, deadline).await { Ok(()) } else { Err(Behind { wanted, position: self.position() }) }
    }

    async fn reached(&self, wanted: u64, until: Instant) -> bool {
        let mut position = self.position.clone();
        matches!(timeout_at(until, position.wait_for(|at| *at >= wanted)).await, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mark_moves_forward_only_and_tells_who_waits() {
        let mark = Mark::new(3);
        let wanted = mark.wanted();
        let late = mark.at_least(5, Duration::from_millis(10)).await;
        assert_eq!(late, Err(Behind { wanted: 5, position: 3 }));
        assert_eq!(*wanted.borrow(), 5);
        mark.advance(7);
        mark.advance(6);
        assert_eq!(mark.position(), 7);
        assert_eq!(mark.at_least(7, Duration::ZERO).await, Ok(()));
    }
}
