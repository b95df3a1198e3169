//! Verbs of `run`: recorded trainings.

pub mod cancel;
pub mod compare;
pub mod list;
pub mod logs;
pub mod note;
pub mod rerun;
pub mod show;
pub mod tag;
pub mod wait;
