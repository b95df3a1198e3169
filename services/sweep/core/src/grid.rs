//! Grids: every point of a finite space once, in the order of its params, the last one fastest. The next point follows from the one before,
//! so nothing is counted or remembered.

use crate::space::{exists, ordered, place_of, size, value_at};
use footplate_events::facts::{Parameter, Space, Values};
use footplate_types::Invalid;

/// The most points of a grid.
pub const GRID_POINTS_MAX: u64 = 100_000;

/// The point after `previous`, or the first; `None` after the last.
pub(crate) fn next_point(space: &Space, previous: Option<&Values>) -> Option<Values> {
    next_in(&ordered(space), previous)
}

fn next_in(order: &[&Parameter], previous: Option<&Values>) -> Option<Values> {
    let Some(previous) = previous else { return Some(filled(order, Values::new())) };
    for (at, parameter) in order.iter().enumerate().rev() {
        let Some(value) = previous.get(&parameter.name) else { continue };
        let next = place_of(&parameter.domain, value)? + 1;
        if next < size(&parameter.domain)? {
            let kept = &order[..at];
            let mut values: Values = previous.clone();
            values.retain(|name, _| kept.iter().any(|known| known.name == *name));
            values.insert(parameter.name.clone(), value_at(&parameter.domain, next));
            return Some(filled(&order[at + 1..], values));
        }
    }
    None
}

/// The first values of the params that exist in the point that has begun.
fn filled(rest: &[&Parameter], mut values: Values) -> Values {
    for parameter in rest {
        if exists(parameter, &values) {
            values.insert(parameter.name.clone(), value_at(&parameter.domain, 0));
        }
    }
    values
}

/// How many points a checked space has as a grid.
pub(crate) fn points(space: &Space) -> Result<u64, Invalid> {
    let too_many = |told: String| {
        let allowed = format!("a grid of at most {GRID_POINTS_MAX} points: larger steps, fewer choices, or the random sampler");
        Invalid::new("space", told, allowed)
    };
    let mut product: u64 = 1;
    for parameter in &space.0 {
        let Some(count) = size(&parameter.domain) else {
            let allowed = "a step, since a grid needs every value named; or the random sampler";
            return Err(Invalid::new(format!("space.{}.step", parameter.name), "nothing", allowed));
        };
        product = product.saturating_mul(count);
    }
    if space.0.iter().all(|parameter| parameter.when.is_empty()) {
        return if product <= GRID_POINTS_MAX { Ok(product) } else { Err(too_many(format!("{product} points"))) };
    }
    let order = ordered(space);
    let mut count = 0;
    let mut point = next_in(&order, None);
    while let Some(known) = point {
        count += 1;
        if count > GRID_POINTS_MAX {
            return Err(too_many(format!("more than {GRID_POINTS_MAX} points")));
        }
        point = next_in(&order, Some(&known));
    }
    Ok(count)
}
