//! Waiting for a run to end and be sealed: asked again and again in bounded calls, with progress for a person.

use crate::{call, context::Context, output::Failure, view};
use footplate_api::{Client, types::Run, v1};
use footplate_service::Exit;
use std::time::{Duration, Instant};

/// The longest that one call waits when nobody looks.
const ROUND: Duration = Duration::from_secs(25);
/// The same when progress is shown.
const SHOWN_ROUND: Duration = Duration::from_secs(2);
/// What a call is given beyond its own wait.
const MARGIN: Duration = Duration::from_secs(10);

/// What to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// The end is enough; the seal is not waited for.
    pub ended_is_enough: bool,
    /// Give up after this long; never when absent.
    pub timeout: Option<Duration>,
}

/// Waits for a run; gives it back as it stood when it was done.
///
/// # Errors
/// No such run, no answer, or the time-out.
pub async fn wait(ctx: &Context, client: &Client, run_id: &str, wait: Wait) -> anyhow::Result<Run> {
    let began = Instant::now();
    let mut progress = ctx.progress();
    loop {
        let left = wait.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let round = left.unwrap_or(ROUND).min(if progress.is_shown() { SHOWN_ROUND } else { ROUND }).max(Duration::from_millis(1));
        let asked = v1::WaitRunRequest {
            project: client.project().to_owned(),
            run_id: run_id.to_owned(),
            ended_is_enough: wait.ended_is_enough,
            timeout_ms: round.as_millis() as u64,
        };
        let answer = call!(client, within round + MARGIN, runs.wait_run(asked))?;
        let run = answer.run.unwrap_or_default();
        if answer.done {
            return Ok(run);
        }
        let reason = view::reason(&run);
        progress.step(&format!(
            "{} {}{}",
            run.name,
            view::standing_with_seal(&run),
            if reason.is_empty() { reason } else { format!(": {reason}") }
        ));
        if left.is_some_and(|left| left <= round) {
            let message = format!(
                "run {run_id} is still {} after {}; it goes on",
                view::standing_with_seal(&run),
                crate::output::length(began.elapsed().as_secs())
            );
            return Err(Failure::new(Exit::TimedOut, message).into());
        }
    }
}
