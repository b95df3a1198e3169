//! Faults on demand: what a broker and a network can do to a publisher and a reader.

use crate::port::{Expect, Message, PublishError, StreamName};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Picks the publications that a [`Stall`] holds.
type Picks = dyn Fn(StreamName, &[(Message, Expect)]) -> bool + Send + Sync;

/// The switches for faults of a memory broker. All take effect at the next call.
pub struct Faults {
    set: Mutex<Set>,
    moved: watch::Sender<u64>,
    connections: watch::Sender<u64>,
}

#[derive(Default)]
struct Set {
    unavailable: bool,
    full: Vec<StreamName>,
    delay: Duration,
    lose_acks: Vec<StreamName>,
    lose_requests: Vec<StreamName>,
    redeliver: bool,
    deduplicate: bool,
    stalls: Vec<Held>,
}

struct Held {
    picks: Arc<Picks>,
    reached: watch::Sender<bool>,
    released: watch::Receiver<bool>,
}

/// A publisher held in the middle of an append, before anything is stored.
pub struct Stall {
    reached: watch::Receiver<bool>,
    released: watch::Sender<bool>,
}

impl Stall {
    /// Waits until a publisher is held.
    pub async fn reached(&mut self) {
        // The sender lives in the broker or in the held call; when both are gone nobody is held any more.
        let _ = self.reached.wait_for(|reached| *reached).await;
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.released.send_replace(true);
    }
}

impl Faults {
    pub(super) fn new(moved: watch::Sender<u64>, connections: watch::Sender<u64>) -> Self {
        Self { set: Mutex::default(), moved, connections }
    }

    /// The next publication (single or batch) on `stream` is stored, but its answer is lost.
    pub fn lose_next_ack(&self, stream: StreamName) {
        self.set().lose_acks.push(stream);
    }

    /// The next publication on `stream` is lost on its way: nothing is stored, and the publisher learns nothing.
    pub fn lose_next_request(&self, stream: StreamName) {
        self.set().lose_requests.push(stream);
    }

    /// Whether the broker is away. Its return counts as a new connection.
    pub fn unavailable(&self, away: bool) {
        let was = std::mem::replace(&mut self.set().unavailable, away);
        if was && !away {
            self.connections.send_modify(|count| *count += 1);
        }
        self.moved.send_modify(|version| *version += 1);
    }

    /// Whether the broker has no room in any stream.
    pub fn full(&self, full: bool) {
        self.set().full = if full { StreamName::ALL.to_vec() } else { Vec::new() };
    }

    /// Whether the broker has no room in one stream.
    pub fn full_stream(&self, stream: StreamName, full: bool) {
        let mut set = self.set();
        set.full.retain(|name| *name != stream);
        if full {
            set.full.push(stream);
        }
    }

    /// How long every publication takes.
    pub fn delay(&self, delay: Duration) {
        self.set().delay = delay;
    }

    /// Whether tails yield what they have yielded last once more (a redelivery).
    pub fn redeliver(&self, redeliver: bool) {
        self.set().redeliver = redeliver;
    }

    /// Whether message ids are remembered for two minutes, as JetStream does; off by default.
    pub fn deduplicate(&self, deduplicate: bool) {
        self.set().deduplicate = deduplicate;
    }

    /// Holds the next publication that `picks` picks, before it is stored.
    pub fn stall_next(&self, picks: impl Fn(StreamName, &[(Message, Expect)]) -> bool + Send + Sync + 'static) -> Stall {
        let (reached_sender, reached) = watch::channel(false);
        let (released, released_receiver) = watch::channel(false);
        self.set().stalls.push(Held { picks: Arc::new(picks), reached: reached_sender, released: released_receiver });
        Stall { reached, released }
    }

    pub(super) fn is_unavailable(&self) -> bool {
        self.set().unavailable
    }

    pub(super) fn redelivers(&self) -> bool {
        self.set().redeliver
    }

    pub(super) fn deduplicates(&self) -> bool {
        self.set().deduplicate
    }

    pub(super) async fn before_store(&self, stream: StreamName, messages: &[(Message, Expect)]) -> Result<(), PublishError> {
        let (delay, held) = {
            let mut set = self.set();
            let at = set.stalls.iter().position(|held| (held.picks)(stream, messages));
            (set.delay, at.map(|at| set.stalls.remove(at)))
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(mut held) = held {
            held.reached.send_replace(true);
            // A dropped stall releases as well.
            let _ = held.released.wait_for(|released| *released).await;
        }
        let mut set = self.set();
        if set.unavailable {
            return Err(PublishError::Unavailable("the memory broker plays dead".to_owned()));
        }
        if take(&mut set.lose_requests, stream) {
            return Err(PublishError::Unknown("the request was lost".to_owned()));
        }
        if set.full.contains(&stream) {
            return Err(PublishError::Full("the memory broker plays full".to_owned()));
        }
        Ok(())
    }

    pub(super) fn after_store(&self, stream: StreamName) -> Result<(), PublishError> {
        if take(&mut self.set().lose_acks, stream) { Err(PublishError::Unknown("the answer was lost".to_owned())) } else { Ok(()) }
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(waiting: &mut Vec<StreamName>, stream: StreamName) -> bool {
    waiting.iter().position(|name| *name == stream).map(|at| waiting.remove(at)).is_some()
}
