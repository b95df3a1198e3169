//! One at a time, every write synced: what a lone client waits for.

use super::{Options, Stage, Turns, rate};
use crate::figures::{Against, Figures};
use crate::raw::Ready;
use crate::sample::encoded;
use anyhow::Result;
use footplate_eventlog::Expect;
use std::time::Instant;

/// One in so many of the events: each costs a sync.
const PART: usize = 50;

pub(super) async fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let stage = Stage::open(true).await?;
    let count = (options.events / PART).max(10);
    let mut turns = Turns::default();
    for _ in 0..options.repetitions {
        let ready =
            stage.sample.openings(count)?.iter().map(|one| Ready::new(&encoded(one)?, &Expect::Subject(0))).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        for message in ready {
            stage.raw.publish(message).await?;
        }
        turns.raw.push(rate(count, began));
        let envelopes = stage.sample.openings(count)?;
        let began = Instant::now();
        for envelope in envelopes {
            stage.ledger.append(envelope, 0).await?;
        }
        turns.ours.push(rate(count, began));
    }
    let (ours, raw) = turns.medians();
    figures.ratio("append_single", "append, one at a time, synced", ours, raw, Against::Nothing);
    Ok(())
}
