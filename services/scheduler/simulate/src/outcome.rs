//! What came out: figures for people and programs. Times in seconds.

use serde::Serialize;

/// What came out under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The policy's name.
    pub policy: String,
    /// Jobs that came.
    pub jobs: usize,
    /// Jobs that did what they should.
    pub succeeded: usize,
    /// Jobs that ended otherwise: a limit of their own.
    pub failed: usize,
    /// Jobs that never started, or never came to their end, with why.
    pub never: Vec<Never>,
    /// From the first arrival to the last thing that happened.
    pub span_s: f64,
    /// Of all GPUs, how much was held on average over that time; percent. Absent without GPUs.
    pub gpus_percent: Option<f64>,
    /// The same of slots.
    pub slots_percent: Option<f64>,
    /// Jobs that were stopped for others, each time counted.
    pub preemptions: usize,
    /// The most that one job was stopped for others.
    pub preemptions_of_one_max: u32,
    /// GPU-seconds (of jobs without GPUs: slot-seconds) of work that had to be done again.
    pub lost_unit_s: f64,
    /// From the submission to the first placement, of all jobs that started.
    pub wait: Spread,
    /// From the submission to the end, of all jobs that ended by themselves.
    pub completion: Spread,
    /// The same by queue and size.
    pub stays: Vec<Stay>,
    /// What each queue held against what it was entitled to.
    pub queues: Vec<Use>,
    /// How it went, in equal steps of time.
    pub series: Vec<Point>,
    /// Waits of all jobs that started, at every percent from 0 to 100.
    pub wait_percentiles_s: Vec<f64>,
}

/// Jobs that never started, or never came to their end, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Never {
    /// Why.
    pub reason: String,
    /// How many.
    pub jobs: usize,
    /// One of them by its name.
    pub example: String,
}

/// How times are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// Of how many jobs.
    pub jobs: usize,
    /// Their mean.
    pub mean_s: f64,
    /// Half of them are at most this.
    pub p50_s: f64,
    /// 99 of a hundred are at most this.
    pub p99_s: f64,
    /// The longest.
    pub max_s: f64,
}

/// How long jobs of one queue and size waited and stayed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stay {
    /// The queue.
    pub queue: String,
    /// The size, in words.
    pub size: String,
    /// Jobs that came.
    pub jobs: usize,
    /// Their waits.
    pub wait: Spread,
    /// Their completion times.
    pub completion: Spread,
}

/// What a queue held, against what it was entitled to while it had work.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// The queue.
    pub queue: String,
    /// `gpus` or `slots`.
    pub unit: &'static str,
    /// What it held, in unit-hours.
    pub used_h: f64,
    /// What it was entitled to, in unit-hours: its guarantee first, then by weight among those who have work.
    pub entitled_h: f64,
    /// The first over the second, in percent; absent when it was entitled to nothing.
    pub percent: Option<f64>,
    /// Stops of its jobs for others.
    pub preempted: usize,
}

/// One step of time: means over it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// When it begins.
    pub at_s: f64,
    /// GPUs held.
    pub gpus: f64,
    /// Slots held.
    pub slots: f64,
    /// Jobs that wait.
    pub pending: f64,
    /// Jobs that hold something.
    pub running: f64,
}

/// Milliseconds as seconds.
pub(crate) fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// Three digits behind the point: the rest is noise of sums.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

impl Spread {
    /// Of these times in milliseconds, in any order.
    pub(crate) fn of(mut times_ms: Vec<u64>) -> Self {
        if times_ms.is_empty() {
            return Self::default();
        }
        times_ms.sort_unstable();
        let sum: u128 = times_ms.iter().map(|ms| u128::from(*ms)).sum();
        Self {
            jobs: times_ms.len(),
            mean_s: rounded(sum as f64 / times_ms.len() as f64 / 1_000.0),
            p50_s: seconds(percentile(&times_ms, 50)),
            p99_s: seconds(percentile(&times_ms, 99)),
            max_s: seconds(percentile(&times_ms, 100)),
        }
    }
}

/// The smallest of these sorted times that `percent` of them are at most (nearest rank); 0 of none.
pub(crate) fn percentile(sorted_ms: &[u64], percent: usize) -> u64 {
    let rank = (sorted_ms.len() * percent).div_ceil(100).max(1);
    sorted_ms.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let spread = Spread::of((1..=200).rev().map(|n| n * 1_000).collect());
        assert_eq!((spread.jobs, spread.mean_s, spread.p50_s, spread.p99_s, spread.max_s), (200, 100.5, 100.0, 198.0, 200.0));
        assert_eq!(Spread::of(vec![7]), Spread { jobs: 1, mean_s: 0.007, p50_s: 0.007, p99_s: 0.007, max_s: 0.007 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
