//! Unpacking a code snapshot (`.tar.gz`) into a fresh folder.
//!
//! The archive is taken for hostile. Only files, folders and symbolic links are made, all below the target; nothing is ever written through
//! a link (a link may point anywhere, as links to data sets do, but no later entry may lie behind one).

use flate2::read::GzDecoder;
use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

/// How much an archive may hold.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries.
    pub entries: usize,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self { bytes: 16 << 30, entries: 500_000 }
    }
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// An entry that no snapshot has.
    #[error("snapshot entry {path:?} refused: {why}")]
    Hostile {
        /// The entry.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than the limits.
    #[error("snapshot is larger than {0} allows")]
    TooLarge(&'static str),
    /// Not a readable archive.
    #[error("snapshot is not a readable .tar.gz: {0}")]
    Unreadable(io::Error),
    /// This node's disk.
    #[error("cannot write the snapshot's files: {0}")]
    Disk(io::Error),
}

/// Unpacks `archive` into `target`, which must not be there yet. Blocking.
pub fn unpack(archive: impl Read, target: &Path, limits: UnpackLimits) -> Result<(), UnpackError> {
    fs::create_dir_all(target.parent().unwrap_or(target)).map_err(UnpackError::Disk)?;
    fs::create_dir(target).map_err(UnpackError::Disk)?;
    let mut unpacking = Unpacking { target, made: BTreeSet::new(), links: BTreeSet::new(), left: limits.bytes };
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let entries = archive.entries().map_err(UnpackError::Unreadable)?;
    for (count, entry) in entries.enumerate() {
        if count >= limits.entries {
            return Err(UnpackError::TooLarge("the number of entries"));
        }
        unpacking.entry(entry.map_err(UnpackError::Unreadable)?)?;
    }
    Ok(())
}

struct Unpacking<'a> {
    target: &'a Path,
    made: BTreeSet<PathBuf>,
    links: BTreeSet<PathBuf>,
    left: u64,
}

impl Unpacking<'_> {
    fn entry<R: Read>(&mut self, mut entry: tar::Entry<'_, R>) -> Result<(), UnpackError> {
        let named = entry.path().map_err(UnpackError::Unreadable)?.into_owned();
        let hostile = |why| UnpackError::Hostile { path: named.to_string_lossy().into_owned(), why };
        let kind = entry.header().entry_type();
        let Some(path) = inner(&named).map_err(hostile)? else { return Ok(()) };
        if path.ancestors().skip(1).any(|above| self.links.contains(above)) {
            return Err(hostile("it lies behind a link"));
        }
        if kind == tar::EntryType::Directory {
            return self.folder(&path);
        }
        if !self.made.insert(path.clone()) {
            return Err(hostile("it is there twice"));
        }
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        let full = self.target.join(&path);
        match kind {
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let executable = entry.header().mode().unwrap_or(0) & 0o100 != 0;
                self.file(&mut entry, &full, executable)
            }
            tar::EntryType::Symlink => {
                let link = entry.link_name().map_err(UnpackError::Unreadable)?.ok_or_else(|| hostile("a link without a target"))?;
                self.links.insert(path);
                std::os::unix::fs::symlink(link, full).map_err(UnpackError::Disk)
            }
            _ => Err(hostile("it is neither a file nor a folder nor a symbolic link")),
        }
    }

    fn folder(&self, path: &Path) -> Result<(), UnpackError> {
        fs::create_dir_all(self.target.join(path)).map_err(UnpackError::Disk)
    }

    fn file(&mut self, content: &mut impl Read, path: &Path, executable: bool) -> Result<(), UnpackError> {
        // A new file or nothing: neither an earlier entry nor a link is ever followed.
        let mode = if executable { 0o755 } else { 0o644 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(UnpackError::Disk)?;
        let copied = io::copy(&mut content.take(self.left.saturating_add(1)), &mut file).map_err(copy_error)?;
        if copied > self.left {
            return Err(UnpackError::TooLarge("the number of bytes"));
        }
        self.left -= copied;
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(UnpackError::Disk)
    }
}

