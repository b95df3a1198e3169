//! From candidate to leader and back: the loop that holds a decider.

use super::append::Pen;
use super::lease::{Held, Lease};
use super::{Decider, LeadError, LeaseConfig, Look, Standing, elapsed};
use crate::ledger::{AppendError, Ledger, LedgerItem, NotUnderstood};
use crate::live::Live;
use crate::port::{PublishError, StreamName};
use footplate_es::Decision;
use footplate_events::facts::TermBegan;
use footplate_events::{Aggregate, Subject};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The longest pause between two looks: effects outside the ledger are compared at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The pause after an append that the broker could not take, or an effect that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// The pause before an instance that was deposed stands again.
const STAND_AGAIN: Duration = Duration::from_millis(50);
/// How long one wait for the view lasts before the broker is asked for a position anew.
const FOLD_WITHIN: Duration = Duration::from_secs(1);
/// How long the effects of one look may take.
const ACT_WITHIN: Duration = Duration::from_secs(30);
/// How long the term event may take.
const TERM_WITHIN: Duration = Duration::from_secs(10);

/// Why a reign ended.
enum End {
    Deposed,
    Shutdown,
    NotUnderstood(NotUnderstood),
}

pub(super) async fn run<D: Decider>(
    ledger: Ledger,
    config: LeaseConfig,
    live: Live<D::State>,
    decider: D,
    wake: Arc<Notify>,
    standing: watch::Sender<Standing>,
    shutdown: CancellationToken,
) -> Result<(), LeadError> {
    let lease = Lease::new(ledger.broker().clone(), config.clone());
    let connections = ledger.broker().connections();
    let pen = Pen::new(&config);
    let lost = CancellationToken::new();
    let mut leader = Leader { ledger, config, live, decider, wake, shutdown, connections, pen, standing, lost };
    let mut own: Option<Held> = None;
    loop {
        leader.lost = CancellationToken::new();
        match leader.caught_up().await {
            Ok(()) => {}
            Err(End::NotUnderstood(event)) => return Err(event.into()),
            Err(End::Shutdown | End::Deposed) => return Ok(()),
        }
        let Some(held) = lease.stand(own, &leader.shutdown).await else { return Ok(()) };
        let stop = CancellationToken::new();
        // Dropped with this future too: a keeper that outlived it would keep every other candidate out.
        let _ends_with_us = stop.clone().drop_guard();
        let keeper = tokio::spawn(lease.clone().keep(held, leader.lost.clone(), stop.clone()));
        let end = leader.reign().await;
        leader.standing.send_replace(Standing::Candidate);
        stop.cancel();
        own = keeper.await.ok();
        match (end, own) {
            (End::Deposed, _) => sleep(STAND_AGAIN).await,
            (End::Shutdown, Some(held)) => {
                lease.release(held).await;
                return Ok(());
            }
            (End::Shutdown, None) => return Ok(()),
            (End::NotUnderstood(event), held) => {
                if let Some(held) = held {
                    lease.release(held).await;
                }
                return Err(event.into());
            }
        }
    }
}

struct Leader<D: Decider> {
    ledger: Ledger,
    config: LeaseConfig,
    live: Live<D::State>,
    decider: D,
    wake: Arc<Notify>,
    shutdown: CancellationToken,
    connections: watch::Receiver<u64>,
    pen: Pen,
    standing: watch::Sender<Standing>,
    lost: CancellationToken,
}

impl<D: Decider> Leader<D> {
    /// A candidate stands only when it has read what is there: one that still replays would hold the lease and do nothing.
    async fn caught_up(&self) -> Result<(), End> {
        loop {
            if let Ok(end) = self.ledger.end().await {
                self.folded(end).await?;
                return self.understood();
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return Err(End::Shutdown),
                () = sleep(AGAIN) => {}
            }
        }
    }

