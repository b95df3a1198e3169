//! `footplate-load gang`: from a gang's placement to its launch, with scheduler, executor and gpu-inventory over a real broker and
//! one simulated agent a declared node, each with a connection of its own.

pub(crate) mod stage;
mod watch;

use crate::figures::{Against, Figures, median, quantile};
use anyhow::{Context as _, Result};
use clap::Args;
use stage::Stage;
use std::time::Duration;

/// What is wanted of the median, in milliseconds.
const LAUNCH_MS: f64 = 1_000.0;
/// How long members run.
const RUN_FOR: Duration = Duration::from_millis(200);
/// How long one gang may take to be launched.
const LAUNCH_WITHIN: Duration = Duration::from_secs(120);

/// Sizes of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Members of the gang, and nodes
    #[arg(long, default_value_t = 64)]
    members: u32,
    /// Gangs, one after the other
    #[arg(long, default_value_t = 10)]
    events: usize,
    /// Gangs ahead of those, which are not counted
    #[arg(long, default_value_t = 2)]
    warm_up: usize,
}

/// Starts everything and launches gangs.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::of("gang");
    let stage = Stage::open(options.members, RUN_FOR).await?;
    let mut launches = Vec::new();
    for turn in 0..options.warm_up + options.events {
        let launched = tokio::time::timeout(LAUNCH_WITHIN, stage.launch(options.members)).await;
        let launch = launched.with_context(|| format!("gang {turn} took longer than {} s", LAUNCH_WITHIN.as_secs()))??;
        if turn >= options.warm_up {
            launches.push(launch);
        }
    }
    stage.close().await?;
    let all: Vec<f64> = launches.iter().map(watch::Launch::took).collect();
    let middle = |of: fn(&watch::Launch) -> f64| median(&launches.iter().map(of).collect::<Vec<_>>());
    let members = options.members;
    let what = format!("a gang of {members}, placed to launched, median");
    figures.count("gangs", launches.len() as u64);
    figures.millis(&format!("gang_{members}_ms"), &what, median(&all), Against::Below(LAUNCH_MS));
    figures.millis(&format!("gang_{members}_max_ms"), "  the slowest", quantile(&all, 1.0), Against::Nothing);
    figures.millis("placed_to_assigned_ms", "  placed to the last assignment", middle(watch::Launch::assigned), Against::Nothing);
    figures.millis("assigned_to_reported_ms", "  to the last report of a ready member", middle(watch::Launch::reported), Against::Nothing);
    figures.millis("reported_to_ready_ms", "  to the last attempt.ready", middle(watch::Launch::ready), Against::Nothing);
    figures.millis("ready_to_launched_ms", "  to job.launched", middle(watch::Launch::launched), Against::Nothing);
    figures.plain("ready_events", middle(|launch| launch.ready_events as f64));
    Ok(figures)
}
