//! The broker in memory, for tests and simulation: what JetStream promises and nothing more, with faults on demand.
//!
//! It keeps nothing beyond its own life and must never serve a real platform. De-duplication by message id is off unless asked for, so
//! that whoever leans on it (the protocol must not) fails here first.

mod faults;
mod log;
mod segments;
mod tail;

pub use faults::{Faults, Stall};
pub use segments::MemorySegments;

use crate::port::{
    BATCH_MAX, Bounds, Broker, Expect, Message, Page, PublishError, ReadError, Stored, StreamName, TailItem, subject_matches,
};
use footplate_types::Timestamp;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use log::Log;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, watch};

/// How many republished messages a listener may lag behind before it misses some.
const LISTEN_QUEUE: usize = 4_096;

/// Reads a wall clock.
type Now = dyn Fn() -> Timestamp + Send + Sync;

/// A broker in memory. Clones are the same broker.
#[derive(Clone)]
pub struct MemoryBroker {
    shared: Arc<Shared>,
}

struct Shared {
    streams: Mutex<BTreeMap<StreamName, Log>>,
    faults: Faults,
    /// Changes with every store, purge and fault, so that tails look again.
    moved: watch::Sender<u64>,
    connections: watch::Sender<u64>,
    republished: broadcast::Sender<Stored>,
    now: Box<Now>,
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBroker").finish_non_exhaustive()
    }
}

impl MemoryBroker {
    /// An empty broker on the system's wall clock.
    pub fn new() -> Self {
        Self::with_clock(footplate_clock::now)
    }

    /// An empty broker that stamps messages by `now` (simulations).
    pub fn with_clock(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let (moved, _) = watch::channel(0);
        let (connections, _) = watch::channel(1);
        let (republished, _) = broadcast::channel(LISTEN_QUEUE);
        let created = now();
        let streams = StreamName::ALL.into_iter().map(|name| (name, Log::new(name, created))).collect();
        let faults = Faults::new(moved.clone(), connections.clone());
        Self { shared: Arc::new(Shared { streams: Mutex::new(streams), faults, moved, connections, republished, now: Box::new(now) }) }
    }

    /// The switches for faults.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Forgets a stream as if its disk had been wiped: sequences start from 1 again.
    pub fn wipe(&self, stream: StreamName) {
        let created = (self.shared.now)();
        self.shared.streams().insert(stream, Log::new(stream, created));
        self.shared.touch();
    }

    /// Forgets the last `count` messages of a stream, as a killed broker may of a stream that is not synced; sequences are given again.
    pub fn lose_last(&self, stream: StreamName, count: u64) {
        self.shared.with(stream, |log| log.lose_last(count));
        self.shared.touch();
    }

    /// Removes one message, as a hand may.
    pub fn remove(&self, stream: StreamName, sequence: u64) {
        self.shared.with(stream, |log| log.remove(sequence));
        self.shared.touch();
    }

    async fn store(&self, stream: StreamName, messages: Vec<(Message, Expect)>) -> Result<u64, PublishError> {
        let faults = &self.shared.faults;
        faults.before_store(stream, &messages).await?;
        let outcome = {
            let now = (self.shared.now)();
            let deduplicate = faults.deduplicates();
            let mut streams = self.shared.streams();
            let log = streams.entry(stream).or_insert_with(|| Log::new(stream, now));
            log.append(&messages, now, deduplicate)?
        };
        if stream == StreamName::Assignments {
            for stored in &outcome.stored {
                let subject = stored.subject.replacen("fp.assign.", "fp.assigned.", 1);
                // Nobody listening is no fault: the stream keeps the message.
                let _ = self.shared.republished.send(Stored { subject, ..stored.clone() });
            }
        }
        self.shared.touch();
        faults.after_store(stream)?;
        Ok(outcome.last)
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<StreamName, Log>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, stream: StreamName, look: impl FnOnce(&mut Log) -> T) -> T {
        look(self.streams().entry(stream).or_insert_with(|| Log::new(stream, (self.now)())))
    }

    fn touch(&self) {
        self.moved.send_modify(|version| *version += 1);
    }

    fn readable(&self) -> Result<(), ReadError> {
        if self.faults.is_unavailable() { Err(ReadError::Unavailable("the memory broker plays dead".to_owned())) } else { Ok(()) }
    }
}

impl Broker for MemoryBroker {
    fn publish(&self, stream: StreamName, message: Message, expect: Expect) -> BoxFuture<'_, Result<u64, PublishError>> {
        self.store(stream, vec![(message, expect)]).boxed()
    }

    fn publish_batch(&self, stream: StreamName, messages: Vec<(Message, Expect)>) -> BoxFuture<'_, Result<u64, PublishError>> {
        async move {
            if messages.is_empty() || messages.len() > BATCH_MAX {
                return Err(PublishError::Refused(format!("a batch has 1 to {BATCH_MAX} messages, not {}", messages.len())));
            }
            self.store(stream, messages).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, stream: StreamName, filter: &'a str, from: u64, most: usize) -> BoxFuture<'a, Result<Page, ReadError>> {
        async move {
            self.shared.readable()?;
            Ok(self.shared.with(stream, |log| log.page(filter, from, most)))
        }
        .boxed()
    }

    fn last<'a>(&'a self, stream: StreamName, subject: &'a str) -> BoxFuture<'a, Result<Option<Stored>, ReadError>> {
        async move {
            self.shared.readable()?;
            Ok(self.shared.with(stream, |log| log.last_on(subject)))
        }
        .boxed()
    }

    fn bounds(&self, stream: StreamName) -> BoxFuture<'_, Result<Bounds, ReadError>> {
        async move {
            self.shared.readable()?;
            Ok(self.shared.with(stream, |log| log.bounds()))
        }
        .boxed()
    }

    fn tail(&self, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem> {
        tail::tail(self.shared.clone(), stream, filters, from)
    }

    fn purge(&self, stream: StreamName, filter: Option<String>, below: u64) -> BoxFuture<'_, Result<(), ReadError>> {
        async move {
            self.shared.readable()?;
            self.shared.with(stream, |log| log.purge(filter.as_deref(), below));
            self.shared.touch();
            Ok(())
        }
        .boxed()
    }

    fn listen(&self, subject: &str) -> BoxFuture<'_, Result<BoxStream<'static, Stored>, ReadError>> {
        let subject = subject.to_owned();
        async move {
            self.shared.readable()?;
            let receiver = self.shared.republished.subscribe();
            let stream = futures::stream::unfold((receiver, subject), |(mut receiver, subject)| async move {
                loop {
                    match receiver.recv().await {
                        Ok(stored) if subject_matches(&subject, &stored.subject) => return Some((stored, (receiver, subject))),
                        Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                        Err(broadcast::error::RecvError::Closed) => return None,
                    }
                }
            });
            Ok(stream.boxed())
        }
        .boxed()
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.shared.connections.subscribe()
    }
}
