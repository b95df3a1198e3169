//! The one error of validation: which field, which value, what is allowed.

use std::fmt;

/// A value that was refused, told so that a person can mend it: the field, the value as given (cut when long), what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// Path of the field, as the user wrote it (`resources.memory`); a bare type name when no field is known yet.
    pub field: String,
    /// The refused value, cut to 80 characters.
    pub value: String,
    /// What would have been accepted, as a sentence part ("1 to 63 characters of a-z, 0-9 and -").
    pub allowed: String,
}

impl Invalid {
    /// A refusal of `value` for `field`.
    pub fn new(field: impl Into<String>, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        let value = value.to_string();
        let shown = if value.chars().count() > 80 {
            let head: String = value.chars().take(77).collect();
            format!("{head}...")
        } else {
            value
        };
        Self { field: field.into(), value: shown, allowed: allowed.into() }
    }

    /// The same refusal told of another field, for callers that know the path.
    #[must_use]
    pub fn of(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} is not allowed; allowed: {}", self.field, self.value, self.allowed)
    }
}
