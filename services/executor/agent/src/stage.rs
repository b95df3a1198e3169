//! Taking over files of a training: a copy of the agent's own, hashed while it is read, durable before anything is answered.
//!
//! Copies, never hard links: the training may write into its file again the moment it has its answer.

use crate::{durable, socket::op::Fault};
use footplate_blobs::{EntryKind, Manifest, ManifestEntry};
use footplate_events::facts::DocumentRef;
use footplate_types::{ArtifactPath, Digest};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

const COPY_BYTES: usize = 256 << 10;
/// Files of one folder.
pub(crate) const FILES_MOST: usize = 100_000;

/// What a staged file or folder holds: a folder's manifest, and the name of the one file when a file was given. Its JSON is the manifest of
/// a checkpoint; whoever knows folders alone reads it as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedManifest {
    #[serde(flatten)]
    folder: Manifest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    single: Option<String>,
}

impl StagedManifest {
    fn new(entries: Vec<ManifestEntry>, single: Option<String>) -> Result<Self, Fault> {
        let folder = Manifest::new(entries).map_err(|error| Fault::invalid(error.to_string()))?;
        Ok(Self { folder, single })
    }

    /// Reads and checks the JSON of a manifest that came from elsewhere.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Single {
            single: Option<String>,
        }
        let folder = Manifest::read(bytes).map_err(|error| error.to_string())?;
        let Single { single } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        Ok(Self { folder, single })
    }

    /// The JSON bytes that are stored and hashed.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Everything in it.
    pub fn entries(&self) -> &[ManifestEntry] {
        self.folder.entries()
    }

    /// The files: path, content.
    pub fn files(&self) -> impl Iterator<Item = (&str, DocumentRef)> {
        self.folder.entries().iter().filter_map(|entry| match entry.kind {
            EntryKind::File { digest, bytes, .. } => Some((entry.path.as_str(), DocumentRef { digest, bytes })),
            EntryKind::Folder | EntryKind::Link { .. } => None,
        })
    }

    /// The one file's name when a file was given; absent for a folder.
    pub fn single(&self) -> Option<&str> {
        self.single.as_deref()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.folder.total_bytes()
    }

    /// The digest that a training is told: of the one file, or of the folder's manifest.
    pub fn digest(&self) -> Digest {
        let single = self.single().and_then(|name| self.files().find(|(path, _)| *path == name));
        single.map_or_else(|| Digest::of(&self.to_bytes()), |(_, blob)| blob.digest)
    }
}

/// Where the staged copy of a manifest's path lies below the staging folder.
pub(crate) fn content(staged: &Path) -> PathBuf {
    staged.join("content")
}

/// Copies what is at `source` into `staged` (a fresh folder), at most `bytes_most` bytes. Blocking. A fault is final; an I/O error of the
/// agent's own disk is not, and says so by the outer result.
pub(crate) fn take(source: &Path, staged: &Path, bytes_most: u64) -> io::Result<Result<StagedManifest, Fault>> {
    let mut taking = Taking {
        root: PathBuf::new(),
        content: content(staged),
        bytes_most,
        entries: Vec::new(),
        single: None,
        bytes: 0,
        open: Vec::new(),
    };
    match taking.run(source) {
        Ok(()) => {
            durable::sync_dir(staged)?;
            Ok(StagedManifest::new(taking.entries, taking.single))
        }
        Err(Stop::Refused(fault)) => Ok(Err(fault)),
        Err(Stop::Disk(error)) => Err(error),
    }
}

enum Stop {
    Refused(Fault),
    Disk(io::Error),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

struct Taking {
    /// The given folder, resolved.
    root: PathBuf,
    content: PathBuf,
    bytes_most: u64,
    entries: Vec<ManifestEntry>,
    single: Option<String>,
    bytes: u64,
    /// Resolved folders that are being walked, against loops of links.
    open: Vec<PathBuf>,
}

fn reading(path: &Path, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound => Fault::new("NOT_FOUND", format!("there is nothing at {}", path.display())),
        _ => Fault::invalid(format!("{} cannot be read: {error}", path.display())),
    }
}

