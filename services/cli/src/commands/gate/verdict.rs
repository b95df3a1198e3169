//! What a gate decides, and upon what: a value of a run, and a limit on one side of it.

use super::conditions::{Direction, Of};
use crate::output::Exit;
use footplate_api::{
    ApiError, Refusal,
    refusal::reason,
    types::{LatestValue, Run},
};
use std::fmt;

/// How many names a refusal lists.
const NAMES_SHOWN: usize = 20;

/// On which side of the limit a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// At the limit or above.
    AtLeast,
    /// At the limit or below.
    AtMost,
}

impl Side {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::AtLeast => "at_least",
            Self::AtMost => "at_most",
        }
    }
}

/// What is wanted of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// On which side.
    pub side: Side,
    /// Of what.
    pub limit: f64,
    /// By how much it may fall short.
    pub margin: f64,
}

impl Wanted {
    /// Whether a value is what is wanted; the limit itself is.
    pub fn is_met_by(self, value: f64) -> bool {
        let short = match self.side {
            Side::AtLeast => self.limit - value,
            Side::AtMost => value - self.limit,
        };
        // 0.92 is 0.93 - 0.01 to whoever writes a margin, though not to binary fractions: their rounding must not decide.
        let rounding = if self.margin == 0.0 { 0.0 } else { 4.0 * f64::EPSILON * self.limit.abs().max(value.abs()) };
        short <= self.margin + rounding
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, limit, margin } = *self;
        let sign = if side == Side::AtLeast { ">=" } else { "<=" };
        write!(f, "{sign} {limit}")?;
        if margin == 0.0 {
            return Ok(());
        }
        let towards_worse = if (side == Side::AtLeast) == (margin > 0.0) { '-' } else { '+' };
        write!(f, " {towards_worse} {}", margin.abs())
    }
}

/// What came out of one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is as wanted.
    Passed,
    /// It is not.
    FallsShort,
    /// It could not be told, and the code that this ends with.
    Unknown(Exit),
}

impl Verdict {
    /// The word for people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::FallsShort => "falls short",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The word for programs.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::FallsShort => "falls_short",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The exit code.
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Passed => Exit::Done,
            Self::FallsShort => Exit::FallsShort,
            Self::Unknown(exit) => exit,
        }
    }

    /// The worst of all: what could not be told is worse than what falls short, so that the code for falling short says that everything was
    /// told. Of several that could not be told the first counts.
    pub(super) fn worst(all: impl Iterator<Item = Self>) -> Self {
        let rank = |verdict: &Self| match verdict {
            Self::Passed => 0,
            Self::FallsShort => 1,
            Self::Unknown(_) => 2,
        };
        all.fold(Self::Passed, |worst, next| if rank(&next) > rank(&worst) { next } else { worst })
    }
}

/// What a run has to be for its metrics to count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leave {
    /// A failed or cancelled one is taken.
    pub(super) failed: bool,
    /// One whose record is incomplete is taken.
    pub(super) incomplete: bool,
}

impl Leave {
    /// Refuses a run whose metrics do not count.
    pub(super) fn check(self, run: &Run) -> Result<(), ApiError> {
        use footplate_api::types::{Outcome, RunState};
        let about = |reason, value: &str, allowed: &str| {
            let message = format!("run {} is {value}; allowed: {allowed}", run.run_id);
            Refusal::new(reason, message).field("run").value(value).allowed(allowed)
        };
        let standing = crate::view::standing(run);
        if run.state() != RunState::Sealed {
            let next = format!("wait for it: give --wait, or `footplate run wait {}` first", run.run_id);
            return Err(about(&reason::RUN_NOT_SEALED, &crate::view::standing_with_seal(run), "sealed").next(next).into());
        }
        if run.outcome() != Outcome::Succeeded && !self.failed {
            return Err(about(&reason::RUN_NOT_SUCCEEDED, standing, "succeeded, or with --allow-failed").into());
        }
        if !run.seal_complete && !self.incomplete {
            let value = format!("sealed without {}", run.seal_missing.join(", "));
            return Err(about(&reason::RUN_INCOMPLETE, &value, "sealed complete, or with --allow-incomplete").into());
        }
        Ok(())
    }
}