    async fn reign(&mut self) -> End {
        match self.rule().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn rule(&mut self) -> Result<std::convert::Infallible, End> {
        let mut term = self.begin_term(None).await?;
        loop {
            self.may_go_on()?;
            self.understood()?;
            self.connections.mark_unchanged();
            let (verdict, met) = {
                let (state, view) = self.live.read_at();
                let met = self.live.counts();
                (self.decider.decide(&state, &self.look(term, view)), met)
            };
            let mut wake_in = verdict.wake_in.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
            if !verdict.decisions.is_empty() {
                match self.append(term, verdict.decisions).await? {
                    Wrote::All => {}
                    Wrote::Some => wake_in = wake_in.min(AGAIN),
                    Wrote::Nothing => {
                        self.pause(AGAIN).await?;
                        continue;
                    }
                    Wrote::Perhaps => {
                        // Never again the same bytes: under a standing term a copy would land twice (rule 4).
                        term = self.begin_term(Some(term)).await?;
                        continue;
                    }
                }
            }
            self.may_go_on()?;
            if !self.act(term).await {
                wake_in = wake_in.min(AGAIN);
            }
            self.wait(met, wake_in).await?;
        }
    }

    /// Begins a term, expecting the one before (our own, when we begin anew), and reads up to it.
    async fn begin_term(&mut self, own: Option<u64>) -> Result<u64, End> {
        let subject = Subject::term(&self.config.service);
        let term = loop {
            self.may_go_on()?;
            let before = match self.ledger.broker().last(StreamName::Ledger, self.pen.term_subject()).await {
                Ok(last) => last,
                Err(error) => {
                    tracing::debug!(%error, "the last term cannot be read");
                    self.pause(AGAIN).await?;
                    continue;
                }
            };
            if let Some(event) = before.as_ref().and_then(|stored| LedgerItem::of(stored).not_understood()) {
                return Err(End::NotUnderstood(event));
            }
            let before = before.map_or(0, |stored| stored.sequence);
            if own.is_some_and(|own| own != before) && !self.is_own_term(before).await {
                return Err(End::Deposed);
            }
            let fact = TermBegan { service: self.config.service.clone(), instance: self.config.instance.clone() };
            let envelope = self.pen.envelope(Decision::new(subject.clone(), fact, None));
            match self.ledger.append_within(envelope, before, TERM_WITHIN).await {
                Ok(term) => break term,
                Err(AppendError::Conflict { .. }) => return Err(End::Deposed),
                Err(error) => {
                    tracing::warn!(%error, service = %self.config.service, "the term cannot begin");
                    self.pause(AGAIN).await?;
                }
            }
        };
        self.folded(term).await?;
        self.understood()?;
        let look = self.look(term, self.live.position());
        tracing::info!(service = %self.config.service, instance = self.config.instance, term, "a term began");
        self.standing.send_replace(Standing::Leads { term });
        self.decider.term_began(&look);
        Ok(term)
    }

    /// Whether the last term event is one of ours after all (its answer was lost for longer than its deadline).
    async fn is_own_term(&self, sequence: u64) -> bool {
        let last = self.ledger.broker().last(StreamName::Ledger, self.pen.term_subject()).await;
        let Ok(Some(stored)) = last else { return false };
        let began: Option<TermBegan> = serde_json::from_slice(&stored.payload).ok();
        stored.sequence == sequence && began.is_some_and(|began| began.instance == self.config.instance)
    }

    async fn append(&mut self, term: u64, decisions: Vec<Decision>) -> Result<Wrote, End> {
        match self.pen.append(self.ledger.broker().as_ref(), term, decisions).await {
            Ok(appended) => {
                if let Some(last) = appended.last {
                    self.folded(last).await?;
                }
                Ok(if appended.left_out == 0 { Wrote::All } else { Wrote::Some })
            }
            Err(PublishError::Conflict) => {
                tracing::warn!(service = %self.config.service, instance = self.config.instance, term, "deposed: another term began");
                Err(End::Deposed)
            }
            Err(PublishError::Unknown(why) | PublishError::Stuck(why)) => {
                tracing::warn!(service = %self.config.service, term, why, "outcome unknown: beginning a new term");
                Ok(Wrote::Perhaps)
            }
            Err(error @ (PublishError::Full(_) | PublishError::Unavailable(_))) => {
                tracing::warn!(%error, service = %self.config.service, term, "nothing could be appended");
                Ok(Wrote::Nothing)
            }
            Err(PublishError::Refused(why)) => {
                tracing::error!(service = %self.config.service, term, why, "an append was refused for good");
                Ok(Wrote::Nothing)
            }
        }
    }

    async fn act(&mut self, term: u64) -> bool {
        let look = self.look(term, self.live.position());
        let acting = tokio::time::timeout(ACT_WITHIN, self.decider.act(&self.live, &look));
        let done = tokio::select! {
            done = acting => done,
            // Effects are level-triggered: who leads next brings them in line.
            () = self.shutdown.cancelled() => return false,
        };
        match done {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(error, service = %self.config.service, "an effect failed");
                false
            }
            Err(_) => {
                tracing::warn!(service = %self.config.service, "the effects of a look took too long");
                false
            }
        }
    }

