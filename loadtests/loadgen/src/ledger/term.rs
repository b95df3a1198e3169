//! A leader's appends: full batches under a term, each decided upon a view that has folded the one before, beside bare batches with the
//! same expectation, each sent when a bare reader has seen the one before. A reader costs the broker a good part of its rate, and no leader
//! is without one; the rate of bare batches that nobody reads is told too.

use super::{Options, Stage, Turns, rate};
use crate::figures::{Against, Figures, median};
use crate::raw::{Follower, Raw, Ready};
use crate::sample::{Sample, encoded};
use anyhow::{Context as _, Result, anyhow};
use footplate_es::{Decision, Evolve};
use footplate_eventlog::port::BATCH_MAX;
use footplate_eventlog::{Decider, Expect, LeaseConfig, Ledger, Live, Look, Verdict, follow, lead};
use footplate_events::facts::TermBegan;
use footplate_events::{Envelope, Recorded, Subject};
use footplate_types::ServiceName;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

/// How long the lease of the leaders lasts.
const LEASE: Duration = Duration::from_secs(30);
/// How long one turn of a leader may take.
const WRITTEN_WITHIN: Duration = Duration::from_secs(300);

pub(super) async fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let mut stage = Stage::open(true).await?;
    let mut turns = Turns::default();
    let mut unread = Vec::new();
    for turn in 0..options.repetitions {
        unread.push(bare(&mut stage.raw, None, &stage.sample, options.events, turn).await?);
        let follower = stage.raw.follow().await?;
        turns.raw.push(bare(&mut stage.raw, Some(follower), &stage.sample, options.events, turn + options.repetitions).await?);
        let envelopes = stage.sample.openings(options.events)?;
        turns.ours.push(led(&stage.ledger, envelopes).await?);
    }
    let (ours, raw) = turns.medians();
    figures.ratio("append_term", "append under a term, full batches, synced", ours, raw, Against::AtLeast(0.7));
    figures.ratio("append_term_unread", "the same beside bare batches that nobody reads", ours, median(&unread), Against::Nothing);
    Ok(())
}

async fn bare(raw: &mut Raw, mut reader: Option<Follower>, sample: &Sample, count: usize, turn: usize) -> Result<f64> {
    let service = ServiceName::parse(&format!("bare-{turn}"))?;
    let subject = Subject::term(&service);
    let mut envelope = sample.opening()?;
    envelope.event = TermBegan { service, instance: "load".to_owned() }.into();
    envelope.subject = subject.clone();
    let term = raw.publish(Ready::new(&encoded(&envelope)?, &Expect::Subject(0))?).await?;
    let expect = Expect::Other { subject: subject.to_string(), sequence: term };
    let ready = sample.openings(count)?;
    let ready = ready.iter().map(|one| Ready::new(&encoded(one)?, &expect)).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    for batch in ready.chunks(BATCH_MAX) {
        let last = raw.batch(batch).await?;
        if let Some(reader) = &mut reader {
            reader.has_read(last).await?;
        }
    }
    Ok(rate(count, began))
}

/// Lets a leader write all events; the time runs from its first decision until its view holds the last.
async fn led(ledger: &Ledger, envelopes: Vec<Envelope>) -> Result<f64> {
    let count = envelopes.len();
    // The owner of runs: what a leader decides about others' aggregates is left out.
    let service = ServiceName::parse("tracker")?;
    let live = Live::new(Counted::default(), ledger.end().await?);
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follow(ledger.clone(), Vec::new(), live.clone(), shutdown.clone()));
    let (done, took) = oneshot::channel();
    let decider = Writer { left: envelopes, count: count as u64, began: None, terms: 0, done: Some(done) };
    let lease = LeaseConfig { service, instance: "load".to_owned(), lease: LEASE };
    let leading = tokio::spawn(lead(ledger.clone(), lease, live, decider, Arc::new(Notify::new()), shutdown.clone()));
    let took = tokio::time::timeout(WRITTEN_WITHIN, took).await.context("the leader did not get all of its events written in time")?;
    let took = took.context("the leader ended before its work")??;
    shutdown.cancel();
    leading.await??;
    following.await?;
    Ok(count as f64 / took.as_secs_f64())
}

/// A view that counts runs.
#[derive(Debug, Default)]
struct Counted(u64);

impl Evolve for Counted {
    fn evolve(&mut self, recorded: &Recorded) {
        self.0 += u64::from(recorded.envelope.subject.run_id().is_some());
    }
}

/// Decides on a full batch at every look.
struct Writer {
    left: Vec<Envelope>,
    count: u64,
    began: Option<Instant>,
    terms: u32,
    done: Option<oneshot::Sender<Result<Duration>>>,
}

impl Decider for Writer {
    type State = Counted;

    /// A second term means that an append's outcome was unknown: what was decided then is not decided again here.
    fn term_began(&mut self, _: &Look) {
        self.terms += 1;
        if self.terms > 1
            && let Some(done) = self.done.take()
        {
            // Whoever measured has gone when nobody listens.
            let _ = done.send(Err(anyhow!("a batch had no answer in time: the machine is too busy to be measured")));
        }
    }

    fn decide(&mut self, state: &Counted, _: &Look) -> Verdict {
        let began = *self.began.get_or_insert_with(Instant::now);
        if state.0 >= self.count
            && let Some(done) = self.done.take()
        {
            // Whoever measured has gone when nobody listens.
            let _ = done.send(Ok(began.elapsed()));
        }
        let part = self.left.split_off(self.left.len().saturating_sub(BATCH_MAX));
        let decided =
            part.into_iter().map(|envelope| Decision { subject: envelope.subject, event: envelope.event, cause: None, ordinal: 0 });
        Verdict { decisions: decided.collect(), wake_in: None }
    }

    fn act<'a>(&'a mut self, _: &'a Live<Counted>, _: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }
}
