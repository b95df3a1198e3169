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
/// A batch is taken when it costs at most this share of the singles: it keeps all waiting for the slowest, and what both cost is only known
/// roughly on a busy machine.
const CLEARLY: f64 = 0.5;
/// After how long the cost of the road not taken counts half, so that it is tried again.
const FORGIVEN_IN: Duration = Duration::from_secs(2);
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
const SINGLES_QUICK: usize = 1_000;
/// After so many singles that did not go through nothing is learned from more of them.
const FAILED_MAX: u32 = 16;
/// Singles under way together are measured over so many landings, or over [`MEASURED_US`]: they land in bursts, and a busy machine stalls them.
const MEASURED: u32 = 512;
/// See [`MEASURED`].
const MEASURED_US: f64 = 20_000.0;

/// A single that took so many times as long as the fastest one stood in line at the broker. Only then, or when no more may be under way at
/// once, does the pause between two landings tell what one costs, and not how often somebody came.
const IN_LINE: f64 = 3.0;

/// What one road costs.
struct Road {
    /// A moving average; absent until measured.
    measured_us: Option<f64>,
    /// What is decided by: the average, or a guess before there is one; forgiven while the other road is taken, so that this one is tried
    /// again. A measurement ends the forgiveness at once.
    us: f64,
}

impl Road {
    fn guessed(us: f64) -> Self {
        Self { measured_us: None, us }
    }

    fn took(&mut self, us: f64) {
        let us = us.clamp(1.0, MOST_US);
        let average = self.measured_us.map_or(us, |average| average + WEIGHT * (us - average));
        self.measured_us = Some(average);
        self.us = average;
    }
}

/// Both roads.
pub(super) struct Cost {
    /// A single that was alone under way.
    lone: Road,
    /// A single among others under way.
    single: Road,
    /// A batch without what each message adds.
    batch: Road,
    /// Whether singles are answered quickly: then many go at once, and what a few at once cost says nothing of that.
    quick: bool,
    /// The fastest single so far.
    fastest_us: f64,
    /// Landings of singles since the last measurement, and their time.
    landings: (u32, f64),
    forgiven: Instant,
    /// Singles that did not go through, while none was measured.
    failed: u32,
}

