//! Why a snapshot was not made, told so that a person can mend it.

use super::limit::TooMuch;
use std::path::PathBuf;

/// How many offending paths an error names before it only counts the rest.
const PATHS_SHOWN: usize = 10;

/// A capture that was refused or could not be done. Nothing was uploaded and nothing of the user's was changed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The files git does not track are larger than the limit.
    #[error("{0}")]
    TooMuchUntracked(Box<TooMuch>),
    /// The whole snapshot is larger than the platform takes.
    #[error(
        "the snapshot of {folder} is larger than {limit_bytes} bytes; keep data out of the repository and name it under `data`, or leave \
         folders out with a line in .footplateignore"
    )]
    TooLarge {
        /// The folder captured.
        folder: PathBuf,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// More files than the platform takes.
    #[error("{folder} has more than {limit} files to capture; leave folders out with a line in .footplateignore")]
    TooMany {
        /// The folder captured.
        folder: PathBuf,
        /// The limit, in files.
        limit: usize,
    },
    /// Files whose names look like secrets.
    #[error(
        "these files look like secrets and must not leave this machine:\n{}\ngive the job their values by `env.pass`, leave them out with a \
         line in .footplateignore, or let one pass by name with `source.allow: [{:?}]`", listed(paths), paths.first().map_or("", String::as_str)
    )]
    Secrets {
        /// Their paths.
        paths: Vec<String>,
    },
    /// Symbolic links that are absolute or lead outside.
    #[error(
        "these links are absolute or lead outside {folder} and would lead nowhere on a node:\n{}\nmake them relative, or leave them out with a \
         line in .footplateignore",
        listed(links)
    )]
    LinksOutside {
        /// The folder captured.
        folder: PathBuf,
        /// `path -> target` of each.
        links: Vec<String>,
    },
    /// `source.git` names a folder that is in no repository.
    #[error("{folder} is not in a git repository (or there is no git here); name the folder by `source.path` to capture it without git")]
    NoRepository {
        /// The folder named.
        folder: PathBuf,
    },
    /// A repository without a working tree.
    #[error("{folder} is in a bare repository, which has no files to capture; start from a working tree")]
    Bare {
        /// The folder named.
        folder: PathBuf,
    },
    /// The folder is not there, or is no folder.
    #[error("{folder} cannot be captured: {reason}")]
    NoFolder {
        /// The folder named.
        folder: PathBuf,
        /// Why not.
        reason: String,
    },
    /// `source.dirty: refuse`, and the tree is not what was committed.
    #[error(
        "the working tree differs from its commit and `source.dirty` is `refuse`:\n{}\ncommit the changes, or set `source.dirty: snapshot`",
        listed(paths)
    )]
    Dirty {
        /// What differs.
        paths: Vec<String>,
    },
    /// `source.submodules: pinned`, and a submodule is not at its recorded commit, clean.
    #[error(
        "these submodules are not exactly at their recorded commits and `source.submodules` is `pinned`:\n{}\nrun `git submodule update --init \
         --recursive`, or set `source.submodules: capture`",
        listed(paths)
    )]
    Submodules {
        /// The submodules, each with what is wrong.
        paths: Vec<String>,
    },
    /// `source.lfs: require`, and files are pointers still.
    #[error(
        "these files are git LFS pointers without their content and `source.lfs` is `require`:\n{}\nrun `git lfs pull`, or set `source.lfs: record`",
        listed(paths)
    )]
    LfsPointers {
        /// The files.
        paths: Vec<String>,
    },
    /// A file that cannot be read.
    #[error("{path} cannot be read; mend its permissions or leave it out with a line in .footplateignore")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file that changed while it was read.
    #[error("{path} changed while it was being captured; submit again")]
    Changed {
        /// The file.
        path: String,
    },
    /// Git itself failed.
    #[error("git {command} failed: {message}")]
    Git {
        /// The subcommand.
        command: String,
        /// What git said.
        message: String,
    },
    /// The temporary files of the capture could not be written.
    #[error("cannot write the temporary files of the snapshot (TMPDIR says where)")]
    Scratch {
        /// Why.
        source: std::io::Error,
    },
}

impl CaptureError {
    pub(super) fn scratch(source: std::io::Error) -> Self {
        Self::Scratch { source }
    }
}

fn listed(paths: &[String]) -> String {
    let mut text: Vec<String> = paths.iter().take(PATHS_SHOWN).map(|path| format!("  {path}")).collect();
    if paths.len() > PATHS_SHOWN {
        text.push(format!("  and {} more", paths.len() - PATHS_SHOWN));
    }
    text.join("\n")
}
