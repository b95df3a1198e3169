//! The order of an answer: `` metrics.`val/acc` desc, created ``. What is absent comes last, either way.

use super::parser::parse_field;
use super::scan::Scanner;
use super::{Field, QueryError, Row};
use std::cmp::Ordering;

/// The most fields of an order.
const FIELDS_MAX: usize = 8;

/// One field of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// The field.
    pub field: Field,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// Reads an order; an empty text is no order.
pub fn parse_order(text: &str) -> Result<Vec<OrderBy>, QueryError> {
    let mut scan = Scanner::new(text)?;
    let mut order = Vec::new();
    if scan.is_end() {
        return Ok(order);
    }
    loop {
        let field = parse_field(&mut scan)?;
        let descending = scan.take_keyword("desc");
        if !descending {
            scan.take_keyword("asc");
        }
        order.push(OrderBy { field, descending });
        if order.len() > FIELDS_MAX {
            return Err(scan.error(format!("at most {FIELDS_MAX} fields")));
        }
        if scan.is_end() {
            return Ok(order);
        }
        if !scan.take(",") {
            return Err(scan.error("asc, desc, a comma, or the end"));
        }
    }
}

/// The order of two rows; equal when no field tells them apart. A NaN counts as absent.
pub fn compare(order: &[OrderBy], one: &impl Row, other: &impl Row) -> Ordering {
    for by in order {
        let value = |row: &dyn Fn(&Field) -> Option<super::Value>| {
            row(&by.field).filter(|value| !matches!(value, super::Value::Float(number) if number.is_nan()))
        };
        let (a, b) = (value(&|field| one.value(field)), value(&|field| other.value(field)));
        let found = match (a, b) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) if by.descending => b.order(&a),
            (Some(a), Some(b)) => a.order(&b),
        };
        if found.is_ne() {
            return found;
        }
    }
    Ordering::Equal
}
