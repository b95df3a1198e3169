//! Many at a time, without a sync: the rate that the broker's own processing allows.

use super::{Options, Stage, Turns, append_all, rate};
use crate::figures::{Against, Figures};
use crate::raw::Ready;
use crate::sample::encoded;
use anyhow::Result;
use footplate_eventlog::Expect;
use std::time::Instant;

pub(super) async fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let stage = Stage::open(false).await?;
    let mut turns = Turns::default();
    for _ in 0..options.repetitions {
        let ready: Vec<_> =
            stage.sample.openings(options.events)?.iter().map(|one| Ready::new(&encoded(one)?, &Expect::Subject(0))).collect();
        let began = Instant::now();
        stage.raw.window(ready).await?;
        turns.raw.push(rate(options.events, began));
        let envelopes = stage.sample.openings(options.events)?;
        let began = Instant::now();
        append_all(&stage.ledger, envelopes, options.writers).await?;
        turns.ours.push(rate(options.events, began));
    }
    let (ours, raw) = turns.medians();
    figures.ratio("append_windowed", "append, many at a time, not synced", ours, raw, Against::AtLeast(0.7));
    Ok(())
}
