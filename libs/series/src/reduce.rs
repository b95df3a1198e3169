//! Fewer points that still show the shape: first, last, extremes, and the extremes of every stretch between.

use crate::{Point, SeriesStats};

/// The smallest sample: first, last, lowest, highest and the first value that is not finite must fit.
pub const MIN_SAMPLE_POINTS: usize = 5;

/// A reduced series, which says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The chosen points, in the order of arrival.
    pub points: Vec<Point>,
    /// Whether points were left out.
    pub reduced: bool,
    /// How many points the series has.
    pub count: u64,
    /// Figures over all of them; absent for an empty series.
    pub stats: Option<SeriesStats>,
}

/// At most `max_points` of `points` (never fewer than [`MIN_SAMPLE_POINTS`] are allowed), in order.
///
/// All of them when they fit. Otherwise the first, the last, the first lowest and the first highest finite value, the first value that is
/// not finite, and as many as still fit of the lowest and highest of equal stretches of the rest. Nothing is drawn by chance: equal points
/// give an equal sample.
pub fn reduce(points: &[Point], max_points: usize) -> Sample {
    let most = max_points.max(MIN_SAMPLE_POINTS);
    let stats = SeriesStats::of(points);
    let count = points.len() as u64;
    if points.len() <= most {
        return Sample { points: points.to_vec(), reduced: false, count, stats };
    }
    let mut chosen = vec![false; points.len()];
    let mut taken = 0;
    let mut take = |at: usize| {
        if taken < most && !chosen[at] {
            chosen[at] = true;
            taken += 1;
        }
    };
    take(0);
    take(points.len() - 1);
    for at in extremes(points, 0) {
        take(at);
    }
    if let Some(at) = points.iter().position(|point| !point.value.is_finite()) {
        take(at);
    }
    let stretches = (most - MIN_SAMPLE_POINTS) / 2;
    for stretch in 0..stretches {
        let (from, to) = (stretch * points.len() / stretches, (stretch + 1) * points.len() / stretches);
        for at in extremes(&points[from..to], from) {
            take(at);
        }
    }
    let points = points.iter().zip(&chosen).filter(|(_, chosen)| **chosen).map(|(point, _)| *point).collect();
    Sample { points, reduced: true, count, stats }
}

/// Where the first lowest and the first highest finite value stand (`base` added); the first point of all when none is finite.
fn extremes(points: &[Point], base: usize) -> Vec<usize> {
    let mut bounds: Option<(usize, usize)> = None;
    for (at, point) in points.iter().enumerate().filter(|(_, point)| point.value.is_finite()) {
        let (low, high) = bounds.get_or_insert((at, at));
        if point.value < points[*low].value {
            *low = at;
        }
        if point.value > points[*high].value {
            *high = at;
        }
    }
    match bounds {
        Some((low, high)) => vec![base + low, base + high],
        None if points.is_empty() => Vec::new(),
        None => vec![base],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(values: &[f64]) -> Vec<Point> {
        values.iter().enumerate().map(|(at, value)| Point { step: at as i64, time_ms: at as i64, value: *value }).collect()
    }

    #[test]
    fn a_spike_survives_and_the_true_count_is_told() {
        let mut values = vec![1.0; 20_000];
        values[13_337] = 99.0;
        let sample = reduce(&series(&values), 100);
        assert!(sample.reduced && sample.points.len() <= 100);
        assert_eq!(sample.count, 20_000);
        assert!(sample.points.iter().any(|point| point.step == 13_337));
    }

    #[test]
    fn where_a_series_went_nan_stays_visible() {
        let mut values: Vec<f64> = (0..1_000).map(f64::from).collect();
        values[500..].fill(f64::NAN);
        let sample = reduce(&series(&values), 5);
        assert!(sample.points.iter().any(|point| point.step == 500));
        assert_eq!(sample.points.len(), 5.min(sample.points.len()));
    }

    proptest! {
        #[test]
        fn a_sample_keeps_first_last_and_extremes_in_order_and_within_its_bound(
            values in proptest::collection::vec(prop_oneof![4 => -1e3..1e3f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)], 0..400),
            most in 0usize..60,
        ) {
            let points = series(&values);
            let sample = reduce(&points, most);
            prop_assert_eq!(&sample, &reduce(&points, most));
            prop_assert!(sample.points.len() <= most.max(MIN_SAMPLE_POINTS));
            prop_assert_eq!(sample.reduced, sample.points.len() < points.len());
            prop_assert_eq!(sample.points.first(), points.first());
            prop_assert_eq!(sample.points.last(), points.last());
            prop_assert!(sample.points.windows(2).all(|pair| pair[0].step < pair[1].step));
            if let Some(stats) = SeriesStats::of(&points) {
                for bound in [stats.min, stats.max].into_iter().flatten() {
                    prop_assert!(sample.points.iter().any(|point| point.value == bound));
                }
            }
        }
    }
}
