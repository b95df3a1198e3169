//! Quantities as people write them in a job file: text with an explicit unit, never a bare number.

use footplate_types::{ByteSize, Millis, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, fmt, marker::PhantomData};

/// A value that is read from text with a unit.
trait WithUnit: Sized {
    /// What is accepted, for a person.
    const ACCEPTED: &'static str;
    /// A unit that makes sense of a bare number.
    const LIKELY_UNIT: &'static str;
    fn read(text: &str) -> Result<Self, footplate_types::Invalid>;
}

struct UnitVisitor<T>(PhantomData<T>);

impl<T: WithUnit> de::Visitor<'_> for UnitVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::ACCEPTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(|refused| E::custom(format!("{:?} is not {}", refused.value, refused.allowed)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        Err(E::custom(format!("{number} has no unit; write {number}{} if that is meant", T::LIKELY_UNIT)))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Err(E::custom(format!("{number} has no unit, and only whole numbers are taken")))
    }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $accepted:literal, $likely:literal, $pattern:literal, $read:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl WithUnit for $name {
            const ACCEPTED: &'static str = $accepted;
            const LIKELY_UNIT: &'static str = $likely;
            fn read(text: &str) -> Result<Self, footplate_types::Invalid> {
                let read: fn(&str) -> Result<$inner, footplate_types::Invalid> = $read;
                read(text).map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(UnitVisitor(PhantomData))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

quantity! {
    /// A size in bytes, such as `800GiB`.
    Size(ByteSize), "a size with a unit, such as 800GiB", "GiB", "^[0-9]+ ?(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$", ByteSize::parse
}
quantity! {
    /// A length of time, such as `90s` or `1h30m`.
    Span(Millis), "a duration with a unit, such as 90s or 1h30m", "s", "^([0-9]+(ms|s|m|h|d))+$", Millis::parse
}
quantity! {
    /// The least memory of a GPU, such as `80GB` or `>=80GB`.
    AtLeast(ByteSize), "a size with a unit, such as 80GB or >=80GB", "GB", "^(>= ?)?[0-9]+ ?(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$",
    |text| ByteSize::parse(text.trim_start_matches(">="))
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for AtLeast {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!(">={}", self.0))
    }
}

/// A time of day, or how long after the submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// A time of day (`2026-12-24T18:00:00Z`).
    At(Timestamp),
    /// So long after the submission (`6h`).
    In(Millis),
}

impl Deadline {
    const ACCEPTED: &'static str = "a duration with a unit, such as 6h, or a time with a zone, such as 2026-12-24T18:00:00Z";

    /// The time of day, for a submission at `now`.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::In(length) => now.plus_millis(length.0),
        }
    }
}

impl<'de> Deserialize<'de> for Deadline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let length = Millis::parse(&text).map(Self::In);
        length
            .or_else(|_| Timestamp::parse(&text).map(Self::At))
            .map_err(|_| de::Error::custom(format!("{text:?} is not {}", Self::ACCEPTED)))
    }
}

impl Serialize for Deadline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::At(time) => serializer.collect_str(time),
            Self::In(length) => serializer.collect_str(length),
        }
    }
}

impl JsonSchema for Deadline {
    fn schema_name() -> Cow<'static, str> {
        "Deadline".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(([0-9]+(ms|s|m|h|d))+|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+)$" })
    }
}

/// The waits between retries: the first, and the longest (`30s..10m`), or one length for both ends (`30s`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the first retry.
    pub first: Millis,
    /// The longest, after doubling.
    pub longest: Millis,
}

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (first, longest) = text.split_once("..").unwrap_or((&text, &text));
        let read = |part: &str| {
            Millis::parse(part)
                .map_err(|refused| de::Error::custom(format!("{:?} is not {}; a range is written 30s..10m", part, refused.allowed)))
        };
        let (first, longest) = (read(first)?, read(longest)?);
        if first > longest {
            return Err(de::Error::custom(format!("{first} is longer than {longest}; the shorter wait comes first")));
        }
        Ok(Self { first, longest })
    }
}

impl Serialize for Backoff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}..{}", self.first, self.longest))
    }
}

impl JsonSchema for Backoff {
    fn schema_name() -> Cow<'static, str> {
        "Backoff".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+(\\.\\.([0-9]+(ms|s|m|h|d))+)?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bare_number_is_told_to_take_a_unit() {
        let told = serde_json::from_value::<Size>(json!(800)).unwrap_err().to_string();
        assert!(told.contains("800GiB"), "{told}");
        assert!(serde_json::from_value::<Span>(json!(5)).unwrap_err().to_string().contains("5s"));
        assert_eq!(serde_json::from_value::<Span>(json!("5m")).unwrap().0, Millis(300_000));
        assert_eq!(serde_json::from_value::<AtLeast>(json!(">=80GB")).unwrap().0, ByteSize(80_000_000_000));
    }

    #[test]
    fn a_backoff_is_a_range_or_one_length() {
        let read = |text: &str| serde_json::from_value::<Backoff>(json!(text));
        assert_eq!(read("30s..10m").unwrap(), Backoff { first: Millis(30_000), longest: Millis(600_000) });
        assert_eq!(read("5s").unwrap(), Backoff { first: Millis(5_000), longest: Millis(5_000) });
        assert!(read("10m..30s").is_err() && read("30").is_err());
    }
}
