//! The lease on `fp.lease.<service>`: for liveness only. Whoever holds it may still be deposed at any instant; the term is the guard.

use super::LeaseConfig;
use crate::port::{Broker, Expect, Message, PublishError, Stored, StreamName};
use footplate_events::messages::{LeaseBeat, lease_subject};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The longest pause between two looks of a candidate.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(500);
/// The shortest one.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);
/// The header that names the holder: instances may be called alike by mistake.
const HOLDER: &str = "fp-holder";
/// How long the release of a lease may take at shutdown.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// A lease that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Our last beat's place.
    sequence: u64,
    /// Our last beat's number.
    number: u64,
    /// When that beat was sent.
    sent: Instant,
}

/// One instance's dealings with its service's lease.
#[derive(Clone)]
pub(super) struct Lease {
    broker: Arc<dyn Broker>,
    config: LeaseConfig,
    subject: String,
    holder: String,
}

impl Lease {
    pub(super) fn new(broker: Arc<dyn Broker>, config: LeaseConfig) -> Self {
        let subject = lease_subject(&config.service);
        let holder = footplate_clock::event_id().to_string();
        Self { broker, config, subject, holder }
    }

    /// Waits for the lease and takes it: free, released, our own, or without a change for its length on our clock. `None` at shutdown.
    pub(super) async fn stand(&self, own: Option<Held>, shutdown: &CancellationToken) -> Option<Held> {
        let mut seen: Option<(u64, Instant)> = None;
        loop {
            match self.broker.last(StreamName::Beats, &self.subject).await {
                Ok(last) => {
                    let sequence = last.as_ref().map_or(0, |stored| stored.sequence);
                    let since = match seen {
                        Some((known, since)) if known == sequence => since,
                        _ => Instant::now(),
                    };
                    seen = Some((sequence, since));
                    let is_own = own.is_some_and(|own| own.sequence == sequence);
                    if (is_own || self.may_be_taken(last.as_ref(), since))
                        && let Some(held) = self.beat(sequence, 1, false).await
                    {
                        tracing::info!(service = %self.config.service, instance = self.config.instance, "took the lease");
                        return Some(held);
                    }
                }
                Err(error) => tracing::debug!(%error, "the lease cannot be read"),
            }
            let pause = (self.config.lease / 10).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = sleep(pause) => {}
            }
        }
    }

    fn may_be_taken(&self, last: Option<&Stored>, since: Instant) -> bool {
        let Some(stored) = last else { return true };
        let (released, stated) = match serde_json::from_slice::<LeaseBeat>(&stored.payload) {
            Ok(beat) => (beat.released, Duration::from_millis(beat.lease_ms)),
            Err(_) => (false, Duration::ZERO),
        };
        released || since.elapsed() >= self.config.lease.max(stated)
    }

    /// Renews the lease at a third of its length until stopped, or until it is lost (`lost` is cancelled then).
    pub(super) async fn keep(self, mut held: Held, lost: CancellationToken, stop: CancellationToken) -> Held {
        let mut pause = self.config.lease / 3;
        loop {
            tokio::select! {
                () = stop.cancelled() => return held,
                () = sleep(pause) => {}
            }
            match self.beat(held.sequence, held.number + 1, false).await {
                Some(renewed) => {
                    held = renewed;
                    pause = self.config.lease / 3;
                }
                None if self.is_taken(&held).await || held.sent.elapsed() >= self.config.lease => {
                    tracing::warn!(service = %self.config.service, instance = self.config.instance, "lost the lease");
                    lost.cancel();
                    return held;
                }
                None => pause = (self.config.lease / 10).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX),
            }
        }
    }

    /// Steps down of our own will, so that another takes over at once.
    pub(super) async fn release(&self, held: Held) {
        if timeout(RELEASE_WITHIN, self.beat(held.sequence, held.number + 1, true)).await.ok().flatten().is_none() {
            tracing::debug!(service = %self.config.service, "the lease was not released; it runs out by itself");
        }
    }

    /// Writes a beat at `expected`; a lost answer is looked up. `None` when it is not (known to be) there.
    async fn beat(&self, expected: u64, number: u64, released: bool) -> Option<Held> {
        let lease_ms = u64::try_from(self.config.lease.as_millis()).unwrap_or(u64::MAX);
        let beat = LeaseBeat { service: self.config.service.clone(), instance: self.config.instance.clone(), number, lease_ms, released };
        let payload = serde_json::to_vec(&beat).ok()?.into();
        let headers = vec![(HOLDER, self.holder.clone())].into();
        let message = Message { subject: self.subject.clone(), headers, payload };
        let sent = Instant::now();
        match self.broker.publish(StreamName::Beats, message, Expect::Subject(expected)).await {
            Ok(sequence) => Some(Held { sequence, number, sent }),
            // After a lost answer the next beat conflicts with our own one: both are found out by reading.
            Err(PublishError::Unknown(_) | PublishError::Stuck(_) | PublishError::Conflict) => {
                let last = self.broker.last(StreamName::Beats, &self.subject).await.ok().flatten()?;
                let found: LeaseBeat = serde_json::from_slice(&last.payload).ok()?;
                (self.is_ours(&last) && found == beat && last.sequence > expected).then_some(Held { sequence: last.sequence, number, sent })
            }
            Err(error) => {
                tracing::debug!(%error, service = %self.config.service, "the lease could not be written");
                None
            }
        }
    }

    fn is_ours(&self, stored: &Stored) -> bool {
        stored.headers.iter().any(|(name, value)| name == HOLDER && *value == self.holder)
    }

    /// Whether somebody else's beat stands on the subject.
    async fn is_taken(&self, held: &Held) -> bool {
        match self.broker.last(StreamName::Beats, &self.subject).await {
            Ok(Some(stored)) if stored.sequence == held.sequence => false,
            Ok(Some(stored)) => !self.is_ours(&stored),
            // A lease that is gone (a wiped stream) is nobody's; it is taken again as a candidate.
            Ok(None) => true,
            Err(_) => false,
        }
    }
}
