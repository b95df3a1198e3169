//! Clocks that are wrong: each machine's monotonic clock runs at its own rate from its own start, each wall clock says what it likes.

use crate::dice::Dice;

/// True time since the run began, in milliseconds. Nobody but the simulation knows it.
pub(crate) type Time = u64;

/// A machine's monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    began: Time,
    starts_at: u64,
    /// How much faster than true time it runs, in parts of a million; may be negative.
    ppm: i64,
    /// What its wall clock is off by, in milliseconds.
    pub(crate) wall_off: i64,
}

impl Clock {
    /// The largest drift, either way: 3 %. The margin before a fence covers it: (lease + kill) x 3 % on the node and (lease + kill +
    /// margin) x 3 % at the watcher are less than the margin.
    pub(crate) const DRIFT_PPM: u64 = 30_000;

    /// A clock that starts now, somewhere, at some rate.
    pub(crate) fn start(now: Time, dice: &mut Dice) -> Self {
        let ppm = dice.below(2 * Self::DRIFT_PPM + 1) as i64 - Self::DRIFT_PPM as i64;
        let wall_off = dice.below(7_200_000) as i64 - 3_600_000;
        Self { began: now, starts_at: dice.below(10_000_000), ppm, wall_off }
    }

    /// What it shows.
    pub(crate) fn at(&self, now: Time) -> u64 {
        self.starts_at + (now.saturating_sub(self.began)) * (1_000_000 + self.ppm) as u64 / 1_000_000
    }

    /// The true time at which it shows `local`, never before `now`.
    pub(crate) fn when(&self, now: Time, local: u64) -> Time {
        let ran = local.saturating_sub(self.starts_at);
        let true_time = self.began + (ran * 1_000_000).div_ceil((1_000_000 + self.ppm) as u64);
        true_time.max(now)
    }

    /// How long `wait` of this clock lasts in truth.
    pub(crate) fn lasts(&self, wait: u64) -> Time {
        (wait * 1_000_000).div_ceil((1_000_000 + self.ppm) as u64)
    }

    /// The wall clock, in milliseconds since 1970.
    pub(crate) fn wall(&self, now: Time) -> i64 {
        crate::broker::EPOCH_MS + now as i64 + self.wall_off
    }
}
