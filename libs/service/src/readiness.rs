//! Readiness: a component holds a latch until it can do its work, and takes it up again when it no longer can.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Which components are not ready, and why. A cheap handle.
#[derive(Clone, Debug)]
pub struct Readiness {
    pending: Arc<watch::Sender<BTreeMap<String, String>>>,
    prefix: Arc<str>,
}

/// What one component is waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingLatch {
    /// The latch's name.
    pub name: String,
    /// Why it is held.
    pub why: String,
}

/// Held by a component: it makes the process not ready from its making until [`Latch::ready`].
///
/// A latch dropped while it is held stays pending: a component that died is not ready.
#[derive(Debug)]
pub struct Latch {
    name: String,
    readiness: Readiness,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { pending: Arc::new(watch::Sender::default()), prefix: Arc::from("") }
    }
}

impl Readiness {
    /// The same readiness, with `prefix/` before the names of the latches made through it.
    #[must_use]
    pub fn within(&self, prefix: &str) -> Self {
        Self { pending: self.pending.clone(), prefix: format!("{}{prefix}/", self.prefix).into() }
    }

    /// A new latch, held because the component is starting.
    pub fn latch(&self, name: &str) -> Latch {
        let latch = Latch { name: format!("{}{name}", self.prefix), readiness: self.clone() };
        latch.pending("starting");
        latch
    }

    /// Whether no latch is held.
    pub fn is_ready(&self) -> bool {
        self.pending.borrow().is_empty()
    }

    /// Every latch that is held, by name.
    pub fn pending(&self) -> Vec<PendingLatch> {
        self.pending.borrow().iter().map(|(name, why)| PendingLatch { name: name.clone(), why: why.clone() }).collect()
    }

    /// Waits until no latch is held.
    pub async fn ready(&self) {
        self.until(true).await;
    }

    /// Waits until readiness is as `wanted`.
    pub async fn until(&self, wanted: bool) {
        // The sender lives in `self`, so the wait cannot be cut off.
        let _ = self.pending.subscribe().wait_for(|pending| pending.is_empty() == wanted).await;
    }
}

impl Latch {
    /// The component can do its work.
    pub fn ready(&self) {
        self.readiness.pending.send_if_modified(|pending| pending.remove(&self.name).is_some());
    }

    /// The component cannot do its work now.
    pub fn pending(&self, why: impl Into<String>) {
        let why = why.into();
        self.readiness
            .pending
            .send_if_modified(|pending| pending.insert(self.name.clone(), why.clone()).is_none_or(|before| before != why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_ready_when_no_latch_is_held() {
        let readiness = Readiness::default();
        assert!(readiness.is_ready());
        let ledger = readiness.within("tracker").latch("ledger");
        let store = readiness.latch("store");
        ledger.pending("at 3 of 10");
        let names: Vec<String> = readiness.pending().into_iter().map(|latch| format!("{}: {}", latch.name, latch.why)).collect();
        assert_eq!(names, ["store: starting", "tracker/ledger: at 3 of 10"]);
        store.ready();
        ledger.ready();
        readiness.ready().await;
        ledger.pending("the broker is away");
        assert!(!readiness.is_ready(), "a latch can be taken up again");
    }

    #[test]
    fn a_component_that_died_is_not_ready() {
        let readiness = Readiness::default();
        drop(readiness.latch("ledger"));
        assert_eq!(readiness.pending().len(), 1);
    }
}
