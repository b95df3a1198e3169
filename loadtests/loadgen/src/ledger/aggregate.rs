//! Reading one aggregate of 50 events out of a large ledger, in which the aggregates' events stand interleaved.

use super::{Options, Stage};
use crate::figures::{Against, Figures, median, quantile};
use crate::raw::Ready;
use crate::sample::encoded;
use anyhow::{Result, ensure};
use footplate_eventlog::Expect;
use footplate_events::Subject;
use std::time::Instant;

/// Events of one aggregate.
const EVENTS: usize = 50;
/// Aggregates that are read.
const AGGREGATES: usize = 10;
/// How often each is read after the first time.
const WARM: usize = 20;

pub(super) async fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let stage = Stage::open(false).await?;
    let runs: Vec<Subject> = (0..(options.aggregate_events / EVENTS).max(AGGREGATES)).map(|_| stage.sample.run()).collect();
    let events = (0..EVENTS).flat_map(|_| &runs).map(|run| Ready::new(&encoded(&stage.sample.tags(run)?)?, &Expect::Any));
    stage.raw.window(events).await?;
    let (mut first, mut warm, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs.iter().step_by(runs.len() / AGGREGATES).take(AGGREGATES) {
        let filter = run.to_string();
        for turn in 0..=WARM {
            let began = Instant::now();
            let items = stage.ledger.aggregate(run).await?;
            let took = began.elapsed().as_secs_f64() * 1e3;
            ensure!(items.len() == EVENTS, "{} events instead of {EVENTS}", items.len());
            if turn == 0 { &mut first } else { &mut warm }.push(took);
            let began = Instant::now();
            ensure!(stage.raw.direct(&filter, EVENTS * 2).await? == EVENTS, "the bare broker gave other events");
            if turn > 0 {
                raw.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    figures.count("aggregate_out_of", (runs.len() * EVENTS) as u64);
    figures.millis("aggregate_ms", "one aggregate of 50 events, warm, median", median(&warm), Against::Below(10.0));
    figures.millis("aggregate_p99_ms", "  99 of 100", quantile(&warm, 0.99), Against::Nothing);
    figures.millis("aggregate_raw_ms", "  the bare broker's", median(&raw), Against::Nothing);
    figures.millis("aggregate_first_ms", "  read for the first time", median(&first), Against::Nothing);
    Ok(())
}
