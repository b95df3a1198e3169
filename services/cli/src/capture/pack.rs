//! Writing the archive: a sorted tar without times and owners, compressed the same way each time, and the digest of what is in it.

use super::{
    CaptureError,
    listing::{Entry, shown},
};
use flate2::{Compression, GzBuilder, write::GzEncoder};
use footplate_types::Digest;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, BufWriter, Read, Write},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::Path,
};

/// The most bytes of content in one snapshot.
pub const SNAPSHOT_BYTES_MAX: u64 = 4 << 30;
/// The "operating system" of a gzip header that says "unknown".
const GZIP_SYSTEM_UNKNOWN: u8 = 255;

/// The packed files: a `.tar.gz` in a temporary file that goes away with this value.
#[derive(Debug)]
pub struct Archive {
    file: tempfile::NamedTempFile,
    /// SHA-256 of the `.tar.gz`: its name in the object store.
    pub digest: Digest,
    /// Size of the `.tar.gz`, in bytes.
    pub bytes: u64,
}

impl Archive {
    /// Where the `.tar.gz` lies.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Packs the entries; gives back the archive and the digest of the tree.
///
/// The tree's digest is SHA-256 over one record an entry, in the order of the paths' bytes: mode, a blank, the SHA-256 of the content (of a
/// link: of its target), a tab, the path, a zero byte. It knows no times, so a touched file is the same file.
///
/// `working` is the folder that the run starts in, relative to the root: when it holds nothing that is captured, it is packed as an empty one.
pub(super) fn pack(root: &Path, entries: &BTreeMap<Vec<u8>, Entry>, working: &str) -> Result<(Archive, Digest), CaptureError> {
    let file = tempfile::Builder::new().prefix("footplate-snapshot-").suffix(".tar.gz").tempfile().map_err(CaptureError::scratch)?;
    let (digest, bytes, tree) = write(file.as_file(), root, entries, working)?;
    Ok((Archive { file, digest, bytes }, tree))
}

/// Writes the archive; its digest, its size, and the tree's digest.
fn write(file: &File, root: &Path, entries: &BTreeMap<Vec<u8>, Entry>, working: &str) -> Result<(Digest, u64, Digest), CaptureError> {
    let sink = HashingWriter { inner: BufWriter::new(file), hasher: Sha256::new(), bytes: 0 };
    let gzip = GzBuilder::new().mtime(0).operating_system(GZIP_SYSTEM_UNKNOWN).write(sink, Compression::new(6));
    let mut tar = tar::Builder::new(gzip);
    let mut tree = Sha256::new();
    let mut total = 0u64;
    for (path, entry) in entries {
        total += match entry {
            Entry::File { bytes, .. } => *bytes,
            Entry::Link { .. } => 0,
        };
        if total > SNAPSHOT_BYTES_MAX {
            return Err(CaptureError::TooLarge { folder: root.to_owned(), limit_bytes: SNAPSHOT_BYTES_MAX });
        }
        let (mode, content) = append(&mut tar, root, path, entry)?;
        tree.update(format!("{mode} {content}\t").as_bytes());
        tree.update(path);
        tree.update([0]);
    }
    if !working.is_empty() && !holds_any(entries, working) {
        tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), working, std::io::empty()).map_err(CaptureError::scratch)?;
    }
    let mut sink = tar.into_inner().and_then(GzEncoder::finish).map_err(CaptureError::scratch)?;
    sink.flush().map_err(CaptureError::scratch)?;
    Ok((Digest::from_bytes(sink.hasher.finalize().into()), sink.bytes, Digest::from_bytes(tree.finalize().into())))
}

/// Whether something is captured below `folder`.
fn holds_any(entries: &BTreeMap<Vec<u8>, Entry>, folder: &str) -> bool {
    let below = format!("{folder}/").into_bytes();
    entries.range(below.clone()..).next().is_some_and(|(path, _)| path.starts_with(&below))
}

/// A header without times and owners.
fn header(kind: tar::EntryType, mode: u32, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn append(tar: &mut tar::Builder<impl Write>, root: &Path, path: &[u8], entry: &Entry) -> Result<(&'static str, Digest), CaptureError> {
    let name = Path::new(OsStr::from_bytes(path));
    match entry {
        Entry::Link { target } => {
            let mut header = header(tar::EntryType::Symlink, 0o777, 0);
            tar.append_link(&mut header, name, OsStr::from_bytes(target)).map_err(CaptureError::scratch)?;
            Ok(("120000", Digest::of(target)))
        }
        Entry::File { bytes, executable } => {
            let mut header = header(tar::EntryType::Regular, if *executable { 0o755 } else { 0o644 }, *bytes);
            let unreadable = |source| CaptureError::Unreadable { path: shown(path), source };
            // A file swapped for a link between listing and reading must not be followed.
            let file = File::options()
                .read(true)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(root.join(name))
                .map_err(unreadable)?;
            let mut reader = ExactReader { inner: file, hasher: Sha256::new(), left: *bytes, failed: None };
            tar.append_data(&mut header, name, &mut reader).map_err(CaptureError::scratch)?;
            reader.finish(path).map(|content| (if *executable { "100755" } else { "100644" }, content))
        }
    }
}

/// Gives exactly the promised bytes, hashing them; a file that has fewer or more, or fails, is told at the end.
struct ExactReader {
    inner: File,
    hasher: Sha256,
    left: u64,
    failed: Option<io::Error>,
}

impl ExactReader {
    fn finish(mut self, path: &[u8]) -> Result<Digest, CaptureError> {
        if let Some(source) = self.failed.take() {
            return Err(CaptureError::Unreadable { path: shown(path), source });
        }
        let more = self.inner.read(&mut [0u8; 1]).unwrap_or(0);
        if self.left > 0 || more > 0 {
            return Err(CaptureError::Changed { path: shown(path) });
        }
        Ok(Digest::from_bytes(self.hasher.finalize().into()))
    }
}

impl Read for ExactReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        match self.inner.read(&mut buffer[..most]) {
            Ok(count) => {
                self.hasher.update(&buffer[..count]);
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) => {
                self.failed = Some(error);
                Ok(0)
            }
        }
    }
}

struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
