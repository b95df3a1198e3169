//! Which trials are ended early. A pruner is a function of what was seen at one rung; another one is another variant of [`Pruner`].

use footplate_events::facts::{Direction, Pruner};

/// How many others the median is of at least, when the client does not say.
pub const STARTUP_DEFAULT: u32 = 5;

/// Whether `one` is better than `other`.
pub(crate) fn is_better(direction: Direction, one: f64, other: f64) -> bool {
    match direction {
        Direction::Minimize => one < other,
        Direction::Maximize => one > other,
    }
}

/// Why a trial is to be pruned at a rung; `None` lets it go on. Values that are not finite are absent: such a trial has no hope itself, and
/// says nothing about the others.
pub(crate) fn judge(pruner: &Pruner, direction: Direction, own: Option<f64>, others: &[Option<f64>]) -> Option<String> {
    match pruner {
        Pruner::None => None,
        Pruner::Median { startup } => {
            let Some(own) = own else { return Some("the objective is not a finite number".to_owned()) };
            let mut known: Vec<f64> = others.iter().copied().flatten().collect();
            if known.is_empty() || known.len() < *startup as usize {
                return None;
            }
            known.sort_by(f64::total_cmp);
            let middle = known.len() / 2;
            let median = if known.len() % 2 == 1 { known[middle] } else { known[middle - 1] / 2.0 + known[middle] / 2.0 };
            is_better(direction, median, own).then(|| format!("{own} is worse than {median}, the median of {} others", known.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_others_decides_and_ties_go_on() {
        let median = Pruner::Median { startup: 3 };
        let others = [Some(1.0), None, Some(3.0), Some(2.0)];
        let judged = |own| judge(&median, Direction::Minimize, own, &others).is_some();
        assert_eq!((judged(Some(2.5)), judged(Some(2.0)), judged(Some(0.5)), judged(None)), (true, false, false, true));
        assert!(judge(&median, Direction::Maximize, Some(1.5), &others).is_some());
        assert!(judge(&median, Direction::Minimize, Some(9.0), &others[..2]).is_none(), "too few others");
        assert!(judge(&Pruner::None, Direction::Minimize, None, &others).is_none());
    }
}
