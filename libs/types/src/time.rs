//! Instants: nanoseconds since 1970-01-01T00:00:00Z, written as RFC 3339 in UTC.

use crate::{Invalid, text_form::text_form};
use std::fmt;

const NANOS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// An instant in UTC, in nanoseconds since the epoch (years 1678 to 2262).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant this many nanoseconds after 1970-01-01T00:00:00Z.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The instant this many milliseconds after 1970-01-01T00:00:00Z (saturating).
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This instant and `millis` more (saturating).
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        let millis = if millis > i64::MAX as u64 { i64::MAX } else { millis as i64 };
        Self(self.0.saturating_add(millis.saturating_mul(1_000_000)))
    }

    /// Milliseconds from `earlier` to this, 0 when it is not earlier: clocks are wrong, durations are never negative.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        let nanos = self.0.saturating_sub(earlier.0);
        if nanos <= 0 { 0 } else { nanos as u64 / 1_000_000 }
    }

    /// Reads RFC 3339 with an explicit zone (`Z` or `+hh:mm`); a time without a zone is refused.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        read_rfc3339(text).ok_or_else(|| Invalid::new("time", text, "RFC 3339 with a zone, such as 2026-11-30T12:00:00Z"))
    }
}

/// Days since 1970-01-01 of a date in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a count of days since 1970-01-01, as (year, month, day); the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn read_rfc3339(text: &str) -> Option<Timestamp> {
    let number = |part: &str| -> Option<i64> {
        (!part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())).then(|| part.parse().ok()).flatten()
    };
    if !text.is_ascii() || text.len() < 20 {
        return None;
    }
    let bytes = text.as_bytes();
    let fixed = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if fixed.iter().any(|(at, byte)| bytes[*at] != *byte) || !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    let in_range = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month) && hour <= 23 && minute <= 59 && second <= 60;
    if !in_range {
        return None;
    }
    let mut rest = &text[19..];
    let mut nanos = 0i64;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || digits > 9 {
            return None;
        }
        nanos = number(&fraction[..digits])? * 10i64.pow(9 - digits as u32);
        rest = &fraction[digits..];
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = if rest.starts_with('+') {
                1
            } else if rest.starts_with('-') {
                -1
            } else {
                return None;
            };
            let (hours, minutes) = rest[1..].split_once(':')?;
            if hours.len() != 2 || minutes.len() != 2 {
                return None;
            }
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * (hours * 3_600 + minutes * 60)
        }
    };
    let seconds = days_from_civil(year, month, day) * DAY_SECONDS + hour * 3_600 + minute * 60 + second - offset;
    seconds.checked_mul(NANOS)?.checked_add(nanos).map(Timestamp)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(NANOS);
        let nanos = self.0.rem_euclid(NANOS);
        let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_SECONDS));
        let of_day = seconds.rem_euclid(DAY_SECONDS);
        // Every event carries one: one write of the whole text. The years that an instant can have (1678 to 2262) have four digits.
        let mut text = [0u8; 30];
        put(&mut text[..4], year);
        for (at, sign, number) in
            [(4, b'-', month), (7, b'-', day), (10, b'T', of_day / 3_600), (13, b':', of_day / 60 % 60), (16, b':', of_day % 60)]
        {
            text[at] = sign;
            put(&mut text[at + 1..at + 3], number);
        }
        let mut length = 19;
        if nanos != 0 {
            text[19] = b'.';
            put(&mut text[20..29], nanos);
            length = 29;
            while text[length - 1] == b'0' {
                length -= 1;
            }
        }
        text[length] = b'Z';
        f.write_str(std::str::from_utf8(&text[..=length]).map_err(|_| fmt::Error)?)
    }
}

/// Writes a number with leading zeros, as many digits as there is room for.
fn put(digits: &mut [u8], mut number: i64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

text_form!(Timestamp, None);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_read_and_print() {
        for (text, seconds) in [("1970-01-01T00:00:00Z", 0), ("2000-02-29T23:59:59Z", 951_868_799), ("1969-12-31T23:59:59Z", -1)] {
            assert_eq!(Timestamp::parse(text), Ok(Timestamp(seconds * NANOS)), "{text}");
            assert_eq!(Timestamp(seconds * NANOS).to_string(), text);
        }
        assert_eq!(Timestamp::parse("2026-11-30T13:00:00.5+01:00").map(|t| t.to_string()), Ok("2026-11-30T12:00:00.5Z".to_owned()));
    }

    #[test]
    fn naive_and_broken_times_are_refused() {
        for text in [
            "2026-11-30T12:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "yesterday",
            "2026-11-30T12:00:00.Z",
            "2026-11-30T25:00:00Z",
            "9999-01-01T00:00:00Z",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_never_negative() {
        let early = Timestamp::from_millis(1_000);
        assert_eq!(early.millis_since(early.plus_millis(5)), 0);
        assert_eq!(early.plus_millis(5).millis_since(early), 5);
    }

    #[test]
    fn days_and_dates_are_inverse_over_four_centuries() {
        for days in (-150_000..150_000).step_by(17) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
