//! What is wrong with a job file: every fault at once, each with its place.

use std::fmt;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: a path of keys (`resources.memory`), or a file with line and column.
    pub place: String,
    /// What, and what would be right.
    pub message: String,
}

impl Problem {
    /// A fault at `place`.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.place, self.message) }
    }
}

/// Every fault of a job file, in the order found. Never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds a fault.
    pub fn add(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem::new(place, message));
    }

    /// `value` when there is no fault.
    ///
    /// # Errors
    /// All faults, when there is one.
    pub fn or(self, value: impl FnOnce() -> Option<super::Resolved>) -> Result<super::Resolved, Self> {
        if !self.0.is_empty() {
            return Err(self);
        }
        value().ok_or(self)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            many => {
                write!(f, "{} faults:", many.len())?;
                many.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}