impl Taking {
    fn run(&mut self, source: &Path) -> Result<(), Stop> {
        let resolved = fs::canonicalize(source).map_err(|error| reading(source, &error))?;
        let metadata = fs::metadata(&resolved).map_err(|error| reading(source, &error))?;
        fs::create_dir_all(&self.content).map_err(Stop::Disk)?;
        if metadata.is_dir() {
            self.root = resolved.clone();
            return self.folder(&resolved, "");
        }
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or("file").to_owned();
        self.single = Some(name.clone());
        self.file(&resolved, &name, &metadata)?;
        durable::sync_dir(&self.content).map_err(Stop::Disk)
    }

    fn folder(&mut self, folder: &Path, prefix: &str) -> Result<(), Stop> {
        self.open.push(folder.to_owned());
        let listed = fs::read_dir(folder).map_err(|error| reading(folder, &error))?;
        let mut names = Vec::new();
        for entry in listed {
            let name = entry.map_err(|error| reading(folder, &error))?.file_name();
            let name = name.into_string().map_err(|name| Fault::invalid(format!("the name {name:?} is not UTF-8")))?;
            names.push(name);
        }
        names.sort();
        if names.is_empty() && !prefix.is_empty() {
            self.add(prefix, EntryKind::Folder)?;
        }
        for name in names {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            self.entry(&folder.join(&name), &path)?;
        }
        self.open.pop();
        durable::sync_dir(&self.content.join(prefix)).map_err(Stop::Disk)
    }

    fn entry(&mut self, source: &Path, path: &str) -> Result<(), Stop> {
        let resolved = fs::canonicalize(source).map_err(|error| {
            let link = fs::symlink_metadata(source).is_ok_and(|metadata| metadata.is_symlink());
            if link { Fault::new("LINK_OUTSIDE", format!("{path} is a link to nothing")) } else { reading(source, &error) }
        })?;
        if !resolved.starts_with(&self.root) {
            return Err(Fault::new("LINK_OUTSIDE", format!("{path} leads outside of the folder")).into());
        }
        let metadata = fs::metadata(&resolved).map_err(|error| reading(source, &error))?;
        if !metadata.is_dir() {
            return self.file(&resolved, path, &metadata);
        }
        if self.open.contains(&resolved) {
            return Err(Fault::new("NOT_A_FILE", format!("{path} is a link to a folder that it stands in")).into());
        }
        fs::create_dir_all(self.content.join(path)).map_err(Stop::Disk)?;
        self.folder(&resolved, path)
    }

