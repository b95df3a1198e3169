//! Verbs of `pipeline`: jobs that come after each other.

pub mod submit;
