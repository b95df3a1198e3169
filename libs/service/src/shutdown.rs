//! Stopping: asked for once it is graceful, with a deadline; asked for twice it is at once.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A cheap handle on the end of the process (or of a part of it).
#[derive(Clone, Debug)]
pub struct Shutdown {
    graceful: CancellationToken,
    immediate: CancellationToken,
    grace: Duration,
}

impl Shutdown {
    /// Not stopping yet; once asked to, what drains has `grace` to do so.
    pub fn new(grace: Duration) -> Self {
        Self { graceful: CancellationToken::new(), immediate: CancellationToken::new(), grace }
    }

    /// Asks for a graceful stop. Asking again changes nothing.
    pub fn request(&self) {
        self.graceful.cancel();
    }

    /// Asks to stop at once, without a drain.
    pub fn request_immediate(&self) {
        self.graceful.cancel();
        self.immediate.cancel();
    }

    /// Whether a stop was asked for.
    pub fn is_requested(&self) -> bool {
        self.graceful.is_cancelled()
    }

    /// Waits until a stop is asked for.
    pub async fn requested(&self) {
        self.graceful.cancelled().await;
    }

    /// Waits until no more time is left: a stop at once was asked for, or the grace of a graceful one has passed.
    pub async fn over(&self) {
        let grace_passed = async {
            self.graceful.cancelled().await;
            tokio::time::sleep(self.grace).await;
        };
        tokio::select! {
            () = grace_passed => {}
            () = self.immediate.cancelled() => {}
        }
    }

    /// How long a drain may take.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// The token of the graceful stop, for code that knows tokens only.
    pub fn token(&self) -> CancellationToken {
        self.graceful.clone()
    }

    /// A stop of a part: it stops with the whole, and can be stopped alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { graceful: self.graceful.child_token(), immediate: self.immediate.child_token(), grace: self.grace }
    }

    /// `work`'s result, or `None` when a stop was asked for first; `work` is then dropped, so it must be safe to drop.
    pub async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.graceful.run_until_cancelled(work).await
    }

    /// Follows SIGINT and SIGTERM: the first asks for a graceful stop, the second for one at once.
    ///
    /// # Errors
    /// When the system does not let the process watch signals.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let interrupts = signal(SignalKind::interrupt())?;
        let terminations = signal(SignalKind::terminate())?;
        tokio::spawn(follow(self.clone(), interrupts, terminations));
        Ok(())
    }
}

async fn follow(shutdown: Shutdown, mut interrupts: Signal, mut terminations: Signal) {
    let mut next = async || {
        tokio::select! {
            _ = interrupts.recv() => "SIGINT",
            _ = terminations.recv() => "SIGTERM",
        }
    };
    let first = next().await;
    tracing::info!(signal = first, grace_ms = shutdown.grace.as_millis() as u64, "stopping; a second signal stops at once");
    shutdown.request();
    let second = next().await;
    tracing::warn!(signal = second, "stopping at once");
    shutdown.request_immediate();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_graceful_stop_is_over_when_its_grace_has_passed() {
        let shutdown = Shutdown::new(Duration::from_secs(10));
        let start = tokio::time::Instant::now();
        shutdown.request();
        assert!(shutdown.is_requested());
        shutdown.over().await;
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_at_once_waits_for_nothing() {
        let shutdown = Shutdown::new(Duration::from_secs(10));
        let start = tokio::time::Instant::now();
        shutdown.request_immediate();
        shutdown.over().await;
        assert!(start.elapsed() < Duration::from_secs(1));
        assert_eq!(shutdown.or(std::future::pending::<()>()).await, None);
    }

    #[tokio::test]
    async fn a_part_stops_with_the_whole_but_not_the_other_way() {
        let whole = Shutdown::new(Duration::ZERO);
        let (one, other) = (whole.child(), whole.child());
        one.request();
        assert!(one.is_requested() && !whole.is_requested() && !other.is_requested());
        whole.request();
        assert!(other.is_requested());
    }
}