fn copy_error(error: io::Error) -> UnpackError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other => {
            UnpackError::Unreadable(error)
        }
        _ => UnpackError::Disk(error),
    }
}

/// The path below the target; `None` for the target itself.
fn inner(path: &Path) -> Result<Option<PathBuf>, &'static str> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => out.push(part),
            Component::CurDir => {}
            Component::ParentDir => return Err("it leads upwards"),
            Component::RootDir | Component::Prefix(_) => return Err("it is absolute"),
        }
    }
    Ok(if out.as_os_str().is_empty() { None } else { Some(out) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use flate2::{Compression, write::GzEncoder};

    /// An archive with raw names, as no honest packer makes them.
    fn archive(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o6755);
            let is_link = matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link);
            if is_link {
                header.as_mut_bytes()[157..157 + content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(if is_link { 0 } else { content.len() as u64 });
            header.set_cksum();
            tar.append(&header, if is_link { &b""[..] } else { content.as_bytes() }).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn files_folders_and_links_come_out_as_they_were() {
        use tar::EntryType::{Directory, Regular, Symlink};
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("code");
        let bytes = archive(&[("./", Directory, ""), ("a/b.py", Regular, "print()"), ("link", Symlink, "/data/set"), ("e", Directory, "")]);
        unpack(bytes.as_slice(), &target, UnpackLimits::default()).unwrap();
        assert_eq!(fs::read_to_string(target.join("a/b.py")).unwrap(), "print()");
        assert_eq!(fs::metadata(target.join("a/b.py")).unwrap().permissions().mode() & 0o7777, 0o755, "no set-user-id bits");
        assert_eq!(fs::read_link(target.join("link")).unwrap(), Path::new("/data/set"));
        assert!(target.join("e").is_dir());
    }

    #[test]
    fn hostile_entries_are_refused_and_write_nothing_outside() {
        use tar::EntryType::{Block, Char, Fifo, Link, Regular, Symlink};
        let outside = "../outside.txt";
        let cases: [&[(&str, tar::EntryType, &str)]; 8] = [
            &[(outside, Regular, "x")],
            &[("a/../../outside.txt", Regular, "x")],
            &[("/tmp/footplate-hostile.txt", Regular, "x")],
            &[("up", Symlink, ".."), ("up/outside.txt", Regular, "x")],
            &[("f", Symlink, outside), ("f", Regular, "x")],
            &[("hard", Link, "/etc/passwd")],
            &[("pipe", Fifo, "")],
            &[("disk", Block, ""), ("tty", Char, "")],
        ];
        for entries in cases {
            let dir = tempfile::tempdir().unwrap();
            let result = unpack(archive(entries).as_slice(), &dir.path().join("code"), UnpackLimits::default());
            assert!(matches!(result, Err(UnpackError::Hostile { .. })), "{entries:?}: {result:?}");
            assert!(!dir.path().join("outside.txt").exists(), "{entries:?}");
            assert!(!Path::new("/tmp/footplate-hostile.txt").exists());
        }
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit_and_garbage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let zeros = "0".repeat(100_000);
        let bytes = archive(&[("a", tar::EntryType::Regular, &zeros), ("b", tar::EntryType::Regular, &zeros)]);
        let limits = UnpackLimits { bytes: 150_000, entries: 10 };
        assert!(matches!(unpack(bytes.as_slice(), &dir.path().join("1"), limits), Err(UnpackError::TooLarge(_))));
        let few = UnpackLimits { bytes: 1 << 20, entries: 1 };
        assert!(matches!(unpack(bytes.as_slice(), &dir.path().join("2"), few), Err(UnpackError::TooLarge(_))));
        let cut = &bytes[..bytes.len() / 2];
        assert!(matches!(unpack(cut, &dir.path().join("3"), UnpackLimits::default()), Err(UnpackError::Unreadable(_))));
        assert!(matches!(unpack(&b"no gzip"[..], &dir.path().join("4"), UnpackLimits::default()), Err(UnpackError::Unreadable(_))));
    }
}
