//! Taints of nodes, and what jobs say to them: a taint keeps off every job that does not tolerate it.

use crate::{Invalid, text_form::text_form};
use std::fmt;

/// The longest key and the longest value of a taint, in bytes.
const WORD_MAX: usize = 63;

/// `key=value`, or a key alone.
fn parse(field: &'static str, text: &str) -> Result<(String, Option<String>), Invalid> {
    let refused = || {
        let words = "letters, digits, '.', '_', '/' or '-'";
        Invalid::new(
            field,
            text.chars().take(2 * WORD_MAX + 1).collect::<String>(),
            format!("key=value or a key alone, each 1 to {WORD_MAX} {words}"),
        )
    };
    let is_word = |word: &str| {
        (1..=WORD_MAX).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte))
    };
    let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
    let well_formed = is_word(key) && value.is_none_or(is_word);
    if well_formed { Ok((key.to_owned(), value.map(str::to_owned))) } else { Err(refused()) }
}

fn write(f: &mut fmt::Formatter<'_>, key: &str, value: Option<&String>) -> fmt::Result {
    match value {
        Some(value) => write!(f, "{key}={value}"),
        None => f.write_str(key),
    }
}

/// What keeps jobs off a node (`dedicated=vision`, or a key alone).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    key: String,
    value: Option<String>,
}

impl Taint {
    /// Reads and checks the text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        parse("taint", text).map(|(key, value)| Self { key, value })
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, &self.key, self.value.as_ref())
    }
}

text_form!(Taint, None);

/// Which taints a job does not mind: one (`dedicated=vision`), or by a key alone all with that key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    key: String,
    value: Option<String>,
}

impl Toleration {
    /// Reads and checks the text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        parse("toleration", text).map(|(key, value)| Self { key, value })
    }

    /// Whether it is about this taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.key == taint.key && (self.value.is_none() || self.value == taint.value)
    }
}

impl fmt::Display for Toleration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, &self.key, self.value.as_ref())
    }
}

text_form!(Toleration, None);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_key_alone_tolerates_all_values_and_a_value_only_its_own() {
        let tolerates = |toleration: &str, taint: &str| {
            let (toleration, taint) = (Toleration::parse(toleration), Taint::parse(taint));
            toleration.is_ok_and(|toleration| taint.is_ok_and(|taint| toleration.tolerates(&taint)))
        };
        assert!(tolerates("dedicated", "dedicated=vision") && tolerates("dedicated", "dedicated"));
        assert!(tolerates("dedicated=vision", "dedicated=vision"));
        assert!(!tolerates("dedicated=vision", "dedicated=speech") && !tolerates("dedicated=vision", "dedicated"));
        assert!(!tolerates("dedicate", "dedicated=vision") && !tolerates("other", "dedicated"));
    }

    #[test]
    fn a_taint_reads_back_and_a_malformed_one_is_refused() {
        for text in ["dedicated=vision", "example.com/gpu=a-b_c.1", "broken"] {
            assert_eq!(Taint::parse(text).map(|taint| taint.to_string()).as_deref(), Ok(text));
            assert_eq!(Toleration::parse(text).map(|toleration| toleration.to_string()).as_deref(), Ok(text));
        }
        let long = "x".repeat(64);
        for text in ["", "=", "a=", "=a", "a=b=c", "a b", " a", "ä", "a,b", &long, &format!("a={long}")] {
            assert!(Taint::parse(text).is_err() && Toleration::parse(text).is_err(), "{text}");
        }
    }
}
