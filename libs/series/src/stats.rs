//! What is known of a series without reading its points.

use crate::{Point, SeriesKey};

/// The latest point of a series and figures over all its points.
///
/// The latest point is the one with the highest step; of several with that step, the one that arrived last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesStats {
    /// The latest point.
    pub latest: Point,
    /// How many points are stored.
    pub count: u64,
    /// The lowest finite value; absent when no value is finite.
    pub min: Option<f64>,
    /// The highest finite value; absent when no value is finite.
    pub max: Option<f64>,
    /// How many values are NaN.
    pub nan_count: u64,
    /// How many values are infinite, of either sign.
    pub inf_count: u64,
    /// The lowest step.
    pub min_step: i64,
    /// The highest step.
    pub max_step: i64,
    /// The earliest time, in milliseconds since the epoch.
    pub min_time_ms: i64,
    /// The latest time, in milliseconds since the epoch.
    pub max_time_ms: i64,
}

impl SeriesStats {
    /// The figures of a series of one point.
    pub fn first(point: Point) -> Self {
        let mut stats = Self {
            latest: point,
            count: 0,
            min: None,
            max: None,
            nan_count: 0,
            inf_count: 0,
            min_step: point.step,
            max_step: point.step,
            min_time_ms: point.time_ms,
            max_time_ms: point.time_ms,
        };
        stats.add(point);
        stats
    }

    /// Adds the next point in order of arrival.
    pub fn add(&mut self, point: Point) {
        self.count += 1;
        if point.step >= self.latest.step {
            self.latest = point;
        }
        if point.value.is_finite() {
            self.min = Some(self.min.map_or(point.value, |min| min.min(point.value)));
            self.max = Some(self.max.map_or(point.value, |max| max.max(point.value)));
        } else if point.value.is_nan() {
            self.nan_count += 1;
        } else {
            self.inf_count += 1;
        }
        self.min_step = self.min_step.min(point.step);
        self.max_step = self.max_step.max(point.step);
        self.min_time_ms = self.min_time_ms.min(point.time_ms);
        self.max_time_ms = self.max_time_ms.max(point.time_ms);
    }

    /// Whether a point equal to this one could be among those counted, judged by the bounds alone.
    pub(crate) fn may_hold(&self, point: &Point) -> bool {
        (self.min_step..=self.max_step).contains(&point.step) && (self.min_time_ms..=self.max_time_ms).contains(&point.time_ms)
    }

    /// The figures of `points` in order of arrival; none of an empty series.
    pub fn of(points: &[Point]) -> Option<Self> {
        let (first, rest) = points.split_first()?;
        let mut stats = Self::first(*first);
        rest.iter().for_each(|point| stats.add(*point));
        Some(stats)
    }
}

/// A series and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSummary {
    /// Which series.
    pub key: SeriesKey,
    /// Its figures.
    pub stats: SeriesStats,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: i64, value: f64) -> Point {
        Point { step, time_ms: 10 * step, value }
    }

    #[test]
    fn the_latest_is_the_highest_step_and_of_equals_the_last_to_arrive() {
        let stats = SeriesStats::of(&[point(1, 1.0), point(9, 2.0), point(3, 3.0), point(9, 4.0)]).unwrap();
        assert_eq!(stats.latest, point(9, 4.0));
        assert_eq!((stats.count, stats.min, stats.max), (4, Some(1.0), Some(4.0)));
        assert_eq!((stats.min_step, stats.max_step), (1, 9));
    }

    #[test]
    fn nan_and_infinities_are_counted_apart_and_never_become_a_bound() {
        let stats = SeriesStats::of(&[point(0, f64::NAN), point(1, f64::INFINITY), point(2, f64::NEG_INFINITY)]).unwrap();
        assert_eq!((stats.nan_count, stats.inf_count, stats.min, stats.max), (1, 2, None, None));
        assert!(stats.latest.value.is_infinite());
    }
}
