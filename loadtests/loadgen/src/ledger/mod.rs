//! `footplate-load ledger`: appending in four modes, replaying, and reading one aggregate, each beside the bare broker.

mod aggregate;
mod batched;
mod replay;
mod single;
mod term;
mod windowed;

use crate::figures::{Figures, median};
use crate::raw::Raw;
use crate::sample::Sample;
use anyhow::Result;
use clap::{Args, ValueEnum};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig};
use footplate_eventlog::{AppendError, Ledger};
use footplate_events::Envelope;
use footplate_testkit::{NatsServer, nats};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long one append may wait behind all the others.
const APPEND_WITHIN: Duration = Duration::from_secs(120);

/// Sizes of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Events of each repetition (appending one at a time takes a fiftieth of them)
    #[arg(long, default_value_t = 50_000)]
    events: usize,
    /// Events of the ledger out of which one aggregate is read
    #[arg(long, default_value_t = 1_000_000)]
    aggregate_events: usize,
    /// How often ours and the bare broker take turns
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Appends that wait for their answers at a time
    #[arg(long, default_value_t = 4_000)]
    writers: usize,
    /// Only these modes
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Mode>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Single,
    Windowed,
    Batched,
    Term,
    Replay,
    Aggregate,
}

/// Runs the chosen modes.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::of("ledger");
    figures.count("events", options.events as u64);
    let wanted = |mode: Mode| options.only.is_empty() || options.only.contains(&mode);
    if wanted(Mode::Single) {
        single::run(options, &mut figures).await?;
    }
    if wanted(Mode::Windowed) {
        windowed::run(options, &mut figures).await?;
    }
    if wanted(Mode::Batched) {
        batched::run(options, &mut figures).await?;
    }
    if wanted(Mode::Term) {
        term::run(options, &mut figures).await?;
    }
    if wanted(Mode::Replay) {
        replay::run(options, &mut figures).await?;
    }
    if wanted(Mode::Aggregate) {
        aggregate::run(options, &mut figures).await?;
    }
    Ok(figures)
}

/// A broker of its own, a ledger on it, and a bare connection beside.
struct Stage {
    ledger: Ledger,
    raw: Raw,
    sample: Arc<Sample>,
    /// Ends with the stage.
    _server: NatsServer,
}

impl Stage {
    async fn open(sync_always: bool) -> Result<Self> {
        let server = nats().sync_always(sync_always).try_start().await?;
        let broker = JetStreamBroker::connect(JetStreamConfig::single(server.url(), "footplate-load")).await?;
        let raw = Raw::connect(&server.url()).await?;
        Ok(Self { ledger: Ledger::new(Arc::new(broker)), raw, sample: Arc::new(Sample::new()?), _server: server })
    }
}

/// Both sides' rates, taken by turns.
#[derive(Default)]
struct Turns {
    raw: Vec<f64>,
    ours: Vec<f64>,
}

impl Turns {
    fn medians(&self) -> (f64, f64) {
        (median(&self.ours), median(&self.raw))
    }
}

fn rate(count: usize, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

/// Appends first events of many runs, `writers` of them waiting for their answers at a time.
async fn append_all(ledger: &Ledger, envelopes: Vec<Envelope>, writers: usize) -> Result<()> {
    let share = envelopes.len().div_ceil(writers.max(1)).max(1);
    let mut envelopes = envelopes.into_iter();
    let mut tasks: JoinSet<Result<(), AppendError>> = JoinSet::new();
    loop {
        let part: Vec<Envelope> = envelopes.by_ref().take(share).collect();
        if part.is_empty() {
            break;
        }
        let ledger = ledger.clone();
        tasks.spawn(async move {
            for envelope in part {
                ledger.append_within(envelope, 0, APPEND_WITHIN).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
