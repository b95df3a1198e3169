//! What a single and a batch cost at this broker, as measured while they run.

use std::time::Duration;
use tokio::time::Instant;

/// The first guess of a single's cost: one sync of a common disk.
const SINGLE_GUESS_US: f64 = 3_000.0;
/// The first guess of a batch's fixed cost: about six such syncs.
const BATCH_GUESS_US: f64 = 20_000.0;
/// What a message adds to a batch.
const MESSAGE_US: f64 = 30.0;
/// The weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// After how long the cost of the road not taken counts half, so that it is tried again.
const FORGIVEN_IN: Duration = Duration::from_secs(10);
/// The most that one measurement may count for: a stall of the broker says nothing of the roads.
const MOST_US: f64 = 500_000.0;
/// A lone single that is answered within this was not synced to a common disk: most of it is the way there and back.
const QUICK_LONE_US: f64 = 1_000.0;
/// How many such singles under way at once cost as much as one.
const LONE_GAIN: f64 = 8.0;
/// Singles of this cost and less go many at once.
const QUICK_US: f64 = 500.0;
/// Singles that may be under way at once where each costs a sync; what comes beyond gathers into a batch.
const SINGLES_SYNCED: usize = 8;
/// Singles that may be under way at once where they are quick.
const SINGLES_QUICK: usize = 512;
/// After so many singles that did not go through nothing is learned from more of them.
const FAILED_MAX: u32 = 16;
/// Singles under way together are measured over so many landings, or over [`MEASURED_US`]: they land in bursts.
const MEASURED: u32 = 32;
/// See [`MEASURED`].
const MEASURED_US: f64 = 10_000.0;

/// Moving averages of both roads.
pub(super) struct Cost {
    /// A single that was alone under way; absent until measured.
    lone_us: Option<f64>,
    /// A single among others under way; absent until measured.
    single_us: Option<f64>,
    /// The same, forgiven while batches are used.
    single_forgiven_us: f64,
    batch_us: f64,
    /// Landings of singles since the last measurement, and their time.
    landings: (u32, f64),
    forgiven: Instant,
    /// Singles that did not go through, while none was measured.
    failed: u32,
}

impl Cost {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lone_us: None,
            single_us: None,
            single_forgiven_us: SINGLE_GUESS_US,
            batch_us: BATCH_GUESS_US,
            landings: (0, 0.0),
            forgiven: now,
            failed: 0,
        }
    }

    /// A single landed that was alone under way.
    pub(super) fn lone_single_took(&mut self, took: Duration) {
        let lone_us = self.lone_us.get_or_insert(micros(took));
        average(lone_us, micros(took));
        if self.single_us.is_none() {
            self.single_forgiven_us = if *lone_us < QUICK_LONE_US { *lone_us / LONE_GAIN } else { *lone_us };
        }
    }

    /// A single did not go through at the first try: that measures nothing.
    pub(super) fn single_failed(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// A single landed so long after the landing before it.
    pub(super) fn single_took(&mut self, took: Duration) {
        let (count, sum) = &mut self.landings;
        *count += 1;
        *sum += micros(took);
        if *count < MEASURED && *sum < MEASURED_US {
            return;
        }
        let each = *sum / f64::from(*count);
        self.landings = (0, 0.0);
        match &mut self.single_us {
            Some(single_us) => average(single_us, each),
            none => *none = Some(each),
        }
        self.single_forgiven_us = self.single_us.unwrap_or(each);
    }

    pub(super) fn batch_took(&mut self, size: usize, took: Duration) {
        average(&mut self.batch_us, micros(took) - size as f64 * MESSAGE_US);
    }

    /// How many singles may be under way at once.
    pub(super) fn singles_at_once(&self) -> usize {
        if self.single_us.unwrap_or(self.single_forgiven_us) < QUICK_US { SINGLES_QUICK } else { SINGLES_SYNCED }
    }

    /// Whether `count` appends are committed sooner as one batch than one by one. Singles go first until one was measured: a few of them
    /// tell whether this broker syncs each, a batch does not. Where they do not go through (an outage), what waits goes together.
    pub(super) fn batch_is_quicker(&mut self, count: usize, now: Instant) -> bool {
        let unmeasured = self.single_us.is_none() && self.lone_us.is_none() && self.failed < FAILED_MAX;
        if count < 2 || unmeasured {
            return false;
        }
        let quicker = self.batch_us + count as f64 * MESSAGE_US < self.single_forgiven_us * count as f64;
        let forgiven = 0.5_f64.powf(now.duration_since(self.forgiven).as_secs_f64() / FORGIVEN_IN.as_secs_f64());
        self.forgiven = now;
        if quicker {
            self.single_forgiven_us *= forgiven;
        } else {
            self.batch_us *= forgiven;
        }
        quicker
    }
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

fn average(value: &mut f64, measured: f64) {
    *value += WEIGHT * (measured.clamp(1.0, MOST_US) - *value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_lone_append_never_waits_for_a_batch() {
        let now = Instant::now();
        assert!(!Cost::new(now).batch_is_quicker(1, now));
    }

    #[test]
    fn batches_are_used_only_where_they_were_measured_to_be_quicker() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        for _ in 0..500 {
            cost.single_took(MS * 2);
            cost.batch_took(100, MS * 60);
        }
        assert!(!cost.batch_is_quicker(10, now) && cost.batch_is_quicker(100, now));
        assert_eq!(cost.singles_at_once(), SINGLES_SYNCED);
        for _ in 0..50 * MEASURED {
            cost.single_took(MS / 20);
        }
        assert!(!cost.batch_is_quicker(1_000, now));
        assert_eq!(cost.singles_at_once(), SINGLES_QUICK);
    }

    #[test]
    fn singles_that_are_answered_at_once_are_tried_many_at_a_time_before_a_batch() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        assert!(!cost.batch_is_quicker(1_000, now) && cost.singles_at_once() == SINGLES_SYNCED);
        (0..50).for_each(|_| cost.lone_single_took(MS / 4));
        assert!(!cost.batch_is_quicker(1_000, now) && cost.singles_at_once() == SINGLES_QUICK);
        // They turn out to be slow together: no more of that.
        (0..500).for_each(|_| cost.single_took(MS * 2));
        assert!(cost.batch_is_quicker(1_000, now) && cost.singles_at_once() == SINGLES_SYNCED);
    }

    #[test]
    fn in_an_outage_what_waits_goes_together() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        (0..FAILED_MAX).for_each(|_| cost.single_failed());
        assert!(cost.batch_is_quicker(1_000, now));
    }

    #[test]
    fn a_road_once_found_slow_is_tried_again_but_not_soon() {
        let mut now = Instant::now();
        let mut cost = Cost::new(now);
        (0..50).for_each(|_| cost.single_took(MS));
        cost.batch_took(10, Duration::from_secs(30));
        let mut tried = 0;
        for _ in 0..60 {
            now += Duration::from_secs(1);
            tried += u32::from((0..1_000).any(|_| cost.batch_is_quicker(50, now)));
        }
        assert!((1..60).contains(&tried), "tried in {tried} of 60 seconds");
    }
}
