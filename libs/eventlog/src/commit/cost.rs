//! What a single and a batch cost at this broker, as measured while they run.

use std::time::Duration;

/// The first guess of a single's cost: one sync of a common disk.
const SINGLE_GUESS_US: f64 = 3_000.0;
/// The first guess of a batch's fixed cost: about six such syncs.
const BATCH_GUESS_US: f64 = 20_000.0;
/// What a message adds to a batch.
const MESSAGE_US: f64 = 30.0;
/// The weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// How fast the road not taken is forgiven, so that it is tried again.
const FORGIVENESS: f64 = 0.995;
/// The most that one measurement may count for: a stall of the broker says nothing of the roads.
const MOST_US: f64 = 500_000.0;

/// Moving averages of both roads.
pub(super) struct Cost {
    single_us: f64,
    batch_us: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { single_us: SINGLE_GUESS_US, batch_us: BATCH_GUESS_US }
    }
}

impl Cost {
    pub(super) fn single_took(&mut self, took: Duration) {
        average(&mut self.single_us, took.as_secs_f64() * 1e6);
    }

    pub(super) fn batch_took(&mut self, size: usize, took: Duration) {
        average(&mut self.batch_us, took.as_secs_f64() * 1e6 - size as f64 * MESSAGE_US);
    }

    /// Whether `count` appends are committed sooner as one batch than one by one.
    pub(super) fn batch_is_quicker(&mut self, count: usize) -> bool {
        if count < 2 {
            return false;
        }
        let quicker = self.batch_us + count as f64 * MESSAGE_US < self.single_us * count as f64;
        if quicker {
            self.single_us *= FORGIVENESS;
        } else {
            self.batch_us *= FORGIVENESS;
        }
        quicker
    }
}

fn average(value: &mut f64, measured: f64) {
    *value += WEIGHT * (measured.clamp(1.0, MOST_US) - *value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_append_never_waits_for_a_batch() {
        assert!(!Cost::default().batch_is_quicker(1));
    }

    #[test]
    fn batches_are_used_only_where_they_were_measured_to_be_quicker() {
        let mut cost = Cost::default();
        for _ in 0..50 {
            cost.single_took(Duration::from_millis(2));
            cost.batch_took(100, Duration::from_millis(60));
        }
        assert!(!cost.batch_is_quicker(10) && cost.batch_is_quicker(100));
        for _ in 0..50 {
            cost.single_took(Duration::from_micros(100));
        }
        assert!(!cost.batch_is_quicker(100));
    }

    #[test]
    fn a_road_once_found_slow_is_tried_again() {
        let mut cost = Cost::default();
        cost.batch_took(10, Duration::from_secs(30));
        let tries = (1..10_000).find(|_| cost.batch_is_quicker(20));
        assert!(tries.is_some(), "batches were given up for ever");
    }
}
