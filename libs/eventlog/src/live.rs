//! Live views: a state that follows the ledger, and "at least N" reads.

use crate::ledger::{Ledger, LedgerItem, NotUnderstood};
use crate::mark::Mark;
use crate::port::StreamName;
use footplate_es::Evolve;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::mark::Behind;

/// Items that are folded under one lock.
const CHUNK: usize = 256;
/// How often a view that is not caught up tells what it waits for.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Aggregates of which an event that was not understood is remembered; more are only counted.
const NOTED_MAX: usize = 65_536;

/// A view that follows the ledger. Cheap to clone; one task ([`follow`]) writes it.
#[derive(Debug)]
pub struct Live<S> {
    state: Arc<RwLock<S>>,
    mark: Mark,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Debug, Default)]
struct Notes {
    counts: Counts,
    /// The first of each aggregate, by subject.
    not_understood: BTreeMap<String, NotUnderstood>,
}

/// What a view has met so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Facts folded.
    pub facts: u64,
    /// Events of unknown types, skipped.
    pub unknown: u64,
    /// Messages that could not be read, skipped.
    pub poison: u64,
    /// Facts whose folding panicked; the view went on without them.
    pub panicked: u64,
}

impl<S> Clone for Live<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), mark: self.mark.clone(), notes: self.notes.clone() }
    }
}

impl<S: Evolve> Live<S> {
    /// A view that stands at `position` with `state` (0 and the empty state, or a snapshot's).
    pub fn new(state: S, position: u64) -> Self {
        Self { state: Arc::new(RwLock::new(state)), mark: Mark::new(position), notes: Arc::default() }
    }

    /// The state now. Hold it briefly and never across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, S> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state now and the position that it is folded to. Hold it briefly and never across an await.
    pub fn read_at(&self) -> (RwLockReadGuard<'_, S>, u64) {
        let state = self.read();
        // The position moves only under the write lock, so that it belongs to this state.
        let position = self.position();
        (state, position)
    }

    /// Up to which sequence the view is folded.
    pub fn position(&self) -> u64 {
        self.mark.position()
    }

    /// Changes of the position.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.mark.changes()
    }

    /// What the view has met so far.
    pub fn counts(&self) -> Counts {
        self.notes().counts
    }

    /// The events that this build could not understand, the first of each aggregate, in ledger order.
    pub fn not_understood(&self) -> Vec<NotUnderstood> {
        let mut noted: Vec<NotUnderstood> = self.notes().not_understood.values().cloned().collect();
        noted.sort_by_key(|trouble| trouble.sequence);
        noted
    }

    /// One of [`Live::not_understood`] whose subject is wanted.
    pub fn not_understood_where(&self, wanted: impl Fn(&str) -> bool) -> Option<NotUnderstood> {
        self.notes().not_understood.iter().find(|(subject, _)| wanted(subject)).map(|(_, trouble)| trouble.clone())
    }

    /// Waits until the view stands at `wanted` or later.
    pub async fn at_least(&self, wanted: u64, within: Duration) -> Result<(), Behind> {
        self.mark.at_least(wanted, within).await
    }

    /// Waits until the view holds what stood in the ledger at the call; `waits` is told what it waits for, again and again. False when
    /// shut down before.
    pub async fn caught_up(&self, ledger: &Ledger, waits: impl Fn(String), shutdown: &CancellationToken) -> bool {
        let reading = async {
            let end = loop {
                match ledger.end().await {
                    Ok(end) => break end,
                    Err(error) => waits(format!("the ledger cannot be read: {error}")),
                }
                tokio::time::sleep(ASK_AGAIN).await;
            };
            while self.at_least(end, ASK_AGAIN).await.is_err() {
                waits(format!("reads the ledger: {} of {end}", self.position()));
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => false,
            () = reading => true,
        }
    }

    /// Folds one item in (tests, and [`follow`]).
    pub fn fold(&self, item: &LedgerItem) {
        self.fold_all(std::slice::from_ref(item));
    }

    /// Folds items in, in order, under one lock. An item at or before the position is a repeat and is dropped; a fact whose folding
    /// panics is noted and skipped. Returns what could not be understood.
    pub fn fold_all(&self, items: &[LedgerItem]) -> Vec<NotUnderstood> {
        let mut noted = Vec::new();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut position = self.position();
        for item in items {
            if item.sequence() <= position {
                continue;
            }
            position = item.sequence();
            if let Some(trouble) = self.fold_one(&mut state, item) {
                noted.push(trouble);
            }
        }
        self.mark.advance(position);
        noted
    }

    fn fold_one(&self, state: &mut S, item: &LedgerItem) -> Option<NotUnderstood> {
        let panicked = match item {
            LedgerItem::Fact(recorded) => catch_unwind(AssertUnwindSafe(|| state.evolve(recorded))).err().map(|cause| NotUnderstood {
                sequence: recorded.sequence,
                subject: recorded.envelope.subject.to_string(),
                reason: format!("folding it panicked: {}", panic_text(cause.as_ref())),
            }),
            LedgerItem::Unknown { .. } | LedgerItem::Poison { .. } | LedgerItem::Position(_) => None,
        };
        let mut notes = self.notes();
        match item {
            LedgerItem::Position(_) => return None,
            LedgerItem::Fact(_) if panicked.is_some() => notes.counts.panicked += 1,
            LedgerItem::Fact(_) => notes.counts.facts += 1,
            LedgerItem::Unknown { .. } => notes.counts.unknown += 1,
            LedgerItem::Poison { .. } => notes.counts.poison += 1,
        }
        let trouble = panicked.or_else(|| item.not_understood())?;
        tracing::warn!(sequence = trouble.sequence, subject = trouble.subject, reason = trouble.reason, "an event is not understood");
        if notes.not_understood.len() < NOTED_MAX {
            notes.not_understood.entry(trouble.subject.clone()).or_insert_with(|| trouble.clone());
        }
        Some(trouble)
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn panic_text(cause: &(dyn std::any::Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

/// Follows the ledger into a view until shut down: `filters` as in [`crate::Broker::tail`], from the view's position on. An aggregate
/// with an event that is not understood is closed for writes through this ledger (rule 11).
pub async fn follow<S: Evolve + Send + Sync + 'static>(ledger: Ledger, filters: Vec<String>, live: Live<S>, shutdown: CancellationToken) {
    let mut wanted = live.mark.wanted();
    let mut items = ledger.tail(filters, live.position() + 1).ready_chunks(CHUNK);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = wanted.changed() => ledger.broker().nudge(StreamName::Ledger),
            chunk = items.next() => {
                let Some(chunk) = chunk else { return };
                for trouble in live.fold_all(&chunk) {
                    ledger.close(trouble);
                }
            }
        }
    }
}
