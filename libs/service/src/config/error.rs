//! What may be wrong with a configuration, told so that a person can mend it.

use std::fmt;

use super::Origin;

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it was found.
    pub origin: Origin,
    /// The key, dotted; empty when the layer as a whole is wrong.
    pub key: String,
    /// What is wrong and what would be right, in one line.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.problem)
        } else {
            write!(f, "{}: {}: {}", self.origin, self.key, self.problem)
        }
    }
}

/// Everything wrong with a configuration, in the order of the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration cannot be used ({} {})", self.0.len(), if self.0.len() == 1 { "error" } else { "errors" })?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}
