//! Draws that are fixed by what they are for: the seed, the trial's number, the param's name. No draw moves another, whatever the order.

use footplate_events::facts::{Domain, ParamValue, Space, Values};
use footplate_types::{Digest, ParamKey, TrialNumber};

use crate::space::{exists, ordered, size, value_at};

/// A number in [0, 1), the same for the same arguments for ever.
fn uniform(seed: u64, trial: TrialNumber, name: &ParamKey) -> f64 {
    let mut bytes = b"footplate-draw/1".to_vec();
    bytes.extend(seed.to_be_bytes());
    bytes.extend(trial.0.to_be_bytes());
    bytes.extend(name.as_str().as_bytes());
    let digest = Digest::of(&bytes);
    let mut head = [0u8; 8];
    head.copy_from_slice(&digest.as_bytes()[..8]);
    (u64::from_be_bytes(head) >> 11) as f64 / (1u64 << 53) as f64
}

/// The random point of a trial.
pub(crate) fn point(space: &Space, seed: u64, trial: TrialNumber) -> Values {
    let mut values = Values::new();
    for parameter in ordered(space) {
        if exists(parameter, &values) {
            let value = value(&parameter.domain, uniform(seed, trial, &parameter.name));
            values.insert(parameter.name.clone(), value);
        }
    }
    values
}

/// The value of a domain at `u` of [0, 1).
fn value(domain: &Domain, u: f64) -> ParamValue {
    let between = |low: f64, high: f64| low + u * (high - low);
    match domain {
        Domain::Float { low, high, log: true, .. } => ParamValue::Float(between(low.ln(), high.ln()).exp().clamp(*low, *high)),
        Domain::Float { low, high, step: None, .. } => ParamValue::Float(halves(*low, *high, u).clamp(*low, *high)),
        Domain::Int { low, high, log: true, .. } => {
            // Half a number more on either side, so that the ends are as likely as their neighbours.
            let drawn = between((*low as f64 - 0.5).ln(), (*high as f64 + 0.5).ln()).exp().round();
            ParamValue::Int((drawn as i64).clamp(*low, *high))
        }
        Domain::Float { .. } | Domain::Int { .. } | Domain::Categorical { .. } => {
            let count = size(domain).unwrap_or(1);
            value_at(domain, ((u * count as f64) as u64).min(count.saturating_sub(1)))
        }
    }
}

/// `low` to `high` at `u`, without an overflow where the range is wider than the largest number.
fn halves(low: f64, high: f64, u: f64) -> f64 {
    low * (1.0 - u) + high * u
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_the_same_for_ever() {
        let name = ParamKey::parse("lr").unwrap();
        let first = uniform(7, TrialNumber(1), &name);
        assert_eq!(first, uniform(7, TrialNumber(1), &name));
        assert!((0.0..1.0).contains(&first));
        assert_ne!(first, uniform(8, TrialNumber(1), &name));
        assert_ne!(first, uniform(7, TrialNumber(2), &name));
    }

    #[test]
    fn draws_are_even_over_the_scale_that_was_asked_for() {
        let log = Domain::Float { low: 1e-4, high: 1.0, log: true, step: None };
        let int = Domain::Int { low: 1, high: 4, log: false, step: None };
        let name = ParamKey::parse("x").unwrap();
        let (mut below, mut counts) = (0, [0u32; 4]);
        for n in 1..=4_000 {
            let u = uniform(3, TrialNumber(n), &name);
            if let ParamValue::Float(value) = value(&log, u) {
                below += u32::from(value < 1e-2);
            }
            if let ParamValue::Int(value) = value(&int, u) {
                counts[value as usize - 1] += 1;
            }
        }
        assert!((1_850..=2_150).contains(&below), "{below}");
        assert!(counts.iter().all(|count| (900..=1_100).contains(count)), "{counts:?}");
    }
}