    /// Waits for a reason to look again.
    async fn wait(&mut self, met: crate::live::Counts, wake_in: Duration) -> Result<(), End> {
        let mut changes = self.live.changes();
        let wake_at = tokio::time::Instant::now() + wake_in;
        loop {
            changes.mark_unchanged();
            if self.live.counts() != met {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(End::Shutdown),
                () = self.lost.cancelled() => return Err(End::Deposed),
                _ = changes.changed() => {}
                () = self.wake.notified() => return Ok(()),
                _ = self.connections.changed() => return Ok(()),
                () = tokio::time::sleep_until(wake_at) => return Ok(()),
            }
        }
    }

    async fn pause(&self, pause: Duration) -> Result<(), End> {
        tokio::select! {
            () = self.shutdown.cancelled() => Err(End::Shutdown),
            () = self.lost.cancelled() => Err(End::Deposed),
            () = sleep(pause) => Ok(()),
        }
    }

    /// Waits until the view holds everything up to `sequence`.
    async fn folded(&self, sequence: u64) -> Result<(), End> {
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(End::Shutdown),
                () = self.lost.cancelled() => return Err(End::Deposed),
                reached = self.live.at_least(sequence, FOLD_WITHIN) => if reached.is_ok() { return Ok(()) },
            }
        }
    }

    fn may_go_on(&self) -> Result<(), End> {
        if self.shutdown.is_cancelled() {
            return Err(End::Shutdown);
        }
        if self.lost.is_cancelled() { Err(End::Deposed) } else { Ok(()) }
    }

    /// Refuses to lead over an event of its own aggregates that this build cannot understand (rule 11).
    fn understood(&self) -> Result<(), End> {
        let own = self.live.not_understood_where(|subject| is_owned_by(subject, self.config.service.as_str()));
        own.map_or(Ok(()), |event| Err(End::NotUnderstood(event)))
    }

    fn look(&self, term: u64, view: u64) -> Look {
        Look { term, view, now: footplate_clock::now(), elapsed: elapsed() }
    }
}

/// How much of a verdict was written.
enum Wrote {
    All,
    /// All but what could not be encoded.
    Some,
    Nothing,
    Perhaps,
}

/// Whether an aggregate belongs to a service, by its subject's third token.
fn is_owned_by(subject: &str, service: &str) -> bool {
    let mut tokens = subject.split('.').skip(3);
    let (kind, id) = (tokens.next(), tokens.next());
    if kind == Some(Aggregate::Term.as_str()) {
        return id == Some(service);
    }
    Aggregate::ALL.into_iter().any(|aggregate| Some(aggregate.as_str()) == kind && aggregate.owner() == service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_owns_its_aggregates_and_its_own_terms() {
        assert!(is_owned_by("fp.ledger.vision.job.1", "scheduler") && !is_owned_by("fp.ledger.vision.run.1", "scheduler"));
        assert!(is_owned_by("fp.ledger._.term.tracker", "tracker") && !is_owned_by("fp.ledger._.term.tracker", "scheduler"));
    }
}
