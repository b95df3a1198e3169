//! The suite that every back end passes.
