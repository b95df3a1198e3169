//! From a manifest to a folder: beside the place first, then in it, whole.

use super::upload::blocking;
use crate::{BlobError, Blobs, EntryKind, Manifest, ManifestEntry, manifest::PROGRAM};
use footplate_types::Digest;
use futures::{StreamExt, TryStreamExt, stream};
use std::{
    ffi::OsString,
    fs::{File, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::io::AsyncWriteExt;

/// Files on their way at once.
const FILES_IN_FLIGHT: usize = 8;

/// Up to this many files are synced one by one; more go with one sync of the whole file system, which also waits for what others write.
const SYNC_EACH_FILES: usize = 64;

/// The most bytes of a manifest.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;

impl Blobs {
    /// Reads a manifest blob.
    pub async fn manifest(&self, digest: &Digest) -> Result<Manifest, BlobError> {
        Manifest::read(&self.get_bytes(digest, MAX_MANIFEST_BYTES).await?)
    }

    /// Writes the folder of a manifest to `dest`, which must be absent or empty. Every file is checked against its digest. The folder appears
    /// whole and durable, or not at all: until then it is written beside `dest`, as `.<name>.partial`, and what an earlier download cut
    /// short has left there is removed first.
    pub async fn download_dir(&self, manifest: &Manifest, dest: &Path) -> Result<(), BlobError> {
        let place = Place::of(dest)?;
        let partial = blocking(move || place.claim()).await?;
        match self.fill(manifest, &partial.partial).await {
            Ok(()) => {
                let sync_each = syncs_each(manifest);
                blocking(move || partial.publish(sync_each)).await
            }
            Err(error) => {
                blocking(move || partial.discard()).await?;
                Err(error)
            }
        }
    }

    /// Writes every entry. After a failure nothing new is begun, and what is under way is waited for, so that the folder can be removed.
    async fn fill(&self, manifest: &Manifest, folder: &Path) -> Result<(), BlobError> {
        let failed = AtomicBool::new(false);
        let sync = syncs_each(manifest);
        let write = async |entry| {
            if failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let written = self.write_entry(entry, folder, sync).await;
            failed.fetch_or(written.is_err(), Ordering::Relaxed);
            written
        };
        let mut writes = std::pin::pin!(stream::iter(manifest.entries()).map(write).buffer_unordered(FILES_IN_FLIGHT));
        let mut outcome = Ok(());
        while let Some(written) = writes.next().await {
            outcome = outcome.and(written);
        }
        outcome
    }

    async fn write_entry(&self, entry: &ManifestEntry, folder: &Path, sync: bool) -> Result<(), BlobError> {
        let path = folder.join(entry.path.as_str());
        let parent = if entry.kind == EntryKind::Folder { Some(path.as_path()) } else { path.parent() };
        if let Some(parent) = parent {
            tokio::fs::create_dir_all(parent).await.map_err(|error| BlobError::io(parent, error))?;
        }
        match &entry.kind {
            EntryKind::Folder => Ok(()),
            EntryKind::Link { target } => tokio::fs::symlink(target, &path).await.map_err(|error| BlobError::io(&path, error)),
            EntryKind::File { digest, mode, .. } => self.write_file(digest, &path, *mode, sync).await,
        }
    }

    async fn write_file(&self, digest: &Digest, path: &Path, mode: u32, sync: bool) -> Result<(), BlobError> {
        let failed = |error| BlobError::io(path, error);
        let mut content = self.open_verified(digest).await?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let mut file = tokio::fs::OpenOptions::from(options).open(path).await.map_err(failed)?;
        while let Some(piece) = content.try_next().await? {
            file.write_all(&piece).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        if mode == PROGRAM {
            // The process's mask may have taken the bits away.
            file.set_permissions(std::fs::Permissions::from_mode(mode)).await.map_err(failed)?;
        }
        if sync {
            file.sync_all().await.map_err(failed)?;
        }
        Ok(())
    }
}

/// Where a folder is to appear, and where it is written until then.
struct Place {
    dest: PathBuf,
    parent: PathBuf,
    partial: PathBuf,
}

/// The partial folder, locked against other downloads into the same place.
struct Claimed {
    dest: PathBuf,
    parent: PathBuf,
    partial: PathBuf,
    lock: File,
}

impl Place {
    fn of(dest: &Path) -> Result<Self, BlobError> {
        let name = dest
            .file_name()
            .ok_or_else(|| BlobError::Refused { path: dest.display().to_string(), reason: "it does not name a folder".to_owned() })?;
        let parent = match dest.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        Ok(Self { dest: dest.to_owned(), partial: parent.join(hidden), parent })
    }

    fn claim(self) -> Result<Claimed, BlobError> {
        self.check_free()?;
        std::fs::create_dir_all(&self.parent).map_err(|error| BlobError::io(&self.parent, error))?;
        let failed = |error| BlobError::io(&self.partial, error);
        match std::fs::create_dir(&self.partial) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let lock = File::open(&self.partial).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BlobError::InUse { path: self.dest }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        empty(&self.partial).map_err(failed)?;
        Ok(Claimed { dest: self.dest, parent: self.parent, partial: self.partial, lock })
    }

    fn check_free(&self) -> Result<(), BlobError> {
        let exists = || BlobError::Exists { path: self.dest.clone() };
        match std::fs::read_dir(&self.dest) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    Err(exists())
                } else {
                    Ok(())
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Err(exists()),
            Err(error) => Err(BlobError::io(&self.dest, error)),
        }
    }
}

impl Claimed {
    /// Makes all of it durable, then gives it its name.
    fn publish(self, files_are_synced: bool) -> Result<(), BlobError> {
        let synced = if files_are_synced { sync_folders(&self.partial) } else { rustix::fs::syncfs(&self.lock).map_err(io::Error::from) };
        synced.map_err(|error| BlobError::io(&self.partial, error))?;
        std::fs::rename(&self.partial, &self.dest).map_err(|error| match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory => BlobError::Exists { path: self.dest.clone() },
            _ => BlobError::io(&self.dest, error),
        })?;
        let synced = File::open(&self.parent).and_then(|parent| parent.sync_all());
        synced.map_err(|error| BlobError::io(&self.parent, error))
    }

    fn discard(self) -> Result<(), BlobError> {
        std::fs::remove_dir_all(&self.partial).map_err(|error| BlobError::io(&self.partial, error))
    }
}

fn syncs_each(manifest: &Manifest) -> bool {
    manifest.entries().len() <= SYNC_EACH_FILES
}

/// Syncs a folder and every folder in it.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Removes everything in a folder.
fn empty(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
