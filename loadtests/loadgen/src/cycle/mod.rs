//! `footplate-load cycle`: what the scheduler's decisions cost at a size, and what they cost once they are durable.

mod durable;
mod life;

use anyhow::Result;
use clap::Args;
use footplate_replay::report::Report;
use std::time::Duration;

/// What is wanted of durable placements, a second.
const PLACEMENTS_PER_S: f64 = 5_000.0;
/// What is wanted of whole lives beside the bare broker.
const FULL_LIFE_RATIO: f64 = 0.5;

/// What `cycle` takes.
#[derive(Args)]
// The core's options have the same name.
#[group(skip)]
pub(crate) struct Options {
    #[command(flatten)]
    core: footplate_replay::cycle::Options,
    /// Jobs of one GPU that are placed by the real scheduler over a real broker, on nodes of 8; 0 leaves it out
    #[arg(long, default_value_t = 40_000)]
    durable_jobs: u32,
    /// How long these have been pending, in seconds, before their queue is released
    #[arg(long, default_value_t = 600)]
    age: u64,
    /// Jobs that live from submit to end, on agents whose members exist on paper; 0 leaves it out
    #[arg(long, default_value_t = 4_000)]
    lives: u32,
    /// Agents on which they live, of 8 GPUs each
    #[arg(long, default_value_t = 64)]
    agents: u32,
}

/// Runs it.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let mut report = footplate_replay::cycle::run(&options.core)?;
    if options.durable_jobs > 0 {
        let placed = durable::measure(options.durable_jobs, Duration::from_secs(options.age)).await?;
        let rate = f64::from(placed.jobs) / placed.took.as_secs_f64();
        report.line(format!(
            "durable: {} jobs that had waited {} s placed in {:.2} s: {rate:.0}/s with their assignments (wanted: {PLACEMENTS_PER_S:.0}/s)",
            placed.jobs,
            placed.waited.as_secs(),
            placed.took.as_secs_f64()
        ));
        report.number("durable_placements_per_s", rate);
        report.number("durable_waited_s", placed.waited.as_secs_f64());
    }
    if options.lives > 0 {
        let lives = life::measure(options.lives, options.agents).await?;
        let ratio = lives.per_s() / lives.raw_per_s();
        report.line(format!(
            "whole lives: {:.0}/s, {} messages each; the bare broker takes as many for {:.0}/s: {ratio:.2} (wanted: {FULL_LIFE_RATIO})",
            lives.per_s(),
            lives.messages_each(),
            lives.raw_per_s()
        ));
        report.number("full_lives_per_s", lives.per_s());
        report.number("full_lives_raw_per_s", lives.raw_per_s());
        report.number("full_life_messages", lives.messages_each());
        report.number("full_life_ratio", ratio);
    }
    Ok(report)
}
