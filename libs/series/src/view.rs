//! Views over points that are in hand: attempts laid over each other, one point a step.

use crate::Point;
use footplate_types::AttemptNumber;
use std::collections::BTreeMap;

/// A point of a run and the attempt that logged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedPoint {
    /// The attempt.
    pub attempt: AttemptNumber,
    /// The point.
    pub point: Point,
}

/// Lays the attempts of one metric over each other: a later attempt shadows every earlier attempt's points whose step is at or above its
/// own lowest step (it resumed there, so what lies above was never reached on the way to the result). An attempt without points shadows
/// nothing. The points come attempt by attempt, each in the order of arrival. Shadowed points stay readable by asking for their attempt.
pub fn merge_attempts(attempts: &[(AttemptNumber, Vec<Point>)]) -> Vec<MergedPoint> {
    let mut ordered: Vec<&(AttemptNumber, Vec<Point>)> = attempts.iter().collect();
    ordered.sort_by_key(|(attempt, _)| *attempt);
    let mut cut = i64::MAX;
    let mut nothing_later = true;
    let mut kept: Vec<Vec<MergedPoint>> = Vec::new();
    for (attempt, points) in ordered.into_iter().rev() {
        let visible = points.iter().filter(|point| nothing_later || point.step < cut);
        kept.push(visible.map(|point| MergedPoint { attempt: *attempt, point: *point }).collect());
        if let Some(lowest) = points.iter().map(|point| point.step).min() {
            cut = cut.min(lowest);
            nothing_later = false;
        }
    }
    kept.into_iter().rev().flatten().collect()
}

/// One point a step, by step: of several, the one that arrived last.
pub fn last_by_step(points: &[Point]) -> Vec<Point> {
    points.iter().map(|point| (point.step, *point)).collect::<BTreeMap<_, _>>().into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(steps: impl IntoIterator<Item = i64>, value: f64) -> Vec<Point> {
        steps.into_iter().map(|step| Point { step, time_ms: step, value }).collect()
    }

    #[test]
    fn a_later_attempt_shadows_what_lies_at_or_above_its_lowest_step() {
        let merged = merge_attempts(&[(AttemptNumber(2), points(60..80, 2.0)), (AttemptNumber(1), points(0..100, 1.0))]);
        let of = |attempt| merged.iter().filter(|p| p.attempt == AttemptNumber(attempt)).map(|p| p.point.step).collect::<Vec<_>>();
        assert_eq!(of(1), (0..60).collect::<Vec<_>>());
        assert_eq!(of(2), (60..80).collect::<Vec<_>>());
    }

    #[test]
    fn the_lowest_step_of_any_later_attempt_counts_and_an_empty_one_shadows_nothing() {
        let attempts = [
            (AttemptNumber(1), points(0..50, 1.0)),
            (AttemptNumber(2), points(10..30, 2.0)),
            (AttemptNumber(3), points(20..25, 3.0)),
            (AttemptNumber(4), vec![]),
        ];
        let steps: Vec<_> = merge_attempts(&attempts).iter().map(|p| (p.attempt.0, p.point.step)).collect();
        let expected: Vec<_> =
            (0..10).map(|step| (1, step)).chain((10..20).map(|step| (2, step))).chain((20..25).map(|step| (3, step))).collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn an_attempt_that_starts_at_the_highest_step_keeps_it() {
        let attempts = [(AttemptNumber(1), points([i64::MAX], 1.0)), (AttemptNumber(2), points([i64::MAX], 2.0))];
        assert_eq!(merge_attempts(&attempts).iter().map(|p| p.attempt.0).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn one_point_a_step_is_the_last_to_arrive() {
        let mut all = points(0..3, 1.0);
        all.extend(points([1], 2.0));
        assert_eq!(last_by_step(&all).iter().map(|p| p.value).collect::<Vec<_>>(), [1.0, 2.0, 1.0]);
    }
}
