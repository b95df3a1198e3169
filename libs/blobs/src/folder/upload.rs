//! From a folder to a manifest: walk, hash, send what is not there.

use crate::{
    BlobError, BlobRef, Blobs, EntryKind, Manifest, ManifestEntry,
    blobs::SINGLE_PUT_BYTES,
    manifest::{PLAIN, PROGRAM, check_link},
};
use bytes::Bytes;
use footplate_types::{ArtifactPath, Digest};
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    fs::Metadata,
    io::{ErrorKind, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Files on their way at once: a local disk syncs them together, and small ones are in memory (at most 8 MiB each).
const FILES_IN_FLIGHT: usize = 16;

/// The blobs that one upload has seen: content that comes twice is sent once.
type Stored = Mutex<BTreeSet<BlobRef>>;

/// The most entries of one folder.
const MAX_ENTRIES: usize = 1_000_000;

/// What counts as already stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// An object of the right name whose content was read and fits; a damaged one is replaced.
    #[default]
    Verify,
    /// An object of the right name and size, unread: for stores that verify themselves and cost money to read. A damaged object of the right
    /// size stays until [`Blobs::verify`] finds it.
    TrustSize,
}

/// What an upload of a folder did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The blob that is the manifest.
    pub manifest_blob: BlobRef,
    /// The manifest.
    pub manifest: Manifest,
    /// Bytes of files that were sent; 0 when every file was there.
    pub sent_bytes: u64,
    /// Files that were sent.
    pub sent_files: u64,
}

/// Something found in the folder.
struct Found {
    entry: ArtifactPath,
    path: PathBuf,
    kind: FoundKind,
}

enum FoundKind {
    File { mode: u32 },
    Folder,
    Link { target: String },
}

impl Blobs {
    /// Stores a folder: every file that is not stored yet, then the manifest. Files are told apart by content alone, so that a rename sends
    /// nothing; every file is read each time. A name that cannot be stored, a link that leads outside, a device or a socket is refused by
    /// name before anything is sent.
    pub async fn upload_dir(&self, path: &Path, existing: Existing) -> Result<Uploaded, BlobError> {
        let root = path.to_owned();
        let found = blocking(move || walk(&root)).await?;
        let stored = Mutex::new(BTreeSet::new());
        let (mut sent_bytes, mut sent_files) = (0, 0);
        let mut entries = Vec::with_capacity(found.len());
        let mut uploads = stream::iter(found).map(|found| self.upload_entry(found, existing, &stored)).buffered(FILES_IN_FLIGHT);
        while let Some((entry, sent)) = uploads.try_next().await? {
            sent_bytes += sent.unwrap_or(0);
            sent_files += u64::from(sent.is_some());
            entries.push(entry);
        }
        drop(uploads);
        let manifest = Manifest::new(entries)?;
        let manifest_blob = self.put_bytes(Bytes::from(manifest.bytes())).await?;
        Ok(Uploaded { manifest_blob, manifest, sent_bytes, sent_files })
    }

    /// The entry of the manifest, and how many bytes were sent where something was.
    async fn upload_entry(&self, found: Found, existing: Existing, stored: &Stored) -> Result<(ManifestEntry, Option<u64>), BlobError> {
        let mut sent = None;
        let kind = match found.kind {
            FoundKind::Folder => EntryKind::Folder,
            FoundKind::Link { target } => EntryKind::Link { target },
            FoundKind::File { mode } => {
                let (blob, was_sent) = self.upload_file(&found.path, existing, stored).await?;
                sent = was_sent.then_some(blob.bytes);
                EntryKind::File { digest: blob.digest, bytes: blob.bytes, mode }
            }
        };
        Ok((ManifestEntry { path: found.entry, kind }, sent))
    }

    /// Stores one file unless it is stored (`stored` are the blobs seen by this upload); whether it was sent.
    async fn upload_file(&self, path: &Path, existing: Existing, stored: &Stored) -> Result<(BlobRef, bool), BlobError> {
        let file = path.to_owned();
        let (blob, content) = blocking(move || hash_file(&file)).await?;
        let is_first = stored.lock().unwrap_or_else(PoisonError::into_inner).insert(blob);
        if !is_first || self.is_stored(&blob, existing).await? {
            return Ok((blob, false));
        }
        match content {
            Some(content) => self.put_bytes(content).await.map(drop)?,
            None => match self.put_file(path, Some(blob.digest), blob.bytes).await {
                Ok(_) => {}
                Err(BlobError::Mismatch { .. } | BlobError::TooLarge { .. }) => return Err(BlobError::Changed { path: path.to_owned() }),
                Err(error) => return Err(error),
            },
        }
        Ok((blob, true))
    }

