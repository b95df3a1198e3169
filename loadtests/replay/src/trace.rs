//! Where the traces lie. They are not part of the repository.

use anyhow::{Context, Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};

/// Where to read traces.
#[derive(Args, Clone, Debug, Default)]
pub struct Data {
    /// The folder of the traces; without it `../shared/data/traces` beside the repository
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl Data {
    fn folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces"))
    }

    /// Whether a trace is there.
    pub fn has(&self, trace: &str) -> bool {
        self.folder().join(trace).is_file()
    }

    /// The text of a trace, by its path in the folder; refused, with the folder's name, where either is not there.
    pub fn text(&self, trace: &str) -> Result<String> {
        let folder = self.folder();
        ensure!(folder.is_dir(), "there is no folder of traces at {}: say with --data where it is", folder.display());
        let file = folder.join(trace);
        std::fs::read_to_string(&file).with_context(|| format!("cannot read the trace {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let data = Data { data: Some("/nowhere/at/all".into()) };
        let error = data.text("a.swf").unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all") && error.contains("--data"), "{error}");
    }
}