/// The value of a metric that counts.
pub(super) fn value_of(run: &Run, metric: &str, of: Of, direction: Option<Direction>) -> Result<f64, ApiError> {
    let found = run.latest.iter().find(|latest| latest.rank == 0 && latest.name == metric).ok_or_else(|| no_series(run, metric))?;
    let value = chosen(found, of, direction);
    if value.is_finite() {
        return Ok(value);
    }
    let message = format!("{metric} of run {} is {value}; allowed: a finite number", run.run_id);
    let next = format!("look at its course: `footplate run show {}`", run.run_id);
    Err(Refusal::new(&reason::METRIC_NOT_FINITE, message).field(metric).value(value).allowed("a finite number").next(next).into())
}

fn chosen(latest: &LatestValue, of: Of, direction: Option<Direction>) -> f64 {
    match (of, direction) {
        (Of::Last, _) | (Of::Best, None) => latest.value,
        (Of::Best, Some(Direction::Maximize)) => latest.max,
        (Of::Best, Some(Direction::Minimize)) => latest.min,
    }
}

fn no_series(run: &Run, metric: &str) -> ApiError {
    let names: Vec<&str> = run.latest.iter().filter(|latest| latest.rank == 0).map(|latest| latest.name.as_str()).collect();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let mut allowed = if names.is_empty() { "none: it logged no metric".to_owned() } else { names[..names.len() - more].join(", ") };
    if more > 0 {
        allowed.push_str(&format!(" and {more} more"));
    }
    let message = format!("run {} has no metric {metric:?}; it has: {allowed}", run.run_id);
    let next = format!("name one that the run logged: `footplate run show {}` lists them", run.run_id);
    Refusal::new(&reason::SERIES_NOT_FOUND, message).field("--metric").value(metric).allowed(allowed).next(next).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_api::types::{Outcome, RunState};

    fn wanted(side: Side, limit: f64, margin: f64) -> Wanted {
        Wanted { side, limit, margin }
    }

    #[test]
    fn the_limit_itself_passes_and_what_is_worse_by_the_least_does_not() {
        for (side, limit, margin, value, met) in [
            (Side::AtLeast, 0.93, 0.0, 0.93, true),
            (Side::AtLeast, 0.93, 0.0, 0.929_999_999_999_999_9, false),
            (Side::AtMost, 0.3, 0.0, 0.3, true),
            (Side::AtMost, 0.3, 0.0, 0.1 + 0.2, false),
            (Side::AtLeast, 0.93, 0.01, 0.92, true),
            (Side::AtLeast, 0.93, 0.01, 0.919_999, false),
            (Side::AtMost, 0.3, 0.1, 0.4, true),
            (Side::AtLeast, 0.93, -0.01, 0.94, true),
            (Side::AtLeast, 0.93, -0.01, 0.939_999, false),
            (Side::AtMost, -f64::MAX, 0.0, f64::MAX, false),
            (Side::AtLeast, -f64::MAX, 0.0, f64::MAX, true),
        ] {
            assert_eq!(wanted(side, limit, margin).is_met_by(value), met, "{value} against {limit} with {margin}");
        }
    }

    #[test]
    fn what_is_wanted_is_shown_to_the_last_digit() {
        assert_eq!(wanted(Side::AtLeast, 0.931_234_567_8, 0.01).to_string(), ">= 0.9312345678 - 0.01");
        assert_eq!(wanted(Side::AtLeast, 0.9, -0.01).to_string(), ">= 0.9 + 0.01");
        assert_eq!(wanted(Side::AtMost, 0.3, 0.1).to_string(), "<= 0.3 + 0.1");
        assert_eq!(wanted(Side::AtMost, 0.3, -0.1).to_string(), "<= 0.3 - 0.1");
    }

    #[test]
    fn what_could_not_be_told_is_worse_than_what_falls_short() {
        use Verdict::{FallsShort, Passed, Unknown};
        let worst = |all: &[Verdict]| Verdict::worst(all.iter().copied()).exit();
        assert_eq!(worst(&[Passed, Passed]), Exit::Done);
        assert_eq!(worst(&[Passed, FallsShort, Passed]), Exit::FallsShort);
        assert_eq!(worst(&[Unknown(Exit::NotFound), FallsShort, Unknown(Exit::Refused)]), Exit::NotFound);
    }

    fn run_with(latest: Vec<LatestValue>) -> Run {
        let mut run = Run { run_id: "ab".into(), latest, seal_complete: true, ..Run::default() };
        run.set_state(RunState::Sealed);
        run.set_outcome(Outcome::Succeeded);
        run
    }

    fn latest(name: &str, value: f64, min: f64, max: f64) -> LatestValue {
        LatestValue { name: name.into(), value, min, max, ..LatestValue::default() }
    }

    #[test]
    fn the_last_value_or_the_best_in_the_direction_given() {
        let run = run_with(vec![LatestValue { rank: 1, ..latest("acc", 9.0, 9.0, 9.0) }, latest("acc", 0.5, 0.1, 0.9)]);
        assert_eq!(value_of(&run, "acc", Of::Last, Some(Direction::Maximize)).unwrap(), 0.5);
        assert_eq!(value_of(&run, "acc", Of::Best, Some(Direction::Maximize)).unwrap(), 0.9);
        assert_eq!(value_of(&run, "acc", Of::Best, Some(Direction::Minimize)).unwrap(), 0.1);
    }

    #[test]
    fn a_metric_that_is_not_there_or_not_finite_cannot_be_told() {
        let run = run_with(vec![latest("acc", f64::NAN, 0.1, 0.9), latest("loss", f64::INFINITY, f64::NAN, f64::NAN)]);
        for (metric, of, reason, exit) in [
            ("val/acc", Of::Last, "SERIES_NOT_FOUND", Exit::NotFound),
            ("acc", Of::Last, "METRIC_NOT_FINITE", Exit::Refused),
            ("loss", Of::Last, "METRIC_NOT_FINITE", Exit::Refused),
            ("loss", Of::Best, "METRIC_NOT_FINITE", Exit::Refused),
        ] {
            let error = value_of(&run, metric, of, Some(Direction::Minimize)).unwrap_err();
            assert_eq!((error.reason.as_str(), error.exit()), (reason, exit), "{metric}");
            assert!(error.field.is_some() && error.value.is_some() && error.allowed.is_some() && error.advice.is_some());
        }
        assert!(value_of(&run, "val/acc", Of::Last, None).unwrap_err().message.contains("acc, loss"));
    }

    #[test]
    fn only_the_whole_record_of_a_success_counts_unless_leave_is_given() {
        let reason = |run: &Run, leave: Leave| leave.check(run).err().map(|error| error.reason);
        let mut run = run_with(Vec::new());
        assert_eq!(reason(&run, Leave::default()), None);
        run.set_state(RunState::Ending);
        assert_eq!(reason(&run, Leave { failed: true, incomplete: true }).as_deref(), Some("RUN_NOT_SEALED"));
        run.set_state(RunState::Sealed);
        run.seal_complete = false;
        assert_eq!(reason(&run, Leave::default()).as_deref(), Some("RUN_INCOMPLETE"));
        assert_eq!(reason(&run, Leave { incomplete: true, failed: false }), None);
        run.set_outcome(Outcome::Cancelled);
        assert_eq!(reason(&run, Leave { incomplete: true, failed: false }).as_deref(), Some("RUN_NOT_SUCCEEDED"));
        assert_eq!(reason(&run, Leave { incomplete: true, failed: true }), None);
    }
}
