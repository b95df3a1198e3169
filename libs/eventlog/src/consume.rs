//! Durable consumers: a handler that gets every message at least once, across restarts, in order.
//!
//! A message counts as handled when its handler said so and the place is kept. A handler that fails on a message is asked again a bounded
//! number of times; then the message is parked with its reason and the rest flows. What is parked is driven again after an upgrade.

use crate::mark::Mark;
use crate::place::{Parked, Place, PlaceStore};
use crate::port::{Broker, Stored, StreamName, TailItem};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a handler is asked about a message that it fails on.
pub const TRIES: u32 = 5;
/// The first pause between two tries; doubled up to [`TRY_PAUSE_MAX`].
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const TRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Items that are handled between two saves of the place.
const CHUNK: usize = 64;

/// Why a message was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Something that the handler needs is away; it is asked again until it is there, and nothing is parked meanwhile.
    #[error("away: {0}")]
    Away(String),
    /// The message itself cannot be taken in; it is tried again [`TRIES`] times and then parked.
    #[error("failed: {0}")]
    Failed(String),
}

/// Takes messages in. It must bear to get one again: a kill between its work and the keeping of the place repeats it.
pub trait Handler: Send + 'static {
    /// Takes one message in.
    fn handle<'a>(&'a mut self, message: &'a Stored) -> BoxFuture<'a, Result<(), HandleError>>;
}

/// What is consumed, by whom.
#[derive(Clone, Debug)]
pub struct Consumption {
    /// The reader's name, for logs.
    pub name: String,
    /// The stream.
    pub stream: StreamName,
    /// Filters, as in [`Broker::tail`].
    pub filters: Vec<String>,
    /// This build: what another one has parked is driven again.
    pub build: String,
}

/// Consumes until shut down. `mark` moves with what is handled and kept.
pub async fn consume<H: Handler, P: PlaceStore>(
    broker: Arc<dyn Broker>,
    consumption: Consumption,
    mut handler: H,
    mut store: P,
    mark: Mark,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let place = store.load()?;
    let mut consumer = Consumer { broker, consumption, place, mark, shutdown };
    if consumer.redrive(&mut handler).await.is_none() {
        return store.save(&consumer.place);
    }
    if consumer.check_place().await.is_none() {
        return Ok(());
    }
    store.save(&consumer.place)?;
    consumer.mark.advance(consumer.place.position);
    let from = consumer.place.position + 1;
    let mut items = consumer.broker.tail(consumer.consumption.stream, consumer.consumption.filters.clone(), from).ready_chunks(CHUNK);
    let mut wanted = consumer.mark.wanted();
    loop {
        let chunk = tokio::select! {
            biased;
            () = consumer.shutdown.cancelled() => return Ok(()),
            _ = wanted.changed() => {
                consumer.broker.nudge(consumer.consumption.stream);
                continue;
            }
            chunk = items.next() => chunk,
        };
        let Some(chunk) = chunk else { return Ok(()) };
        let done = consumer.take(&mut handler, chunk).await;
        store.save(&consumer.place)?;
        consumer.mark.advance(consumer.place.position);
        if done.is_none() {
            return Ok(());
        }
    }
}

struct Consumer {
    broker: Arc<dyn Broker>,
    consumption: Consumption,
    place: Place,
    mark: Mark,
    shutdown: CancellationToken,
}

impl Consumer {
    /// Takes a chunk; `None` at shutdown, with the place at what was handled.
    async fn take(&mut self, handler: &mut impl Handler, chunk: Vec<TailItem>) -> Option<()> {
        for item in chunk {
            match item {
                TailItem::Position(position) => {
                    if position > self.place.position {
                        self.place.position = position;
                        self.place.recorded_nanos = None;
                    }
                }
                TailItem::Message(message) => {
                    if let Err(reason) = self.handle(handler, &message, TRIES).await? {
                        self.park(&message.subject, message.sequence, reason);
                    }
                    // A stream that was cut goes back on purpose.
                    self.place.position = message.sequence;
                    self.place.recorded_nanos = Some(message.recorded_at.as_nanos());
                }
            }
        }
        Some(())
    }

