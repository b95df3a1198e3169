//! Verbs of `user`: principals, people and programs.

pub mod create;
pub mod disable;
pub mod enable;
pub mod list;