    /// Whether a blob lies there, by the given measure.
    pub async fn is_stored(&self, blob: &BlobRef, existing: Existing) -> Result<bool, BlobError> {
        match self.stat(&blob.digest).await {
            Ok(stored) if stored.bytes != blob.bytes => Ok(false),
            Ok(_) if existing == Existing::TrustSize => Ok(true),
            Ok(_) => match self.verify(&blob.digest).await {
                Ok(_) => Ok(true),
                Err(BlobError::Damaged { .. } | BlobError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            },
            Err(BlobError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Runs file work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, BlobError> + Send + 'static) -> Result<T, BlobError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| BlobError::Source(std::io::Error::other(error)))?
}

/// The digest and size of a file, and its content where it is small.
fn hash_file(path: &Path) -> Result<(BlobRef, Option<Bytes>), BlobError> {
    let failed = |error| BlobError::io(path, error);
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut buffer = Vec::new();
    Read::by_ref(&mut file).take(SINGLE_PUT_BYTES as u64 + 1).read_to_end(&mut buffer).map_err(failed)?;
    if buffer.len() <= SINGLE_PUT_BYTES {
        let content = Bytes::from(buffer);
        return Ok((BlobRef { digest: Digest::of(&content), bytes: content.len() as u64 }, Some(content)));
    }
    let (mut hasher, mut bytes) = (Sha256::new(), buffer.len() as u64);
    hasher.update(&buffer);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok((BlobRef { digest: Digest::from_bytes(hasher.finalize().into()), bytes }, None))
}

/// Everything in the folder that a manifest lists, or the first thing that it cannot.
fn walk(root: &Path) -> Result<Vec<Found>, BlobError> {
    let mut found = Vec::new();
    let mut folders = vec![(root.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        let failed = |error| BlobError::io(&folder, error);
        let mut is_empty = true;
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            is_empty = false;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| BlobError::Refused {
                path: format!("{prefix}{}", name.to_string_lossy()),
                reason: "its name is not UTF-8".to_owned(),
            })?;
            let inside = format!("{prefix}{name}");
            let meta = entry.metadata().map_err(|error| BlobError::io(&entry.path(), error))?;
            if meta.is_dir() {
                folders.push((entry.path(), format!("{inside}/")));
                continue;
            }
            let kind = found_kind(&inside, &entry.path(), &meta)?;
            found.push(Found { entry: named(&inside)?, path: entry.path(), kind });
            if found.len() + folders.len() > MAX_ENTRIES {
                return Err(BlobError::Refused {
                    path: root.display().to_string(),
                    reason: format!("it holds more than {MAX_ENTRIES} entries"),
                });
            }
        }
        if is_empty && !prefix.is_empty() {
            found.push(Found { entry: named(prefix.trim_end_matches('/'))?, path: folder, kind: FoundKind::Folder });
        }
    }
    Ok(found)
}

fn named(inside: &str) -> Result<ArtifactPath, BlobError> {
    ArtifactPath::parse(inside)
        .map_err(|invalid| BlobError::Refused { path: inside.to_owned(), reason: format!("allowed: {}", invalid.allowed) })
}

fn found_kind(inside: &str, path: &Path, meta: &Metadata) -> Result<FoundKind, BlobError> {
    if meta.is_file() {
        let is_program = meta.permissions().mode() & 0o111 != 0;
        return Ok(FoundKind::File { mode: if is_program { PROGRAM } else { PLAIN } });
    }
    if !meta.is_symlink() {
        return Err(BlobError::Refused { path: inside.to_owned(), reason: "only files, folders and links are stored".to_owned() });
    }
    let target = std::fs::read_link(path).map_err(|error| BlobError::io(path, error))?;
    let target = target
        .to_str()
        .ok_or_else(|| BlobError::Refused { path: inside.to_owned(), reason: "it is a link to a name that is not UTF-8".to_owned() })?;
    check_link(inside, target)?;
    Ok(FoundKind::Link { target: target.to_owned() })
}
