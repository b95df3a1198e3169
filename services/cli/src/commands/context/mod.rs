//! Verbs of `context`: the platforms and projects that this command line knows.

pub mod delete;
pub mod list;
pub mod set;
pub mod r#use;

use crate::context::default_path;
use crate::output::{Exit, Failure};
use std::path::PathBuf;

/// The file of contexts.
///
/// # Errors
/// When there is no home to keep it in.
pub(crate) fn file() -> Result<PathBuf, Failure> {
    default_path()
        .ok_or_else(|| Failure::new(Exit::Failed, "there is no home folder to keep contexts in; set HOME or XDG_CONFIG_HOME".to_owned()))
}
