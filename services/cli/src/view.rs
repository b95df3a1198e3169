//! How runs, jobs and sizes are put in words, the same in every command.

use crate::output::{Exit, ago, length};
use footplate_api::types::{Outcome, Run, RunState};
use footplate_api::v1::Job;
use footplate_types::{GpuMilli, Timestamp};

/// The fewest letters of an id in a table.
const SHORT_ID: usize = 12;

/// How many letters of each id tell them apart: at least twelve.
pub fn id_letters<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let shared = ids.windows(2).map(|pair| pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count()).max();
    shared.map_or(SHORT_ID, |shared| (shared + 1).max(SHORT_ID))
}

/// The first letters of an id.
pub fn short(id: &str, letters: usize) -> String {
    id.chars().take(letters).collect()
}

/// Where a run stands, in one word: how it ended once it has ended, else its state.
pub fn standing(run: &Run) -> &'static str {
    match run.outcome() {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Unspecified => state_word(run.state()),
    }
}

fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Pending => "pending",
        RunState::Preparing => "preparing",
        RunState::Running => "running",
        RunState::Stopping => "stopping",
        RunState::Ending => "ending",
        RunState::Sealed => "sealed",
        RunState::Unspecified => "unknown",
    }
}

/// Where a run stands, with the seal: `succeeded (sealing)`, `failed (sealed incomplete)`.
pub fn standing_with_seal(run: &Run) -> String {
    let word = standing(run);
    match run.state() {
        RunState::Ending => format!("{word} (sealing)"),
        RunState::Sealed if !run.seal_complete => format!("{word} (sealed incomplete)"),
        _ => word.to_owned(),
    }
}

/// The exit code of waiting for a run that has ended.
pub fn exit_of(run: &Run) -> Exit {
    match run.outcome() {
        Outcome::Succeeded => Exit::Done,
        Outcome::Failed => Exit::WorkFailed,
        Outcome::Cancelled => Exit::Cancelled,
        Outcome::Unspecified => Exit::Failed,
    }
}

/// Why a run stands or ended as it did, in one line; empty when there is nothing to say.
pub fn reason(run: &Run) -> String {
    if let Some(root) = &run.root {
        let place = root.rank.map_or_else(|| format!("member {}", root.member), |rank| format!("rank {rank}"));
        return format!("{place} on {}: {}", root.node, root.what);
    }
    if !run.message.is_empty() {
        return run.message.clone();
    }
    if !run.waiting.is_empty() {
        return run.waiting.clone();
    }
    let says_more = !matches!(run.outcome(), Outcome::Unspecified | Outcome::Succeeded) && run.cause != standing(run);
    if says_more { run.cause.replace('_', " ") } else { String::new() }
}

/// How long ago an RFC 3339 instant was; `-` when there is none.
pub fn since(time: &str, now: Timestamp) -> String {
    Timestamp::parse(time).map_or_else(|_| "-".to_owned(), |then| ago(then, now))
}

/// Milliseconds as a length of time; `-` for none.
pub fn lasted(millis: u64) -> String {
    match millis {
        0 => "-".to_owned(),
        1..1_000 => format!("{millis}ms"),
        _ => length(millis / 1_000),
    }
}

/// A metric's value in at most six digits, exact where that is shorter.
pub fn number(value: f64) -> String {
    let exact = value.to_string();
    if exact.len() <= 8 || !value.is_finite() {
        return exact;
    }
    let size = value.abs();
    if (1e-3..1e6).contains(&size) {
        format!("{value:.5}").trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.5e}")
    }
}

/// What a job asks, in words: `2x8 gpus`, `1x0.25 gpus`, `1x2 1g.10gb`, `1x2 slots`.
pub fn shape(job: &Job) -> String {
    let nodes = job.nodes;
    match (job.gpus_per_node, job.gpu_profile.as_str(), job.gpu_share) {
        (0, _, _) => format!("{nodes}x{} slots", job.slots_per_node),
        (_, "", share) if share > 0 => format!("{nodes}x{} gpus", GpuMilli(share.into())),
        (gpus, "", _) => format!("{nodes}x{gpus} gpus"),
        (slices, profile, _) => format!("{nodes}x{slices} {profile}"),
    }
}

/// Of two ends the worse one: that a run failed says more than that one was cancelled, whichever came first.
pub fn worse(one: Exit, other: Exit) -> Exit {
    match (one, other) {
        (Exit::Done, other) | (Exit::Cancelled, other @ (Exit::WorkFailed | Exit::Failed)) => other,
        (one, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_asks_is_told_in_its_own_unit() {
        let job = |gpus_per_node, gpu_profile: &str, gpu_share| Job {
            nodes: 2,
            gpus_per_node,
            slots_per_node: u32::from(gpus_per_node == 0),
            gpu_profile: gpu_profile.to_owned(),
            gpu_share,
            ..Job::default()
        };
        let told = [job(8, "", 0), job(1, "", 250), job(3, "1g.10gb", 0), job(0, "", 0)].map(|job| shape(&job));
        assert_eq!(told, ["2x8 gpus", "2x0.25 gpus", "2x3 1g.10gb", "2x1 slots"]);
    }

    #[test]
    fn ids_are_as_long_as_it_takes_to_tell_them_apart() {
        assert_eq!(id_letters(["0190aaaaaaaa1111", "0190bbbbbbbb2222"].into_iter()), 12);
        assert_eq!(id_letters(["0190aaaaaaaa1111", "0190aaaaaaaa1122"].into_iter()), 15);
        assert_eq!(id_letters(std::iter::empty()), 12);
    }

    #[test]
    fn numbers_are_short_and_never_wrong_by_much() {
        for (value, text) in
            [(0.5, "0.5"), (1.0 / 3.0, "0.33333"), (1e-9 / 3.0, "3.33333e-10"), (f64::NAN, "NaN"), (123_456.789_01, "123456.78901")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn an_ended_run_is_called_by_its_outcome_and_a_living_one_by_its_state() {
        let mut run = Run { state: RunState::Pending.into(), waiting: "quota".into(), ..Run::default() };
        assert_eq!((standing(&run), reason(&run).as_str()), ("pending", "quota"));
        run.set_state(RunState::Sealed);
        run.set_outcome(Outcome::Failed);
        run.cause = "timed_out".into();
        run.waiting.clear();
        assert_eq!((standing_with_seal(&run).as_str(), reason(&run).as_str()), ("failed (sealed incomplete)", "timed out"));
    }
}
