//! What one instance does for all: it folds reports, reads configs, sets seals.
//!
//! Runs are client-written, so every append stands under its aggregate's expectation and a deposed leader is harmless whatever it still
//! does: leading here is for liveness and to spare the work, which runs beside the lease's own task while that says that it leads.

pub(crate) mod archive;
mod configs;
mod reports;
mod seals;

pub(crate) use reports::check_artifacts;

use crate::figures::Figures;
use crate::metrics::Reads;
use crate::view::State;
use crate::write::Writer;
use footplate_blobs::Blobs;
use footplate_clock::SharedClock;
use footplate_eventlog::inbox::Inbox;
use footplate_eventlog::leader::Standing;
use footplate_eventlog::{Broker, Decider, Live, Look, Verdict};
use footplate_tracker_core::SealPolicy;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// The pause between two looks at runs that wait for their seal or their config.
const LOOK_AT_OPEN_EVERY: Duration = Duration::from_millis(50);

/// How often settled positions are read again while a run waits for its seal.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// The longest pause between two looks for work.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The lease's side: nothing is decided under a term.
pub(crate) struct Leading;

impl Decider for Leading {
    type State = State;

    fn term_began(&mut self, look: &Look) {
        tracing::info!(term = look.term, "leads the tracker");
    }

    fn decide(&mut self, _state: &State, _look: &Look) -> Verdict {
        Verdict::default()
    }

    fn act<'a>(&'a mut self, _live: &'a Live<State>, _look: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn leads(standing: &watch::Receiver<Standing>) -> bool {
    matches!(*standing.borrow(), Standing::Leads { .. })
}

/// What the leader's work needs.
#[derive(Clone)]
pub(crate) struct Work {
    /// Appends.
    pub writer: Writer,
    /// The broker.
    pub broker: Arc<dyn Broker>,
    /// The store of metrics.
    pub reads: Reads,
    /// The store of documents and artifacts.
    pub blobs: Blobs,
    /// Elapsed time.
    pub clock: SharedClock,
    /// When a seal no longer waits.
    pub seal: SealPolicy,
    /// Counters.
    pub figures: Figures,
}

impl Work {
    /// Works while this instance leads, until shut down.
    pub(crate) async fn run(self, mut standing: watch::Receiver<Standing>, shutdown: CancellationToken) {
        loop {
            let begins = standing.wait_for(|standing| matches!(standing, Standing::Leads { .. }));
            tokio::select! {
                () = shutdown.cancelled() => return,
                begun = begins => if begun.is_err() { return },
            }
            let stint = shutdown.child_token();
            self.stint(&standing, &stint).await;
            stint.cancel();
            if !shutdown.is_cancelled() {
                tracing::info!("no longer leads the tracker");
            }
        }
    }

    /// One time of leading: everything that is only remembered begins anew.
    async fn stint(&self, standing: &watch::Receiver<Standing>, stint: &CancellationToken) {
        let wake = Arc::new(Notify::new());
        let inbox = Inbox::new("tracker", wake.clone());
        tokio::spawn(inbox.clone().fill(self.broker.clone(), stint.clone()));
        let mut reports = reports::Reports::begin(self, inbox, stint).await;
        let mut seals = seals::Seals::default();
        let mut position = self.writer.view().live().changes();
        let mut refreshed = self.clock.elapsed();
        while leads(standing) && !stint.is_cancelled() {
            let more = reports.fold(self).await;
            let opened = self.writer.view().live().read().open();
            self.figures.open_runs.set(i64::try_from(opened.len()).unwrap_or(i64::MAX));
            configs::read(self, &opened).await;
            let now = self.clock.elapsed();
            if !opened.is_empty() && now.saturating_sub(refreshed) >= REFRESH_EVERY {
                refreshed = now;
                reports.refresh(self, stint).await;
            }
            seals.look(self, &opened, reports.settled()).await;
            if more {
                continue;
            }
            tokio::select! {
                () = stint.cancelled() => {}
                () = wake.notified() => {}
                _ = position.changed() => {}
                () = tokio::time::sleep(if opened.is_empty() { LOOK_EVERY } else { LOOK_AT_OPEN_EVERY }) => {}
            }
        }
    }
}
