//! A folder as a list: every file by digest, empty folders, links that stay inside.

use crate::BlobError;
use footplate_types::{ArtifactPath, Digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The layout of the manifest; a higher one is refused.
const VERSION: u32 = 1;

/// The mode of a file that is not a program.
pub(crate) const PLAIN: u32 = 0o644;

/// The mode of a program.
pub(crate) const PROGRAM: u32 = 0o755;

/// A folder's content. Equal folders have equal manifests, byte for byte: entries are sorted by path, and times, owners and all of a mode but
/// the executable bit are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    entries: Vec<ManifestEntry>,
}

/// One thing in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Where, relative to the folder.
    pub path: ArtifactPath,
    /// What.
    #[serde(flatten)]
    pub kind: EntryKind,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EntryKind {
    /// A file.
    File {
        /// The SHA-256 of its content.
        digest: Digest,
        /// Its size.
        bytes: u64,
        /// 0o644, or 0o755 for a program.
        mode: u32,
    },
    /// A folder with nothing in it (others follow from the paths of what they hold).
    Folder,
    /// A symbolic link to something inside the folder.
    Link {
        /// Its text: relative, with `..` at its start only, and never out of the folder.
        target: String,
    },
}

impl Manifest {
    /// A manifest of these entries, checked and sorted.
    pub fn new(mut entries: Vec<ManifestEntry>) -> Result<Self, BlobError> {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Self { version: VERSION, entries };
        manifest.check()?;
        Ok(manifest)
    }

    /// Reads and checks a manifest.
    pub fn read(bytes: &[u8]) -> Result<Self, BlobError> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| BlobError::Manifest(error.to_string()))?;
        if manifest.version > VERSION {
            return Err(BlobError::Manifest(format!("it has version {}, this program reads up to {VERSION}", manifest.version)));
        }
        manifest.check()?;
        Ok(manifest)
    }

    /// Its bytes, equal for equal manifests.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest of text and numbers always has a JSON form")
    }

    /// The entries, by path.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// The size of all files together.
    pub fn total_bytes(&self) -> u64 {
        let sizes = self.entries.iter().map(|entry| if let EntryKind::File { bytes, .. } = entry.kind { bytes } else { 0 });
        sizes.fold(0, u64::saturating_add)
    }

    /// The digests of all files.
    pub fn digests(&self) -> BTreeSet<Digest> {
        let files =
            self.entries.iter().filter_map(|entry| if let EntryKind::File { digest, .. } = entry.kind { Some(digest) } else { None });
        files.collect()
    }

    /// No path twice, nothing below a file or a link, no link that leads outside: then writing entry by entry stays inside the folder.
    fn check(&self) -> Result<(), BlobError> {
        let mut kinds = BTreeMap::new();
        for entry in &self.entries {
            if kinds.insert(entry.path.as_str(), &entry.kind).is_some() {
                return Err(BlobError::Manifest(format!("{:?} stands in it twice", entry.path.as_str())));
            }
        }
        for entry in &self.entries {
            let path = entry.path.as_str();
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if let Some(blocked) = above.into_iter().find(|above| kinds.contains_key(above)) {
                return Err(BlobError::Manifest(format!("{path:?} lies below {blocked:?}, which is no folder with content")));
            }
            if let EntryKind::Link { target } = &entry.kind {
                check_link(path, target)?;
            }
        }
        Ok(())
    }
}

/// A link is kept when it cannot lead outside: relative, `..` only at its start, not above the folder. A later `..` could step out through
/// another link; without one, every step is down from a real folder or through a link that obeys the same rule.
pub(crate) fn check_link(path: &str, target: &str) -> Result<(), BlobError> {
    let refused = |reason: &str| Err(BlobError::Refused { path: path.to_owned(), reason: format!("it is a link to {target:?}, {reason}") });
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return refused("and only relative links are kept");
    }
    let parts: Vec<&str> = target.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let up = parts.iter().take_while(|part| **part == "..").count();
    if up > path.matches('/').count() {
        return refused("which leads outside the folder");
    }
    if parts[up..].contains(&"..") {
        return refused("which goes down and up again; make it direct");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> ManifestEntry {
        ManifestEntry { path: ArtifactPath::parse(path).unwrap(), kind }
    }

    fn file(path: &str) -> ManifestEntry {
        entry(path, EntryKind::File { digest: Digest::of(path.as_bytes()), bytes: path.len() as u64, mode: PLAIN })
    }

    fn link(path: &str, target: &str) -> ManifestEntry {
        entry(path, EntryKind::Link { target: target.to_owned() })
    }

    #[test]
    fn equal_folders_have_equal_manifests_and_read_back() {
        let entries = vec![file("b/c"), file("a"), entry("empty", EntryKind::Folder), link("b/l", "../a")];
        let manifest = Manifest::new(entries.clone()).unwrap();
        let reversed = Manifest::new(entries.into_iter().rev().collect()).unwrap();
        assert_eq!(manifest.bytes(), reversed.bytes());
        assert_eq!(Manifest::read(&manifest.bytes()).unwrap(), manifest);
        assert_eq!(manifest.total_bytes(), 4);
    }

    #[test]
    fn a_link_that_could_lead_outside_is_refused_by_name() {
        for (path, target) in
            [("l", "/etc/passwd"), ("l", ".."), ("a/l", "../../x"), ("l", "d/.."), ("l", ""), ("l", "a/../../x"), ("l", "./..")]
        {
            let refused = Manifest::new(vec![link(path, target)]);
            assert!(matches!(&refused, Err(BlobError::Refused { path: named, .. }) if named == path), "{target}: {refused:?}");
        }
        for (path, target) in [("l", "a"), ("a/l", "../b"), ("a/b/l", "../../c/d"), ("l", "./x//y"), ("l", "..a"), ("l", ".")] {
            assert!(Manifest::new(vec![link(path, target)]).is_ok(), "{target}");
        }
    }

    #[test]
    fn a_manifest_that_would_write_through_a_link_or_a_file_is_refused() {
        for entries in [vec![link("d", "other"), file("d/x")], vec![file("d"), file("d/x/y")], vec![file("d"), file("d")]] {
            assert!(matches!(Manifest::new(entries), Err(BlobError::Manifest(_))));
        }
    }

    #[test]
    fn hostile_manifests_are_refused() {
        for text in [
            "",
            "{}",
            r#"{"version":2,"entries":[]}"#,
            r#"{"version":1,"entries":[{"path":"../x","kind":"folder"}]}"#,
            r#"{"version":1,"entries":[{"path":"/x","kind":"folder"}]}"#,
            r#"{"version":1,"entries":[{"path":"x","kind":"device"}]}"#,
        ] {
            assert!(matches!(Manifest::read(text.as_bytes()), Err(BlobError::Manifest(_))), "{text}");
        }
    }
}
