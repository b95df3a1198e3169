//! The code snapshot: what the run will see of the user's folder, content-addressed.
//!
//! It works on the working tree as it is (changed, staged and untracked files, submodules inside submodules, file contents rather than LFS
//! pointers where they are there), with git or without. It never changes anything of the user's: git's index, tree, stash and HEAD are
//! byte-equal before and after. It never takes what looks like a secret, and decides by sizes before it reads contents.

mod error;
mod git;
mod ignore;
mod limit;
mod listing;
mod pack;
mod repository;
mod secret;
mod walk;

pub use error::CaptureError;
pub use limit::{Folder, TooMuch};
pub use listing::FILES_MAX;
pub use pack::{Archive, SNAPSHOT_BYTES_MAX};
pub use repository::{GitFacts, LfsFile, Submodule, SubmoduleState, without_credentials};
pub use secret::{SECRET_NAMES, SecretNames};
pub use walk::DEFAULT_EXCLUDES;

use footplate_types::{ByteSize, Digest};
use listing::{Entry, Listing};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The default of `source.max_untracked`.
pub const MAX_UNTRACKED_DEFAULT: ByteSize = ByteSize(50 << 20);

/// Whether git is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The repository around the folder where there is one, else the folder.
    #[default]
    Auto,
    /// The repository around the folder; refused when there is none.
    Git,
    /// The folder alone, even inside a repository.
    Folder,
}

/// What becomes of a working tree that differs from its commit (`source.dirty`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DirtyRule {
    /// It is captured as it is.
    #[default]
    Snapshot,
    /// It is refused.
    Refuse,
}

/// What becomes of submodules (`source.submodules`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmoduleRule {
    /// Their working trees are captured as they are, recursively.
    #[default]
    Capture,
    /// Each must be checked out at its recorded commit, unchanged.
    Pinned,
    /// They are left out.
    Ignore,
}

/// What becomes of git LFS files (`source.lfs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LfsRule {
    /// Pointers without content are captured as pointers, with a warning and a mark in the record.
    #[default]
    Record,
    /// Pointers without content are refused.
    Require,
}

/// What to capture and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the user stands; kept relative to the captured folder when it lies inside.
    pub current: PathBuf,
    /// The folder that `source.git` or `source.path` names (default: the job file's folder, or where the user stands).
    pub folder: PathBuf,
    /// Whether git is asked.
    pub mode: Mode,
    /// The most bytes of untracked files.
    pub max_untracked: ByteSize,
    /// Names that pass the list of secrets, as patterns in the syntax of `.gitignore`.
    pub allow: Vec<String>,
    /// See [`DirtyRule`].
    pub dirty: DirtyRule,
    /// See [`SubmoduleRule`].
    pub submodules: SubmoduleRule,
    /// See [`LfsRule`].
    pub lfs: LfsRule,
}

impl Request {
    /// The defaults, for `folder` seen from `current`.
    pub fn new(current: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self {
            current: current.into(),
            folder: folder.into(),
            mode: Mode::default(),
            max_untracked: MAX_UNTRACKED_DEFAULT,
            allow: Vec::new(),
            dirty: DirtyRule::default(),
            submodules: SubmoduleRule::default(),
            lfs: LfsRule::default(),
        }
    }
}

/// What a snapshot would hold: known by names and sizes, no content read yet.
#[derive(Debug)]
pub struct Plan {
    /// The folder captured: a repository's top, or the folder named.
    pub root: PathBuf,
    /// The working folder of the run, relative to the root; empty for the root itself.
    pub cwd: String,
    /// What git says; absent without a repository.
    pub git: Option<GitFacts>,
    /// Submodules, in the order of their paths.
    pub submodules: Vec<Submodule>,
    /// Files under git LFS, in the order of their paths.
    pub lfs: Vec<LfsFile>,
    /// How many files git does not track.
    pub untracked_files: u64,
    /// Their bytes.
    pub untracked_bytes: u64,
    /// What a person should know.
    pub warnings: Vec<String>,
    entries: BTreeMap<Vec<u8>, Entry>,
}

/// A snapshot, packed.
#[derive(Debug)]
pub struct Snapshot {
    /// What was captured.
    pub plan: Plan,
    /// The packed files.
    pub archive: Archive,
    /// The digest of the tree: paths, modes and contents, no times.
    pub tree: Digest,
}

/// Finds out what a snapshot would hold, and whether it may be taken at all.
///
/// # Errors
/// Every refusal of [`CaptureError`], before any content is read.
pub fn survey(request: &Request) -> Result<Plan, CaptureError> {
    let no_folder = |reason: String| CaptureError::NoFolder { folder: request.folder.clone(), reason };
    let folder = request.folder.canonicalize().map_err(|error| no_folder(error.to_string()))?;
    if !folder.is_dir() {
        return Err(no_folder("it is not a folder".to_owned()));
    }
    let git = if request.mode == Mode::Folder { None } else { git::Git::around(&folder)? };
    if git.is_none() && request.mode == Mode::Git {
        return Err(CaptureError::NoRepository { folder });
    }
    let root =
        git.as_ref().map_or_else(|| Ok(folder.clone()), |git| git.top.canonicalize().map_err(|error| no_folder(error.to_string())))?;
    let mut listing = Listing::new(&root, request.max_untracked, &request.allow);
    let found = match &git {
        Some(git) => Some(repository::survey(git, &mut listing, repository::Taking { submodules: request.submodules, lfs: request.lfs })?),
        None => walk::walk(&root, &mut listing).map(|()| None)?,
    };
    listing.check(git.is_some())?;
    let found = found.unwrap_or_default();
    if git.is_some() && found.facts.dirty && request.dirty == DirtyRule::Refuse {
        return Err(CaptureError::Dirty { paths: found.changes });
    }
    Ok(Plan {
        cwd: working_folder(&request.current, &folder, &root),
        git: git.map(|_| found.facts),
        submodules: sorted(found.submodules, |submodule| &submodule.path),
        lfs: sorted(found.lfs, |file| &file.path),
        untracked_files: listing.meter.files(),
        untracked_bytes: listing.meter.bytes(),
        warnings: listing.warnings,
        entries: listing.entries,
        root,
    })
}

impl Plan {
    /// How many files and links.
    pub fn files(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| if let Entry::File { bytes, .. } = entry { *bytes } else { 0 }).sum()
    }

    /// The paths, in order, as people read them.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.entries.keys().map(|path| listing::shown(path))
    }

    /// Reads the contents and packs them.
    ///
    /// # Errors
    /// A file that cannot be read or changes meanwhile; a total above [`SNAPSHOT_BYTES_MAX`]; no room for the temporary archive.
    pub fn pack(self) -> Result<Snapshot, CaptureError> {
        let (archive, tree) = pack::pack(&self.root, &self.entries, &self.cwd)?;
        Ok(Snapshot { plan: self, archive, tree })
    }
}

/// Where the run starts, relative to the root: where the user stands when that is inside, else the folder named.
fn working_folder(current: &Path, folder: &Path, root: &Path) -> String {
    let current = current.canonicalize().unwrap_or_default();
    let inside = if current.starts_with(root) { &current } else { folder };
    inside.strip_prefix(root).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

fn sorted<T>(mut items: Vec<T>, key: impl Fn(&T) -> &String) -> Vec<T> {
    items.sort_by(|one, other| key(one).cmp(key(other)));
    items
}
