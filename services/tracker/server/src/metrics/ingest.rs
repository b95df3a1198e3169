//! Clients' batches: checked against the run, published, acknowledged when durable.

use super::{Checked, Consumer, Publisher, Sessions, check, consumer::OWN_SOURCE_MARK};
use crate::error::{publish_failed, series_failed};
use crate::figures::Figures;
use crate::view::View;
use footplate_api::v1::{IngestRequest, IngestResponse};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_eventlog::{Headers, Message, StreamName};
use footplate_events::messages::metrics_subject;
use footplate_series::{SeriesSource, SessionKey, SessionProgress};
use footplate_shell::away;
use footplate_types::AttemptNumber;
use prost::Message as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often an answer looks a session up that is forgotten again meanwhile.
const LOOKS_MAX: u32 = 8;

/// A batch that is durable, and what its answer is made of.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    session: SessionKey,
    implausible_times: u64,
}

/// The door for clients' batches. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ingest {
    view: View,
    consumer: Consumer,
    publisher: Publisher,
    source: Arc<str>,
    clock: SharedClock,
    figures: Figures,
    sessions: Arc<Mutex<Sessions>>,
    within: Duration,
}

impl Ingest {
    /// A door that publishes under the instance's own source.
    pub(crate) fn new(
        view: View,
        consumer: Consumer,
        publisher: Publisher,
        config: &crate::Config,
        clock: SharedClock,
        figures: Figures,
    ) -> Self {
        let (instance, within) = (&config.instance, config.wait);
        let slug: String =
            instance.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(60).collect();
        let source = format!("{OWN_SOURCE_MARK}{slug}").into();
        let sessions = Arc::new(Mutex::new(Sessions::new(config.sessions_max)));
        Self { view, consumer, publisher, source, clock, figures, sessions, within }
    }

    /// Takes one batch: `Ok` when it is durable. A repeated number is taken and not sent again.
    pub(crate) async fn take(&self, request: IngestRequest) -> Result<Taken, Refusal> {
        let batch = check(&request, self.clock.now())?;
        self.check_run(&batch).await?;
        let key = SessionKey { source: SeriesSource::Run(batch.run), attempt: batch.attempt, rank: batch.rank, session: batch.session };
        let taken = Taken { session: key.clone(), implausible_times: batch.implausible };
        if self.is_durable(&key, batch.n).await? {
            return Ok(taken);
        }
        let subject = metrics_subject(batch.run, &self.source);
        let message = Message { subject, headers: Headers::default(), payload: batch.packed().encode_to_vec().into() };
        self.publisher.publish(message, Instant::now() + self.within).await.map_err(publish_failed)?;
        self.figures.batches_acked.inc();
        self.figures.points_acked.inc_by(batch.points());
        if batch.implausible > 0 {
            self.figures.implausible_times.inc_by(batch.implausible);
            tracing::warn!(run = %batch.run, points = batch.implausible, "points with an implausible time are kept as they are");
        }
        self.lock().note(&key, batch.n);
        Ok(taken)
    }

    /// Whether the batch need not be sent. A session's first batch needs no look: sent twice, it is stored once.
    async fn is_durable(&self, key: &SessionKey, n: u64) -> Result<bool, Refusal> {
        if let Some(known) = self.lock().has(key, n) {
            return Ok(known);
        }
        if n == 1 {
            return Ok(false);
        }
        self.look_up(key).await?;
        // Forgotten again already: the store drops what it has.
        Ok(self.lock().has(key, n).unwrap_or(false))
    }

    /// A run of another project is not found, and an attempt must be one of the run's.
    async fn check_run(&self, batch: &Checked) -> Result<(), Refusal> {
        let run = self.view.resolve(&batch.project, &batch.run.to_string()).await?;
        let known = batch.attempt == AttemptNumber(0) || run.attempts.contains_key(&batch.attempt);
        if !known {
            self.view.catch_up().await?;
            let run = self.view.resolve(&batch.project, &batch.run.to_string()).await?;
            if !run.attempts.contains_key(&batch.attempt) {
                let message = format!("run {} has no attempt {}", batch.run, batch.attempt);
                return Err(Refusal::new(&reason::ATTEMPT_NOT_FOUND, message).field("attempt").value(batch.attempt));
            }
        }
        Ok(())
    }

    /// Looks up what is stored of a session: everything up to the end that METRICS has now.
    async fn look_up(&self, key: &SessionKey) -> Result<(), Refusal> {
        self.wait_stored().await?;
        let stored = self.consumer.series().store().sessions(&key.source).await.map_err(series_failed)?;
        let progress = stored.into_iter().find(|progress| progress.key == *key).unwrap_or_else(|| SessionProgress::new(key.clone()));
        self.lock().learn(progress);
        Ok(())
    }

    async fn wait_stored(&self) -> Result<(), Refusal> {
        let broker = self.view.ledger().broker();
        let bounds = broker.bounds(StreamName::Metrics).await.map_err(away)?;
        let mut stored = self.consumer.stored();
        if stored.borrow().covers(&bounds) {
            return Ok(());
        }
        broker.nudge(StreamName::Metrics);
        let reached = tokio::time::timeout(self.within, stored.wait_for(|at| at.covers(&bounds))).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Refusal::new(&reason::VIEW_BEHIND, "the series store has not read METRICS to its end yet")),
        }
    }

    /// Up to which number the batch's session is durable, as far as this instance knows; one that it has forgotten is looked up.
    pub(crate) async fn answer(&self, taken: &Taken) -> Result<IngestResponse, Refusal> {
        let key = &taken.session;
        for _ in 0..LOOKS_MAX {
            let known = self.lock().contiguous(key);
            if let Some(acked) = known {
                let session = key.session.to_string();
                return Ok(IngestResponse { session, acked, implausible_times: taken.implausible_times });
            }
            self.look_up(key).await?;
        }
        let message = format!("session {} is forgotten faster than it can be looked up: too many write at once", key.session);
        Err(Refusal::new(&reason::TOO_MANY_REQUESTS, message).next("send the batch again under its number"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
