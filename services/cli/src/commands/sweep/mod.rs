//! Verbs of `sweep`: searches over a space of params.

pub mod list;
pub mod resume;
pub mod run;
pub mod show;
pub mod stop;

use crate::{call, context::Context, output::Exit, output::Failure, output::length, view};
use footplate_api::{
    Client,
    v1::{self, Sweep, Trial},
};
use std::time::{Duration, Instant};

/// The pause between two looks at a sweep that is waited for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A sweep as it stands at `at_least` or later.
pub(crate) async fn get(client: &Client, named: &str, at_least: u64) -> anyhow::Result<Sweep> {
    let asked = v1::GetSweepRequest { project: client.project().to_owned(), sweep_id: named.to_owned(), at_least };
    Ok(call!(client, sweeps.get_sweep(asked))?.sweep.unwrap_or_default())
}

/// Waits until nothing more is to come of a sweep.
pub(crate) async fn wait(ctx: &Context, client: &Client, id: &str, at_least: u64, timeout: Option<Duration>) -> anyhow::Result<Sweep> {
    let began = Instant::now();
    let mut progress = ctx.progress();
    loop {
        let sweep = get(client, id, at_least).await?;
        if matches!(sweep.state.as_str(), "finished" | "stopped") {
            progress.clear();
            return Ok(sweep);
        }
        progress.step(&format!("{} {}: {}", sweep.name, sweep.state, tally(&sweep)));
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            let message = format!("sweep {id} is still {} after {}; it goes on", sweep.state, length(began.elapsed().as_secs()));
            return Err(Failure::new(Exit::TimedOut, message).into());
        }
        tokio::time::sleep(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY))).await;
    }
}

/// The exit code of a sweep that was waited for.
pub(crate) fn exit_of(sweep: &Sweep) -> Exit {
    match (sweep.state.as_str(), sweep.best.is_some()) {
        ("stopped", _) => Exit::Cancelled,
        (_, true) => Exit::Done,
        (_, false) => Exit::WorkFailed,
    }
}

/// How many trials came to what.
pub(crate) fn tally(sweep: &Sweep) -> String {
    let of = sweep.trials.map(u64::from).into_iter().chain(sweep.points).min().map(|all| format!(" of {all}")).unwrap_or_default();
    let counts = [
        (sweep.running, "running"),
        (sweep.complete, "complete"),
        (sweep.pruned, "pruned"),
        (sweep.failed, "failed"),
        (sweep.cancelled, "cancelled"),
    ];
    let told: Vec<String> = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    format!("{}{of} trials{}{}", sweep.suggested, if told.is_empty() { "" } else { ": " }, told.join(", "))
}

/// A trial's value, for people.
pub(crate) fn value(trial: &Trial) -> String {
    trial.value.map_or_else(String::new, view::number)
}

/// A trial's point, for people: its params by name.
pub(crate) fn point(trial: &Trial) -> String {
    let mut values: Vec<String> = trial.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    values.sort();
    values.join(" ")
}
