//! The objective as workers log it: read from METRICS while this instance leads, for trials that have a rung before them.
//!
//! What it tells is a help for pruning alone: a report that was purged before it was read is no observation, and the trial runs on. What a
//! trial is worth comes from its run's seal.

use footplate_api::metrics::Batch;
use footplate_eventlog::leader::Standing;
use footplate_eventlog::{Ledger, Live, StreamName, TailItem};
use footplate_series::codec;
use footplate_sweep_core::{Seen, Sweeps};
use footplate_types::RunId;
use futures::StreamExt;
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Reports that wait for the leader at most; the reader waits while it is full.
const WAITING_MAX: usize = 10_000;
/// Reports that one look takes in.
const LOOK_MAX: usize = 256;
/// The pause before a full queue, or a broker that is away, is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Reports of objectives that have reached a rung, in the order of METRICS.
#[derive(Clone)]
pub(crate) struct Objectives {
    waiting: Arc<Mutex<VecDeque<Seen>>>,
    wake: Arc<Notify>,
}

impl Objectives {
    pub(crate) fn new(wake: Arc<Notify>) -> Self {
        Self { waiting: Arc::default(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Seen>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest reports that wait.
    pub(crate) fn peek(&self) -> Vec<Seen> {
        self.lock().iter().take(LOOK_MAX).copied().collect()
    }

    /// Forgets the oldest `count`: they are folded.
    pub(crate) fn take(&self, count: usize) {
        let mut waiting = self.lock();
        let count = count.min(waiting.len());
        waiting.drain(..count);
        if !waiting.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Reads METRICS while this instance leads, each time from what the stream still holds.
    pub(crate) async fn watch(
        self,
        ledger: Ledger,
        live: Live<Sweeps>,
        mut standing: watch::Receiver<Standing>,
        shutdown: CancellationToken,
    ) {
        loop {
            let begins = standing.wait_for(|standing| matches!(standing, Standing::Leads { .. }));
            tokio::select! {
                () = shutdown.cancelled() => return,
                begun = begins => if begun.is_err() { return },
            }
            let stint = self.read(&ledger, &live);
            let ends = standing.wait_for(|standing| matches!(standing, Standing::Candidate));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = stint => {}
                _ = ends => {}
            }
            self.lock().clear();
        }
    }

    async fn read(&self, ledger: &Ledger, live: &Live<Sweeps>) {
        let mut items = ledger.broker().tail(StreamName::Metrics, Vec::new(), 1);
        while let Some(item) = items.next().await {
            let TailItem::Message(message) = item else { continue };
            // A batch that cannot be read is the tracker's to park; here it says nothing.
            let Ok(batch) = Batch::decode(message.payload.as_ref()) else { continue };
            let reports = reached(&live.read(), &batch);
            for seen in reports {
                self.push(seen).await;
            }
        }
    }

    async fn push(&self, seen: Seen) {
        loop {
            {
                let mut waiting = self.lock();
                if waiting.len() < WAITING_MAX {
                    waiting.push_back(seen);
                    break;
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.wake.notify_one();
    }
}

/// What a batch says about the objective of a trial at rungs that it has not entered: of the worker with rank 0.
fn reached(state: &Sweeps, batch: &Batch) -> Vec<Seen> {
    let Some(run) = RunId::parse(&batch.run).ok().filter(|_| batch.rank == 0) else { return Vec::new() };
    let Some(id) = state.trial_of(&run) else { return Vec::new() };
    let Some(sweep) = state.sweep(&id.sweep).filter(|sweep| sweep.project.as_str() == batch.project) else { return Vec::new() };
    let Some(trial) = sweep.trials.get(&id.trial).filter(|trial| trial.finished.is_none() && trial.pruned.is_none()) else {
        return Vec::new();
    };
    let metric = sweep.fact.objective.metric.as_str();
    let mut open: Vec<i64> = sweep.fact.rungs.iter().copied().filter(|rung| !trial.observed.contains_key(rung)).collect();
    let mut seen = Vec::new();
    for block in batch.series.iter().filter(|block| block.name == metric) {
        if open.is_empty() {
            break;
        }
        let Ok(points) = codec::decode(&block.points) else { continue };
        for point in points {
            let before = open.len();
            open.retain(|rung| *rung > point.step);
            if open.len() < before {
                seen.push(Seen { run, step: point.step, value: point.value });
            }
        }
    }
    seen
}
