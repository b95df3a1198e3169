//! Times as people read them: how long ago, and how long.

use footplate_types::Timestamp;

/// How long ago `then` was, in one or two units (`5s`, `3m`, `2h5m`, `4d`); a time ahead of the clock is `now`.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.millis_since(then) / 1_000;
    if seconds == 0 { "now".to_owned() } else { length(seconds) }
}

/// A length of time in seconds, in one or two units.
pub fn length(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) if minutes < 10 => format!("{minutes}m{}s", seconds % 60),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) if days < 10 => format!("{days}d{hours}h"),
        (days, _, _) => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_units_that_matter() {
        for (seconds, text) in [(5, "5s"), (65, "1m5s"), (1_200, "20m"), (3_900, "1h5m"), (90_000, "1d1h"), (1_000_000, "11d")] {
            assert_eq!(length(seconds), text);
        }
    }

    #[test]
    fn a_clock_that_runs_behind_never_shows_a_negative_age() {
        assert_eq!(ago(Timestamp::from_millis(10_000), Timestamp::from_millis(0)), "now");
    }
}
