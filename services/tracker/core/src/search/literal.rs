//! Values: what a query writes and what a run has.

use super::scan::Word;
use footplate_events::facts::ParamValue;
use footplate_types::{Millis, Timestamp};
use std::cmp::Ordering;

/// A value of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// An instant.
    Time(Timestamp),
    /// A length of time, in milliseconds.
    Span(u64),
}

/// A value as the query wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A quoted text.
    Text(String),
    /// A bare word: what it means depends on what it is compared with.
    Word(String),
}

impl Literal {
    pub(super) fn of(word: Word) -> Self {
        if word.quoted { Self::Text(word.text) } else { Self::Word(word.text) }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Word(text) => text,
        }
    }

    /// An instant: RFC 3339, `now`, `now-90s`, `now+1h`.
    pub(super) fn as_time(&self, now: Timestamp) -> Option<Timestamp> {
        let text = self.text();
        if let Ok(time) = Timestamp::parse(text) {
            return Some(time);
        }
        let rest = text.strip_prefix("now")?;
        if rest.is_empty() {
            return Some(now);
        }
        let (sign, span) = rest.split_at_checked(1)?;
        let span = Millis::parse(span).ok()?;
        match sign {
            "+" => Some(now.plus_millis(span.0)),
            "-" => {
                let nanos = i64::try_from(span.0).unwrap_or(i64::MAX).saturating_mul(1_000_000);
                Some(Timestamp::from_nanos(now.as_nanos().saturating_sub(nanos)))
            }
            _ => None,
        }
    }

    pub(super) fn as_span(&self) -> Option<u64> {
        Millis::parse(self.text()).ok().map(|span| span.0)
    }

    /// A number, when a bare word is one.
    pub(super) fn as_number(&self) -> Option<Value> {
        let Self::Word(text) = self else { return None };
        if let Ok(number) = text.parse::<i64>() {
            return Some(Value::Int(number));
        }
        let looks_numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
        text.parse::<f64>().ok().filter(|number| looks_numeric && number.is_finite()).map(Value::Float)
    }

    fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Word(word) if word == "true" => Some(true),
            Self::Word(word) if word == "false" => Some(false),
            Self::Word(_) | Self::Text(_) => None,
        }
    }
}

impl Value {
    /// The order of this value and a literal, in this value's own type; none when they cannot be compared.
    pub(super) fn compare(&self, literal: &Literal, now: Timestamp) -> Option<Ordering> {
        match self {
            Self::Bool(value) => literal.as_bool().map(|other| value.cmp(&other)),
            Self::Int(_) | Self::Float(_) => number_order(self, &literal.as_number()?),
            Self::Text(text) => Some(text.as_str().cmp(literal.text())),
            Self::Time(time) => literal.as_time(now).map(|other| time.cmp(&other)),
            Self::Span(span) => literal.as_span().map(|other| span.cmp(&other)),
        }
    }

    /// A text param is compared with quoted texts and with bare words that are not a number, a truth value or null: the text "3" is not
    /// the number 3.
    pub(super) fn compare_param(&self, literal: &Literal, now: Timestamp) -> Option<Ordering> {
        let other_type = literal.as_number().is_some() || literal.as_bool().is_some();
        if matches!(self, Self::Text(_)) && other_type { None } else { self.compare(literal, now) }
    }

    /// The order for sorting; values of different types sort by their type.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        number_order(self, other).unwrap_or_else(|| match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Time(one), Self::Time(other)) => one.cmp(other),
            (Self::Span(one), Self::Span(other)) => one.cmp(other),
            (one, other) => one.kind().cmp(&other.kind()),
        })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Float(_) => 1,
            Self::Span(_) => 2,
            Self::Time(_) => 3,
            Self::Text(_) => 4,
        }
    }

    /// The scalar that a param's value is; lists and sections have none, nor has null.
    pub(super) fn of_param(value: &ParamValue) -> Option<Self> {
        match value {
            ParamValue::Bool(value) => Some(Self::Bool(*value)),
            ParamValue::Int(value) => Some(Self::Int(*value)),
            ParamValue::Float(value) => Some(Self::Float(*value)),
            ParamValue::Text(value) => Some(Self::Text(value.clone())),
            ParamValue::List(_) | ParamValue::Map(_) | ParamValue::Null(()) => None,
        }
    }
}

/// The order of two numbers; whole ones exactly, beyond 2^53 too. A NaN has no order.
fn number_order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Some(one.cmp(other)),
        (Value::Int(one), Value::Float(other)) => (*one as f64).partial_cmp(other),
        (Value::Float(one), Value::Int(other)) => one.partial_cmp(&(*other as f64)),
        (Value::Float(one), Value::Float(other)) => one.partial_cmp(other),
        _ => None,
    }
}
