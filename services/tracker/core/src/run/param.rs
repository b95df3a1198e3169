//! A param and its older values.

use footplate_events::facts::ParamValue;
use footplate_types::{AttemptNumber, Rank};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// How many older values of a param stay visible; still older ones are in the ledger alone.
pub const EARLIER_MAX: usize = 16;

/// A param as it stands now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// The attempt that logged it; 0 for clients and the job's config.
    pub attempt: AttemptNumber,
    /// The worker's rank.
    pub rank: Rank,
    /// Its value.
    pub value: ParamValue,
    /// Earlier values, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<(AttemptNumber, ParamValue)>,
}

impl Param {
    /// A param logged for the first time.
    pub(super) fn first(attempt: AttemptNumber, rank: Rank, value: ParamValue) -> Self {
        Self { attempt, rank, value, earlier: Vec::new() }
    }

    /// Logs it again. An equal value changes nothing, so that a script that attaches again keeps its config. A word of a client, or of the
    /// same or a later attempt, becomes the value; one of an earlier attempt that came late, or of a higher rank of the same attempt, is
    /// kept among the earlier ones.
    pub(super) fn log_again(&mut self, attempt: AttemptNumber, rank: Rank, value: ParamValue) {
        if same(&self.value, &value) {
            return;
        }
        let by_client = attempt == AttemptNumber(0);
        let takes_over = by_client || attempt > self.attempt || (attempt == self.attempt && rank <= self.rank);
        let older = if takes_over {
            let older = (self.attempt, std::mem::replace(&mut self.value, value));
            self.attempt = attempt;
            self.rank = rank;
            older
        } else {
            (attempt, value)
        };
        if !takes_over && self.earlier.iter().any(|(known, value)| *known == older.0 && same(value, &older.1)) {
            return;
        }
        self.earlier.insert(0, older);
        self.earlier.truncate(EARLIER_MAX);
    }

    /// Whether logging `value` would change anything.
    pub(super) fn is_news(&self, attempt: AttemptNumber, rank: Rank, value: &ParamValue) -> bool {
        let mut copy = self.clone();
        copy.log_again(attempt, rank, value.clone());
        copy != *self
    }
}

/// Equal with its type kept: `3` is not `3.0`, and a float equals itself bit for bit.
pub(super) fn same(one: &ParamValue, other: &ParamValue) -> bool {
    match (one, other) {
        (ParamValue::Float(one), ParamValue::Float(other)) => one.to_bits() == other.to_bits(),
        (ParamValue::List(one), ParamValue::List(other)) => one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(a, b)),
        (ParamValue::Map(one), ParamValue::Map(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|((ka, a), (kb, b))| ka == kb && same(a, b))
        }
        _ => one == other,
    }
}

/// A param's value as JSON text with its type kept (`3.0` stays a float), keys in order: the form of records and of comparison.
pub fn param_text(value: &ParamValue) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &ParamValue) {
    match value {
        ParamValue::Null(()) => out.push_str("null"),
        ParamValue::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        ParamValue::Int(value) => {
            let _ = write!(out, "{value}");
        }
        ParamValue::Float(value) if value.is_finite() => {
            let _ = write!(out, "{value:?}");
        }
        ParamValue::Float(value) => write_text(
            out,
            if value.is_nan() {
                "NaN"
            } else if *value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            },
        ),
        ParamValue::Text(text) => write_text(out, text),
        ParamValue::List(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, value);
            }
            out.push(']');
        }
        ParamValue::Map(values) => {
            out.push('{');
            for (at, (key, value)) in values.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_text(out, key);
                out.push(':');
                write_value(out, value);
            }
            out.push('}');
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
