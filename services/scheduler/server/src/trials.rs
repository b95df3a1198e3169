//! The jobs of sweeps' trials: submitted by the leader as a client would, at an expected sequence, so that one submitted twice is one.

use crate::Config;
use footplate_clock::SharedClock;
use footplate_es::Decision;
use footplate_eventlog::{AppendError, Ledger, Live};
use footplate_events::facts::JobSubmitted;
use footplate_events::{Envelope, Subject};
use footplate_scheduler_core::{SERVICE, State, Wanted};
use footplate_types::{Digest, RunId};
use futures::StreamExt;

/// Jobs that are submitted at once.
const AT_ONCE: usize = 64;
/// Jobs submitted in one look; the rest follow at the next.
const LOOK_MAX: usize = 256;

pub(crate) struct Trials {
    ledger: Ledger,
    clock: SharedClock,
    source: String,
}

impl Trials {
    pub(crate) fn new(ledger: Ledger, clock: SharedClock, config: &Config) -> Self {
        Self { ledger, clock, source: format!("{SERVICE}/{}", config.instance) }
    }

    /// Submits the jobs that trials want. The view tells, at the next look, which of them stand.
    pub(crate) async fn submit_wanted(&self, live: &Live<State>) -> Result<(), String> {
        let wanted: Vec<Envelope> = {
            let state = live.read();
            state.wanted().iter().take(LOOK_MAX).filter_map(|(run, wanted)| self.submission(*run, wanted)).collect()
        };
        let appends = wanted.into_iter().map(|envelope| self.ledger.append(envelope, 0));
        let mut failed = None;
        let mut done = futures::stream::iter(appends).buffer_unordered(AT_ONCE);
        while let Some(appended) = done.next().await {
            match appended {
                // A conflict: it was submitted before, and the view has yet to see it.
                Ok(_) | Err(AppendError::Conflict { .. }) => {}
                Err(error) => failed = Some(format!("a trial's job was not submitted: {error}")),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The submission that follows from a trial: the same event whoever writes it, and however often.
    fn submission(&self, run: RunId, wanted: &Wanted) -> Option<Envelope> {
        let spec = (*wanted.spec).clone();
        let body = Digest::of(&serde_json::to_vec(&spec).ok()?);
        let decision = Decision::new(Subject::job(&wanted.project, run), JobSubmitted { spec, body }, Some(wanted.cause.clone()));
        let id = decision.id(SERVICE)?;
        let cause = wanted.cause.clone();
        Some(Envelope {
            id,
            subject: decision.subject,
            event: decision.event,
            source: self.source.clone(),
            time: self.clock.now(),
            actor: cause.actor,
            correlation: cause.correlation,
            causation: Some(cause.id),
            trace: cause.trace,
        })
    }
}
