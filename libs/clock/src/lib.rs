//! The only crate that reads system time or entropy.
