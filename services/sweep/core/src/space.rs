//! The order of a space's params, and which of them exist in a point.

use footplate_events::facts::{Domain, ParamValue, Parameter, Space, Values};
use std::collections::BTreeSet;

/// The params in an order in which each comes after those that its conditions name; otherwise as declared. Params of a cycle are left out:
/// [`crate::check`] refuses such a space.
pub(crate) fn ordered(space: &Space) -> Vec<&Parameter> {
    let mut order: Vec<&Parameter> = Vec::with_capacity(space.0.len());
    let mut placed = BTreeSet::new();
    while let Some(next) = space
        .0
        .iter()
        .find(|parameter| !placed.contains(&parameter.name) && parameter.when.iter().all(|condition| placed.contains(&condition.parameter)))
    {
        placed.insert(next.name.clone());
        order.push(next);
    }
    order
}

/// Whether two values are the same: whole numbers and numbers with a fraction are compared as numbers.
pub(crate) fn same(one: &ParamValue, other: &ParamValue) -> bool {
    match (one, other) {
        (ParamValue::Int(whole), ParamValue::Float(number)) | (ParamValue::Float(number), ParamValue::Int(whole)) => {
            *whole as f64 == *number
        }
        _ => one == other,
    }
}

/// Whether a param exists in a point of which the params before it are known.
pub(crate) fn exists(parameter: &Parameter, values: &Values) -> bool {
    parameter.when.iter().all(|condition| {
        let value = values.get(&condition.parameter);
        value.is_some_and(|value| condition.one_of.iter().any(|allowed| same(allowed, value)))
    })
}

/// How many values a domain has; `None` for one that is not finite.
pub(crate) fn size(domain: &Domain) -> Option<u64> {
    match domain {
        Domain::Float { low, high, .. } if low == high => Some(1),
        Domain::Float { low, high, step, .. } => {
            // A step that divides the range up to rounding reaches its end.
            step.map(|step| ((high - low) / step + 1e-9).floor().min(u64::MAX as f64) as u64).map(|steps| steps.saturating_add(1))
        }
        Domain::Int { low, high, step, .. } => {
            let steps = (i128::from(*high) - i128::from(*low)) / i128::from(step.unwrap_or(1).max(1));
            Some(u64::try_from(steps).unwrap_or(0).saturating_add(1))
        }
        Domain::Categorical { choices } => Some(choices.len() as u64),
    }
}

/// The value at a place of a finite domain, from 0; its last one beyond the end.
pub(crate) fn value_at(domain: &Domain, place: u64) -> ParamValue {
    match domain {
        Domain::Float { low, high, step, .. } => ParamValue::Float((low + step.unwrap_or(0.0) * place as f64).min(*high)),
        Domain::Int { low, high, step, .. } => {
            let value = i128::from(*low) + i128::from(place) * i128::from(step.unwrap_or(1));
            ParamValue::Int(i64::try_from(value).unwrap_or(*high).min(*high))
        }
        Domain::Categorical { choices } => {
            let last = choices.len().saturating_sub(1);
            choices.get(usize::try_from(place).unwrap_or(last).min(last)).cloned().unwrap_or(ParamValue::Null(()))
        }
    }
}

/// The place of a value in a finite domain.
pub(crate) fn place_of(domain: &Domain, value: &ParamValue) -> Option<u64> {
    match (domain, value) {
        (Domain::Float { low, step, .. }, ParamValue::Float(value)) => {
            Some(step.map_or(0, |step| ((value - low) / step).round().max(0.0) as u64))
        }
        (Domain::Int { low, step, .. }, ParamValue::Int(value)) => {
            u64::try_from((i128::from(*value) - i128::from(*low)) / i128::from(step.unwrap_or(1).max(1))).ok()
        }
        (Domain::Categorical { choices }, value) => choices.iter().position(|choice| same(choice, value)).map(|place| place as u64),
        _ => None,
    }
}

/// A point with every param that may ever exist in it, whatever its conditions say: to try whether a config can take them all.
pub fn sample_point(space: &Space) -> Values {
    space.0.iter().map(|parameter| (parameter.name.clone(), value_at(&parameter.domain, 0))).collect()
}
