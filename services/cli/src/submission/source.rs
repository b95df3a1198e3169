//! Between the job file's `source` and the snapshot; and from the snapshot to what the record says of it.

use crate::{
    capture::{Mode, Request, Snapshot},
    jobfile::SourceSection,
};
use footplate_api::types;
use std::path::Path;

/// The longest remark of a source, in characters.
const REMARK_MAX: usize = 1_000;

/// What to capture: seen from `current`, for a job file (or a command) in `folder`.
pub fn capture_request(section: &SourceSection, current: &Path, folder: &Path) -> Request {
    let (mode, named) = match (&section.git, &section.path) {
        (Some(git), _) => (Mode::Git, Some(git)),
        (None, Some(path)) => (Mode::Folder, Some(path)),
        (None, None) => (Mode::Auto, None),
    };
    Request {
        current: current.to_owned(),
        folder: named.map_or_else(|| folder.to_owned(), |named| folder.join(named)),
        mode,
        max_untracked: section.max_untracked.0,
        allow: section.allow.clone(),
        dirty: section.dirty,
        submodules: section.submodules,
        lfs: section.lfs,
    }
}

/// What the ledger says of a snapshot.
pub fn source_ref(snapshot: &Snapshot) -> types::SourceRef {
    let git = snapshot.plan.git.clone().unwrap_or_default();
    let mut remarks = snapshot.plan.warnings.clone();
    if git.commit.is_some() && git.remote.is_some() && !git.commit_on_remote {
        remarks.push("the commit is on no remote branch".to_owned());
    }
    types::SourceRef {
        archive: Some(types::DocumentRef { digest: snapshot.archive.digest.to_string(), bytes: snapshot.archive.bytes }),
        tree: snapshot.tree.to_string(),
        commit: git.commit.unwrap_or_default(),
        branch: git.branch.unwrap_or_default(),
        dirty: git.dirty,
        untracked: u32::try_from(snapshot.plan.untracked_files).unwrap_or(u32::MAX),
        remote: git.remote.unwrap_or_default(),
        folder: snapshot.plan.cwd.clone(),
        remark: remarks.join("; ").chars().take(REMARK_MAX).collect(),
    }
}
