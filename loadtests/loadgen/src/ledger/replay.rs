//! Reading the whole ledger: every event decoded, beside the client's own ordered consumer that throws the messages away.

use super::{Options, Stage, Turns, rate};
use crate::figures::{Against, Figures};
use crate::raw::Ready;
use crate::sample::encoded;
use anyhow::{Context as _, Result, bail};
use footplate_eventlog::{Expect, Ledger, LedgerItem};
use futures::StreamExt;
use std::time::Instant;

/// How many times the events of a repetition are read: reading is quicker than writing.
const TIMES: usize = 4;

pub(super) async fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let stage = Stage::open(false).await?;
    let count = options.events * TIMES;
    let events = (0..count).map(|_| Ready::new(&encoded(&stage.sample.opening()?)?, &Expect::Any));
    stage.raw.window(events).await?;
    let mut turns = Turns::default();
    for _ in 0..options.repetitions {
        let began = Instant::now();
        stage.raw.replay(count as u64).await?;
        turns.raw.push(rate(count, began));
        let began = Instant::now();
        replay(&stage.ledger, count).await?;
        turns.ours.push(rate(count, began));
    }
    let (ours, raw) = turns.medians();
    figures.ratio("replay", "replay, every event decoded", ours, raw, Against::AtLeast(0.7));
    Ok(())
}

async fn replay(ledger: &Ledger, count: usize) -> Result<()> {
    let mut items = ledger.tail(Vec::new(), 1);
    let mut facts = 0;
    while facts < count {
        match items.next().await.context("the tail ended")? {
            LedgerItem::Fact(_) => facts += 1,
            LedgerItem::Position(_) => {}
            LedgerItem::Unknown { sequence, .. } | LedgerItem::Poison { sequence, .. } => bail!("event {sequence} cannot be read"),
        }
    }
    Ok(())
}
