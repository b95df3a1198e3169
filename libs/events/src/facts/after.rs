//! What a job waits for before it gets in line: the ends of other jobs.

use super::Outcome;
use footplate_types::{Invalid, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Which end of another job is waited for. A job that was cancelled neither succeeded nor failed: only `any` goes on after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AfterWhen {
    /// It succeeded.
    #[default]
    Success,
    /// It failed.
    Failure,
    /// It ended, however.
    Any,
}

impl AfterWhen {
    /// Its word, in requests and job files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Any => "any",
        }
    }

    /// Whether an end is the one that is waited for.
    pub const fn is_met_by(self, outcome: Outcome) -> bool {
        match self {
            Self::Success => matches!(outcome, Outcome::Succeeded),
            Self::Failure => matches!(outcome, Outcome::Failed),
            Self::Any => true,
        }
    }

    /// Reads a word.
    ///
    /// # Errors
    /// Any other word.
    pub fn parse(word: &str) -> Result<Self, Invalid> {
        let known = [Self::Success, Self::Failure, Self::Any];
        let found = known.into_iter().find(|when| when.as_str() == word);
        found.ok_or_else(|| Invalid::new("after.when", word, "success, failure or any"))
    }
}

impl fmt::Display for AfterWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One job that another one waits for, of the same project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AfterJob {
    /// Its run.
    pub run: RunId,
    /// Which end of it.
    #[serde(default)]
    pub when: AfterWhen,
}

impl AfterJob {
    /// The most jobs that one job waits for.
    pub const LIST_MAX: usize = 64;

    /// Checks a list of them: not too many, none twice.
    pub(super) fn validate(all: &[Self]) -> Result<(), Invalid> {
        if all.len() > Self::LIST_MAX {
            return Err(Invalid::new("after (count)", all.len(), format!("at most {}", Self::LIST_MAX)));
        }
        let mut seen = BTreeSet::new();
        match all.iter().find(|after| !seen.insert(after.run)) {
            Some(twice) => Err(Invalid::new("after", twice.run, "each run once")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_end_meets_its_own_condition_and_any() {
        let met = |outcome| [AfterWhen::Success, AfterWhen::Failure, AfterWhen::Any].map(|when| when.is_met_by(outcome));
        assert_eq!(met(Outcome::Succeeded), [true, false, true]);
        assert_eq!(met(Outcome::Failed), [false, true, true]);
        assert_eq!(met(Outcome::Cancelled), [false, false, true]);
    }

    #[test]
    fn a_word_is_read_as_it_is_written_and_no_other_is() {
        for when in [AfterWhen::Success, AfterWhen::Failure, AfterWhen::Any] {
            assert_eq!(AfterWhen::parse(when.as_str()).unwrap(), when);
        }
        let invalid = AfterWhen::parse("afterok").unwrap_err();
        assert_eq!((invalid.field.as_str(), invalid.allowed.as_str()), ("after.when", "success, failure or any"));
    }

    #[test]
    fn a_run_is_waited_for_once_and_runs_are_at_most_64() {
        let after = |n: u8, when| AfterJob { run: RunId::from_bytes([n; 16]), when };
        let many: Vec<AfterJob> = (0..=64).map(|n| after(n, AfterWhen::Any)).collect();
        assert!(AfterJob::validate(&many[..64]).is_ok());
        assert_eq!(AfterJob::validate(&many).unwrap_err().field, "after (count)");
        let twice = [after(1, AfterWhen::Success), after(1, AfterWhen::Failure)];
        assert_eq!(AfterJob::validate(&twice).unwrap_err().value, RunId::from_bytes([1; 16]).to_string());
    }
}
