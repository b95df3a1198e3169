//! Many at a time, every write synced: the group commit beside full atomic batches.

use super::{Options, Stage, Turns, append_all, rate};
use crate::figures::{Against, Figures};
use crate::raw::Ready;
use crate::sample::encoded;
use anyhow::Result;
use footplate_eventlog::Expect;
use footplate_eventlog::port::BATCH_MAX;
use std::time::Instant;

pub(super) async fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let mut stage = Stage::open(true).await?;
    let mut turns = Turns::default();
    for _ in 0..options.repetitions {
        let ready = stage.sample.openings(options.events)?;
        let ready = ready.iter().map(|one| Ready::new(&encoded(one)?, &Expect::Subject(0))).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        for batch in ready.chunks(BATCH_MAX) {
            stage.raw.batch(batch).await?;
        }
        turns.raw.push(rate(options.events, began));
        let envelopes = stage.sample.openings(options.events)?;
        let began = Instant::now();
        append_all(&stage.ledger, envelopes, options.writers).await?;
        turns.ours.push(rate(options.events, began));
    }
    let (ours, raw) = turns.medians();
    figures.ratio("append_batched", "append, many at a time, synced", ours, raw, Against::AtLeast(0.7));
    Ok(())
}
