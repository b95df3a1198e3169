//! The types a knob may have, each read from one line of text. Units are explicit: a bare number is never a duration or a size.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A type that a knob can have.
pub trait Value: Sized {
    /// What is accepted, as a sentence part.
    const ALLOWED: &'static str;

    /// Reads the value; `None` when the text is not one.
    fn parse(text: &str) -> Option<Self>;
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(pub u64);

impl Value for String {
    const ALLOWED: &'static str = "any text";

    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Value for PathBuf {
    const ALLOWED: &'static str = "a path";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }
}

impl Value for bool {
    const ALLOWED: &'static str = "true or false";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

macro_rules! whole_numbers {
    ($($type:ty => $allowed:literal),*) => {$(
        impl Value for $type {
            const ALLOWED: &'static str = $allowed;

            fn parse(text: &str) -> Option<Self> {
                text.replace('_', "").parse().ok()
            }
        }
    )*};
}
whole_numbers! {
    u16 => "a whole number from 0 to 65535",
    u32 => "a whole number from 0 to 4294967295",
    u64 => "a whole number of 0 or more",
    usize => "a whole number of 0 or more",
    i64 => "a whole number"
}

impl Value for f64 {
    const ALLOWED: &'static str = "a finite number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

impl Value for SocketAddr {
    const ALLOWED: &'static str = "an address and a port, such as 127.0.0.1:7450";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for Duration {
    const ALLOWED: &'static str = "a time with its unit: ms, s, m, h or d, such as 250ms";

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let millis_each: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        Some(Duration::from_millis(number.checked_mul(millis_each)?))
    }
}

impl Value for ByteCount {
    const ALLOWED: &'static str = "a size with its unit: B, KiB, MiB, GiB or TiB, such as 64MiB";

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let shift = match unit {
            "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return None,
        };
        number.checked_mul(1 << shift).map(ByteCount)
    }
}

/// Nothing when the text is empty.
impl<T: Value> Value for Option<T> {
    const ALLOWED: &'static str = T::ALLOWED;

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { T::parse(text).map(Some) }
    }
}

/// Separated by commas; an array in a file.
impl<T: Value> Value for Vec<T> {
    const ALLOWED: &'static str = T::ALLOWED;

    fn parse(text: &str) -> Option<Self> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(T::parse).collect()
    }
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
    let number = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_carry_their_unit() {
        assert_eq!(Duration::parse("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(Duration::parse("5 m"), Some(Duration::from_secs(300)));
        assert_eq!(Duration::parse("5"), None);
        assert_eq!(Duration::parse("-5s"), None);
        assert_eq!(Duration::parse("99999999999999999999d"), None);
        assert_eq!(ByteCount::parse("64MiB"), Some(ByteCount(64 << 20)));
        assert_eq!(ByteCount::parse("1MB"), None, "decimal units are not guessed at");
        assert_eq!(ByteCount::parse("18446744073709551615TiB"), None);
    }

    #[test]
    fn lists_and_absence_are_text_too() {
        assert_eq!(Vec::<u16>::parse("1, 2,3,"), Some(vec![1, 2, 3]));
        assert_eq!(Vec::<u16>::parse("1,x"), None);
        assert_eq!(Option::<u16>::parse(""), Some(None));
        assert_eq!(Option::<u16>::parse("7"), Some(Some(7)));
        assert_eq!(f64::parse("inf"), None);
    }
}
