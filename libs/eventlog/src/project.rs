//! Projections with a store of their own: the position stands in the transaction of the rows, so that a kill neither loses nor doubles.

use crate::ledger::{Ledger, LedgerItem};
use crate::mark::Mark;
use crate::place::Parked;
use crate::port::StreamName;
use futures::StreamExt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Items of one transaction at most.
const CHUNK: usize = 256;
/// How often a failing item is tried before it is parked.
const TRIES: u32 = 3;
/// The first pause after a failure of the store; doubled up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(50);
/// The longest pause.
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// Why items were not taken in. Nothing of the transaction is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The store is away, busy or full: tried again until it works.
    #[error("the store cannot take it now: {0}")]
    Away(String),
    /// One of the items cannot be taken in: it is found, tried again, and then parked.
    #[error("an item cannot be taken in: {0}")]
    Failed(String),
}

/// A view with a store of its own (SQLite). Its calls may block; they run on the blocking pool.
pub trait Projection: Send + 'static {
    /// Up to which sequence its rows go, as its store says (0 = nothing).
    fn position(&self) -> u64;

    /// Takes items in, in order, and moves the position to `position`, all in one transaction. There may be no item at all.
    fn apply(&mut self, items: &[LedgerItem], position: u64) -> Result<(), ApplyError>;

    /// Puts an item aside and moves the position to its sequence where that is ahead, in one transaction. An item that was parked before
    /// gets the new reason and build.
    fn park(&mut self, parked: &Parked) -> Result<(), ApplyError>;

    /// What is parked.
    fn parked(&self) -> Result<Vec<Parked>, ApplyError>;

    /// Takes in an item that was parked, and forgets that, in one transaction; the position stays.
    fn unpark(&mut self, item: &LedgerItem) -> Result<(), ApplyError>;
}

/// Follows the ledger into a projection until shut down. `mark` moves with its position; `build` names this build, and what another one
/// has parked is driven again at the start. Unknown types and messages that cannot be read are parked as they come.
pub async fn project<P: Projection>(
    ledger: Ledger,
    filters: Vec<String>,
    projection: P,
    build: String,
    mark: Mark,
    shutdown: CancellationToken,
) {
    let from = projection.position() + 1;
    let mut runner = Runner { projection: Some(projection), build, shutdown };
    mark.advance(from - 1);
    if runner.redrive(&ledger).await.is_none() {
        return;
    }
    let mut wanted = mark.wanted();
    let mut items = ledger.tail(filters, from).ready_chunks(CHUNK);
    let mut position = from - 1;
    loop {
        let chunk = tokio::select! {
            biased;
            () = runner.shutdown.cancelled() => return,
            _ = wanted.changed() => {
                ledger.broker().nudge(StreamName::Ledger);
                continue;
            }
            chunk = items.next() => chunk,
        };
        let Some(chunk) = chunk else { return };
        let mut last = position;
        // A repeat stands at or before what came already.
        let fresh: Vec<LedgerItem> = chunk
            .into_iter()
            .filter(|item| {
                let forward = item.sequence() > last;
                last = last.max(item.sequence());
                forward
            })
            .collect();
        if fresh.is_empty() {
            continue;
        }
        if runner.take(fresh, last).await.is_none() {
            return;
        }
        position = last;
        mark.advance(position);
    }
}

struct Runner<P> {
    /// Absent only while a call runs on the blocking pool.
    projection: Option<P>,
    build: String,
    shutdown: CancellationToken,
}

impl<P: Projection> Runner<P> {
    /// Takes items in: together, and singly where that fails. `None` at shutdown.
    async fn take(&mut self, items: Vec<LedgerItem>, last: u64) -> Option<()> {
        let facts: Vec<LedgerItem> = items.iter().filter(|item| matches!(item, LedgerItem::Fact(_))).cloned().collect();
        let readable = items.iter().all(|item| item.not_understood().is_none());
        if readable {
            match self.until_there(move |projection| projection.apply(&facts, last)).await? {
                Ok(()) => return Some(()),
                Err(reason) => tracing::warn!(reason, "a transaction failed; its items are tried one by one"),
            }
        }
        for item in items {
            self.take_one(item).await?;
        }
        self.until_there(move |projection| projection.apply(&[], last)).await?.ok();
        Some(())
    }

