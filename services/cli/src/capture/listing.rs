//! What is to be captured: paths, kinds and sizes by `stat`, before any content is read.

use super::{CaptureError, ignore::Rules, limit::Meter, secret::SecretNames};
use footplate_types::ByteSize;
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

/// The most files of one snapshot.
pub const FILES_MAX: usize = 500_000;

/// One thing to be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A regular file.
    File {
        /// Its size, in bytes, when it was listed.
        bytes: u64,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link, kept as it is.
    Link {
        /// Where it leads.
        target: Vec<u8>,
    },
}

/// The growing list, with the rules that every path must pass.
#[derive(Debug)]
pub(super) struct Listing {
    root: PathBuf,
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    pub(super) meter: Meter,
    secrets: SecretNames,
    pub(super) ignored: Rules,
    refused_secrets: Vec<String>,
    refused_links: Vec<String>,
    behind_link: HashMap<PathBuf, bool>,
    /// Things a person should know that did not stop the capture.
    pub(super) warnings: Vec<String>,
}

impl Listing {
    pub(super) fn new(root: &Path, limit: ByteSize, allow: &[String]) -> Self {
        Self {
            root: root.to_owned(),
            entries: BTreeMap::new(),
            meter: Meter::new(limit),
            secrets: SecretNames::new(allow),
            ignored: Rules::default(),
            refused_secrets: Vec::new(),
            refused_links: Vec::new(),
            behind_link: HashMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Lists one path (relative to the root); says whether to go on.
    ///
    /// # Errors
    /// When there are more than [`FILES_MAX`] files, or the path cannot be looked at.
    pub(super) fn add(&mut self, path: &[u8], tracked: bool) -> Result<bool, CaptureError> {
        if self.ignored.ignores(path) || self.entries.contains_key(path) {
            return Ok(true);
        }
        let full = self.root.join(OsStr::from_bytes(path));
        if self.is_behind_link(&full) {
            return Ok(true);
        }
        let meta = match std::fs::symlink_metadata(&full) {
            Ok(meta) => meta,
            // Tracked and deleted: the working tree is without it, and so is the snapshot.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            Err(source) => return Err(CaptureError::Unreadable { path: shown(path), source }),
        };
        let entry = if meta.is_symlink() {
            let target = std::fs::read_link(&full).map_err(|source| CaptureError::Unreadable { path: shown(path), source })?;
            let target = target.as_os_str().as_bytes().to_vec();
            if leads_outside(path, &target) {
                self.refused_links.push(format!("{} -> {}", shown(path), String::from_utf8_lossy(&target)));
            }
            Entry::Link { target }
        } else if meta.is_file() {
            Entry::File { bytes: meta.len(), executable: meta.mode() & 0o100 != 0 }
        } else {
            if !meta.is_dir() {
                self.warnings.push(format!("{} is a socket, pipe or device and was left out", shown(path)));
            }
            return Ok(true);
        };
        if self.secrets.refuses(path) {
            self.refused_secrets.push(shown(path));
        }
        if self.entries.len() >= FILES_MAX {
            return Err(self.too_much(false, true).unwrap_or(CaptureError::TooMany { folder: self.root.clone(), limit: FILES_MAX }));
        }
        self.entries.insert(path.to_vec(), entry);
        Ok(tracked || self.meter.add(path, meta.len()))
    }

    /// The refusal of too much untracked, if it is too much.
    pub(super) fn too_much(&self, complete: bool, in_git: bool) -> Option<CaptureError> {
        self.meter.refusal(complete, in_git).map(|refusal| CaptureError::TooMuchUntracked(Box::new(refusal)))
    }

    /// Refuses what must not leave this machine or would lead nowhere.
    pub(super) fn check(&mut self, in_git: bool) -> Result<(), CaptureError> {
        if let Some(refusal) = self.too_much(true, in_git) {
            return Err(refusal);
        }
        if !self.refused_secrets.is_empty() {
            return Err(CaptureError::Secrets { paths: std::mem::take(&mut self.refused_secrets) });
        }
        if !self.refused_links.is_empty() {
            return Err(CaptureError::LinksOutside { folder: self.root.clone(), links: std::mem::take(&mut self.refused_links) });
        }
        Ok(())
    }

    /// Whether a folder on the way is a link: what lies behind it is not ours to take.
    fn is_behind_link(&mut self, full: &Path) -> bool {
        let Some(parent) = full.parent().filter(|parent| *parent != self.root && parent.starts_with(&self.root)) else { return false };
        if let Some(known) = self.behind_link.get(parent) {
            return *known;
        }
        let is_link = std::fs::symlink_metadata(parent).is_ok_and(|meta| meta.is_symlink());
        let parent = parent.to_owned();
        let answer = is_link || self.is_behind_link(&parent);
        self.behind_link.insert(parent, answer);
        answer
    }
}

/// A path as people read it.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Whether a link at `path` (relative to the root) with this target is absolute or climbs out of the root.
fn leads_outside(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_climbs_out_is_known_by_its_text() {
        for (path, target, outside) in [
            ("a", "/etc/passwd", true),
            ("a", "../x", true),
            ("d/a", "../x", false),
            ("d/a", "../../x", true),
            ("d/a", "b/../../../x", true),
            ("a", "./b/c", false),
        ] {
            assert_eq!(leads_outside(path.as_bytes(), target.as_bytes()), outside, "{path} -> {target}");
        }
    }
}