    fn park(&mut self, subject: &str, sequence: u64, reason: String) {
        tracing::error!(reader = self.consumption.name, sequence, subject, reason, "a message is parked");
        self.place.parked.retain(|parked| parked.sequence != sequence);
        let build = self.consumption.build.clone();
        self.place.parked.push(Parked { sequence, subject: subject.to_owned(), reason, build });
    }

    /// Asks the handler until it takes the message, or fails on it for good. `None` at shutdown.
    async fn handle(&self, handler: &mut impl Handler, message: &Stored, tries: u32) -> Option<Result<(), String>> {
        let mut failures = 0;
        let mut pause = TRY_PAUSE;
        loop {
            match handler.handle(message).await {
                Ok(()) => return Some(Ok(())),
                Err(HandleError::Failed(reason)) => {
                    failures += 1;
                    if failures >= tries {
                        return Some(Err(reason));
                    }
                }
                Err(HandleError::Away(reason)) => {
                    tracing::debug!(reader = self.consumption.name, sequence = message.sequence, reason, "waiting");
                }
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(TRY_PAUSE_MAX);
        }
    }

    /// Drives again what another build has parked. `None` at shutdown.
    async fn redrive(&mut self, handler: &mut impl Handler) -> Option<()> {
        for parked in std::mem::take(&mut self.place.parked) {
            if parked.build == self.consumption.build {
                self.place.parked.push(parked);
                continue;
            }
            let found = match self.read(&parked.subject, parked.sequence).await {
                Some(found) => found,
                None => {
                    self.place.parked.push(parked);
                    return None;
                }
            };
            match found {
                None => tracing::warn!(reader = self.consumption.name, sequence = parked.sequence, "a parked message is gone"),
                Some(message) => match self.handle(handler, &message, 1).await {
                    Some(Ok(())) => tracing::info!(reader = self.consumption.name, sequence = parked.sequence, "took in what was parked"),
                    Some(Err(reason)) => self.park(&parked.subject, parked.sequence, reason),
                    None => {
                        self.place.parked.push(parked);
                        return None;
                    }
                },
            }
        }
        Some(())
    }

    /// A stream that was wiped, or whose end was lost, gives its sequences again: then everything that is there is read again.
    async fn check_place(&mut self) -> Option<()> {
        let Place { position, recorded_nanos, .. } = self.place;
        if position == 0 {
            return Some(());
        }
        let bounds = loop {
            match self.broker.bounds(self.consumption.stream).await {
                Ok(bounds) => break bounds,
                Err(_) => self.pause().await?,
            }
        };
        let replaced = match recorded_nanos {
            Some(nanos) => self.read_any(position).await?.is_some_and(|found| found.recorded_at.as_nanos() != nanos),
            None => false,
        };
        if bounds.last < position || replaced {
            tracing::warn!(
                reader = self.consumption.name,
                position,
                last = bounds.last,
                "the stream is not the one that was read; reading it anew"
            );
            self.place.position = 0;
            self.place.recorded_nanos = None;
        }
        Some(())
    }

    /// The message at a sequence. The outer `None` is shutdown.
    async fn read(&self, subject: &str, sequence: u64) -> Option<Option<Stored>> {
        loop {
            match self.broker.read(self.consumption.stream, subject, sequence, 1).await {
                Ok(page) => return Some(page.messages.into_iter().next().filter(|stored| stored.sequence == sequence)),
                Err(_) => self.pause().await?,
            }
        }
    }

    async fn read_any(&self, sequence: u64) -> Option<Option<Stored>> {
        self.read("fp.>", sequence).await
    }

    async fn pause(&self) -> Option<()> {
        tokio::select! {
            () = self.shutdown.cancelled() => None,
            () = tokio::time::sleep(TRY_PAUSE_MAX / 10) => Some(()),
        }
    }
}