    fn file(&mut self, source: &Path, path: &str, before: &Metadata) -> Result<(), Stop> {
        if !before.is_file() {
            return Err(Fault::new("NOT_A_FILE", format!("{path} is neither a file nor a folder")).into());
        }
        if self.entries.len() >= FILES_MOST {
            return Err(Fault::new("TOO_LARGE", format!("more than {FILES_MOST} files")).into());
        }
        let total = self.bytes.saturating_add(before.len());
        if total > self.bytes_most {
            return Err(Fault::new("TOO_LARGE", format!("{total} bytes and more; this agent takes {} at once", self.bytes_most)).into());
        }
        let blob = self.copy(source, &self.content.join(path), before)?;
        let changed =
            || Fault::new("CHANGED_WHILE_READ", format!("{path} changed while it was read; save to a new name and hand that over"));
        let after = fs::metadata(source).map_err(|_| changed())?;
        let stamp = |metadata: &Metadata| (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if stamp(before) != stamp(&after) || blob.bytes != before.len() {
            return Err(changed().into());
        }
        self.bytes = self.bytes.saturating_add(blob.bytes);
        let mode = if before.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        self.add(path, EntryKind::File { digest: blob.digest, bytes: blob.bytes, mode })
    }

    fn add(&mut self, path: &str, kind: EntryKind) -> Result<(), Stop> {
        let path = ArtifactPath::parse(path).map_err(|error| Fault::invalid(error.to_string()))?;
        self.entries.push(ManifestEntry { path, kind });
        Ok(())
    }

    fn copy(&self, source: &Path, target: &Path, before: &Metadata) -> Result<DocumentRef, Stop> {
        let mut from = File::open(source).map_err(|error| reading(source, &error))?;
        let mut to = File::create(target).map_err(Stop::Disk)?;
        let mut hasher = Sha256::new();
        let mut bytes = 0u64;
        let mut buffer = vec![0u8; COPY_BYTES];
        loop {
            let count = from.read(&mut buffer).map_err(|error| reading(source, &error))?;
            // A file that grows while it is read would never end.
            if count == 0 || bytes > before.len() {
                break;
            }
            hasher.update(&buffer[..count]);
            to.write_all(&buffer[..count]).map_err(Stop::Disk)?;
            bytes += count as u64;
        }
        if before.permissions().mode() & 0o100 != 0 {
            to.set_permissions(fs::Permissions::from_mode(0o700)).map_err(Stop::Disk)?;
        }
        to.sync_all().map_err(Stop::Disk)?;
        Ok(DocumentRef { digest: Digest::from_bytes(hasher.finalize().into()), bytes })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{collections::BTreeMap, os::unix::fs::symlink};

    fn taken(source: &Path) -> (tempfile::TempDir, Result<StagedManifest, Fault>) {
        let staged = tempfile::tempdir().unwrap();
        let result = take(source, staged.path(), 1 << 20).unwrap();
        (staged, result)
    }

    #[test]
    fn a_file_is_copied_hashed_and_independent_of_what_happens_to_it_later() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("w.bin");
        fs::write(&source, b"weights").unwrap();
        let (staged, manifest) = taken(&source);
        let manifest = manifest.unwrap();
        assert_eq!((manifest.digest(), manifest.single()), (Digest::of(b"weights"), Some("w.bin")));
        assert_eq!(StagedManifest::read(&manifest.to_bytes()).unwrap(), manifest);
        fs::write(&source, b"WEIGHTS").unwrap();
        assert_eq!(fs::read(content(staged.path()).join("w.bin")).unwrap(), b"weights");
    }

    #[test]
    fn names_stay_as_they_are_and_empty_things_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["图/轴.png", "a%b.txt", "x#1.bin", "t:0", "p q+r", "e\u{301}", "\u{e9}", ".hidden", "zero"];
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        fs::write(dir.path().join("zero"), b"").unwrap();
        fs::create_dir_all(dir.path().join("empty/deeper")).unwrap();
        symlink("a%b.txt", dir.path().join("link")).unwrap();
        let (_staged, manifest) = taken(dir.path());
        let manifest = manifest.unwrap();
        let files: BTreeMap<&str, DocumentRef> = manifest.files().collect();
        assert!(names.iter().all(|name| files.contains_key(name)), "{manifest:?}");
        assert_eq!(files["link"].digest, Digest::of("a%b.txt".as_bytes()));
        let folders: Vec<_> = manifest.entries().iter().filter(|entry| entry.kind == EntryKind::Folder).collect();
        assert_eq!(folders.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["empty/deeper"]);
        assert_eq!(Manifest::read(&manifest.to_bytes()).unwrap().bytes(), manifest.to_bytes(), "a folder's manifest like any other");
    }

    #[test]
    fn what_leads_outside_or_is_no_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let code = |source: &Path| taken(source).1.unwrap_err().code;
        assert_eq!(code(&dir.path().join("absent")), "NOT_FOUND");
        for (target, told) in
            [("/etc/hostname", "LINK_OUTSIDE"), ("../..", "LINK_OUTSIDE"), ("nothing", "LINK_OUTSIDE"), (".", "NOT_A_FILE")]
        {
            let folder = dir.path().join("links");
            fs::create_dir_all(&folder).unwrap();
            symlink(target, folder.join("link")).unwrap();
            assert_eq!(code(&folder), told, "{target}");
            fs::remove_dir_all(&folder).unwrap();
        }
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(code(&pipe), "NOT_A_FILE");
        fs::write(dir.path().join("large"), vec![0u8; (1 << 20) + 1]).unwrap();
        assert_eq!(code(&dir.path().join("large")), "TOO_LARGE");
    }
}