    async fn take_one(&mut self, item: LedgerItem) -> Option<()> {
        let (sequence, subject) = match &item {
            LedgerItem::Position(_) => return Some(()),
            LedgerItem::Fact(recorded) => (recorded.sequence, recorded.envelope.subject.to_string()),
            LedgerItem::Unknown { sequence, subject, .. } | LedgerItem::Poison { sequence, subject, .. } => (*sequence, subject.clone()),
        };
        let mut reason = item.not_understood().map(|trouble| trouble.reason);
        for _ in 0..if reason.is_none() { TRIES } else { 0 } {
            let one = item.clone();
            match self.until_there(move |projection| projection.apply(std::slice::from_ref(&one), sequence)).await? {
                Ok(()) => return Some(()),
                Err(why) => reason = Some(why),
            }
        }
        let reason = reason.unwrap_or_default();
        tracing::error!(sequence, subject, reason, "an event is parked");
        let parked = Parked { sequence, subject, reason, build: self.build.clone() };
        self.until_there(move |projection| projection.park(&parked)).await?.ok();
        Some(())
    }

    /// Drives again what another build has parked.
    async fn redrive(&mut self, ledger: &Ledger) -> Option<()> {
        let Ok(all) = self.until_there(|projection| projection.parked()).await? else { return Some(()) };
        let build = self.build.clone();
        for parked in all.into_iter().filter(|parked| parked.build != build) {
            let item = loop {
                match ledger.read(&parked.subject, parked.sequence, 1).await {
                    Ok((items, _)) => break items.into_iter().next().filter(|item| item.sequence() == parked.sequence),
                    Err(error) => {
                        tracing::debug!(%error, "a parked event cannot be read now");
                        self.pause(AGAIN_MAX).await?;
                    }
                }
            };
            let Some(item) = item else { continue };
            let outcome = match item.not_understood() {
                Some(trouble) => Err(trouble.reason),
                None => self.until_there(move |projection| projection.unpark(&item)).await?,
            };
            match outcome {
                Ok(()) => tracing::info!(sequence = parked.sequence, "took in what was parked"),
                Err(reason) => {
                    let parked = Parked { reason, build: build.clone(), ..parked };
                    self.until_there(move |projection| projection.park(&parked)).await?.ok();
                }
            }
        }
        Some(())
    }

    /// Calls the projection on the blocking pool until its store takes it. The outer `None` is shutdown, the inner error the item's fault.
    async fn until_there<T: Send + 'static>(
        &mut self,
        call: impl Fn(&mut P) -> Result<T, ApplyError> + Send + Clone + 'static,
    ) -> Option<Result<T, String>> {
        let mut pause = AGAIN;
        loop {
            let mut projection = self.projection.take()?;
            let call = call.clone();
            let called = tokio::task::spawn_blocking(move || {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(&mut projection)));
                (projection, outcome)
            });
            let (projection, outcome) = called.await.ok()?;
            self.projection = Some(projection);
            match outcome {
                Ok(Ok(value)) => return Some(Ok(value)),
                Ok(Err(ApplyError::Failed(reason))) => return Some(Err(reason)),
                Err(cause) => return Some(Err(format!("it panicked: {}", crate::live::panic_text(cause.as_ref())))),
                Ok(Err(ApplyError::Away(reason))) => {
                    tracing::warn!(reason, "a projection's store cannot take it now");
                    self.pause(pause).await?;
                    pause = (pause * 2).min(AGAIN_MAX);
                }
            }
        }
    }

    async fn pause(&self, pause: Duration) -> Option<()> {
        tokio::select! {
            () = self.shutdown.cancelled() => None,
            () = tokio::time::sleep(pause) => Some(()),
        }
    }
}