impl Cost {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lone: Road::guessed(SINGLE_GUESS_US),
            single: Road::guessed(SINGLE_GUESS_US),
            batch: Road::guessed(BATCH_GUESS_US),
            quick: false,
            fastest_us: f64::INFINITY,
            landings: (0, 0.0),
            forgiven: now,
            failed: 0,
        }
    }

    /// A single landed that was alone under way.
    pub(super) fn lone_single_took(&mut self, took: Duration) {
        self.fastest_us = self.fastest_us.min(micros(took));
        self.lone.took(micros(took));
        if self.single.measured_us.is_none() {
            self.quick = self.lone.us < QUICK_LONE_US;
            self.single.us = if self.quick { self.lone.us / LONE_GAIN } else { self.lone.us };
        }
    }

    /// A single did not go through at the first try: that measures nothing.
    pub(super) fn single_failed(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// A single that went `underway` ago landed so long after the landing before it; `full` when no more were let under way.
    pub(super) fn single_took(&mut self, took: Duration, underway: Duration, full: bool) {
        self.fastest_us = self.fastest_us.min(micros(underway));
        if !full && micros(underway) < IN_LINE * self.fastest_us {
            return;
        }
        let (count, sum) = &mut self.landings;
        *count += 1;
        *sum += micros(took);
        if *count < MEASURED && *sum < MEASURED_US {
            return;
        }
        let each = *sum / f64::from(*count);
        self.landings = (0, 0.0);
        if !self.quick && each < QUICK_US {
            self.quick = true;
            self.single = Road::guessed(each / LONE_GAIN);
            return;
        }
        self.single.took(each);
        self.quick &= self.single.us < QUICK_US;
    }

    pub(super) fn batch_took(&mut self, size: usize, took: Duration) {
        self.batch.took(micros(took) - size as f64 * MESSAGE_US);
    }

    /// How many singles may be under way at once.
    pub(super) fn singles_at_once(&self) -> usize {
        if self.quick { SINGLES_QUICK } else { SINGLES_SYNCED }
    }

    /// Whether `count` appends are committed sooner as one batch than one by one. Singles go first until one was measured, and where they are
    /// quick, until many at once were: a few of them tell whether this broker syncs each, a batch does not. Where they do not go through (an
    /// outage), what waits goes together.
    pub(super) fn batch_is_quicker(&mut self, count: usize, now: Instant) -> bool {
        let first_look = self.quick || self.lone.measured_us.is_none();
        let unmeasured = self.single.measured_us.is_none() && first_look && self.failed < FAILED_MAX;
        if count < 2 || unmeasured {
            return false;
        }
        let quicker = self.batch.us + count as f64 * MESSAGE_US < self.single.us * count as f64 * CLEARLY;
        let forgiven = 0.5_f64.powf(now.duration_since(self.forgiven).as_secs_f64() / FORGIVEN_IN.as_secs_f64());
        self.forgiven = now;
        if quicker {
            self.single.us *= forgiven;
        } else {
            self.batch.us *= forgiven;
        }
        quicker
    }
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
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
        cost.lone_single_took(MS * 2);
        for _ in 0..500 {
            cost.single_took(MS * 2, MS * 100, false);
            cost.batch_took(100, MS * 60);
        }
        assert!(!cost.batch_is_quicker(10, now) && cost.batch_is_quicker(100, now));
        assert_eq!(cost.singles_at_once(), SINGLES_SYNCED);
        for _ in 0..50 * MEASURED {
            cost.single_took(MS / 20, MS * 100, false);
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
        (0..500).for_each(|_| cost.single_took(MS * 2, MS * 100, false));
        assert!(cost.batch_is_quicker(1_000, now) && cost.singles_at_once() == SINGLES_SYNCED);
    }

    #[test]
    fn a_few_singles_at_once_do_not_speak_for_many_where_they_are_quick() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        // One that took a sync's time, then a few at once on what turns out to be quick: many at once come before a batch.
        cost.lone_single_took(MS * 2);
        (0..160).for_each(|_| cost.single_took(MS / 8, MS * 10, false));
        assert!(cost.singles_at_once() == SINGLES_QUICK && !cost.batch_is_quicker(1_000, now));
    }

    #[test]
    fn landings_that_only_tell_how_often_somebody_came_are_not_measured() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        (0..50).for_each(|_| cost.lone_single_took(MS / 4));
        (0..10 * MEASURED).for_each(|_| cost.single_took(MS * 2, MS / 3, false));
        assert!(cost.singles_at_once() == SINGLES_QUICK && !cost.batch_is_quicker(1_000, now));
    }

    #[test]
    fn a_broker_that_is_far_away_is_measured_by_what_may_be_under_way_at_once() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        (0..100).for_each(|_| cost.single_took(MS * 3, MS * 20, true));
        assert!(cost.singles_at_once() == SINGLES_SYNCED && cost.batch_is_quicker(60, now));
    }

    #[test]
    fn a_batch_that_costs_about_the_same_is_not_worth_waiting_for() {
        let now = Instant::now();
        let mut cost = Cost::new(now);
        (0..50).for_each(|_| cost.lone_single_took(MS / 4));
        (0..50 * MEASURED).for_each(|_| cost.single_took(MS / 12, MS * 10, false));
        cost.batch_took(1_000, MS * 60);
        assert!(!cost.batch_is_quicker(1_000, now));
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
        cost.lone_single_took(MS);
        (0..50).for_each(|_| cost.single_took(MS, MS * 100, false));
        cost.batch_took(10, Duration::from_secs(30));
        let mut tried = 0;
        for _ in 0..60 {
            now += Duration::from_secs(1);
            tried += u32::from((0..1_000).any(|_| cost.batch_is_quicker(50, now)));
        }
        assert!((1..60).contains(&tried), "tried in {tried} of 60 seconds");
    }
}
