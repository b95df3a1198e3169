//! Waiting on a condition over values, with a deadline: the only kind of waiting a test does.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// The first pause between two looks; doubled after each, so that a quick condition is seen quickly.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The condition did not hold in time.
#[derive(Debug)]
pub struct Late {
    /// What was waited for, as the caller put it.
    pub what: String,
    /// How long.
    pub deadline: Duration,
    /// How often the probe gave its answer.
    pub looks: u64,
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "waited {:?} for: {} (looked {} times)", self.deadline, self.what, self.looks)
    }
}

impl std::error::Error for Late {}

/// Asks `probe` until it gives a value, and returns that value.
///
/// # Panics
/// When `deadline` passes first, naming `what` was waited for. A probe that hangs is cut off at the deadline as well.
#[track_caller]
pub fn eventually<T, F, Fut>(deadline: Duration, what: &str, probe: F) -> impl Future<Output = T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let caller = std::panic::Location::caller();
    let waiting = try_eventually(deadline, what, probe);
    async move {
        match waiting.await {
            Ok(value) => value,
            Err(late) => panic!("{late}, at {caller}"),
        }
    }
}

/// [`eventually`] for a caller that wants to add what it knows before it fails.
///
/// # Errors
/// [`Late`] when `deadline` passes before `probe` gives a value.
pub fn try_eventually<T, F, Fut>(deadline: Duration, what: &str, mut probe: F) -> impl Future<Output = Result<T, Late>>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let what = what.to_owned();
    async move {
        let end = Instant::now() + deadline;
        let mut pause = FIRST_PAUSE;
        let mut looks = 0;
        loop {
            match timeout_at(end, probe()).await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) if Instant::now() + pause < end => looks += 1,
                Ok(None) | Err(_) => return Err(Late { what, deadline, looks }),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
