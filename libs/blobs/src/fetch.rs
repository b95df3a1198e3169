//! From a blob to a file: whole and right, or not there; what broke off is gone on with.

use crate::{BlobError, BlobRef, Blobs, blobs::key_of};
use footplate_types::Digest;
use futures::TryStreamExt;
use object_store::{GetOptions, GetRange};
use sha2::{Digest as _, Sha256};
use std::{
    ffi::OsString,
    fs::{File, TryLockError},
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

/// How often a fetch that has broken off is gone on with, and the first and longest pause before that. The store has tried each request again
/// by itself already.
const TRIES: u32 = 6;
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

const READ_BYTES: usize = 256 << 10;

/// What a fetch did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The blob.
    pub blob: BlobRef,
    /// Bytes of it that an earlier fetch had brought already.
    pub kept_bytes: u64,
}

/// The file that is being written, beside the place where it is to appear.
struct Partial {
    path: PathBuf,
    file: tokio::fs::File,
    hasher: Sha256,
    bytes: u64,
}

impl Blobs {
    /// Writes a blob to `file`, which must not be there, and checks it against its digest: it appears whole and durable, or not at all. Until
    /// then it is written beside it as `.<name>.partial`; a fetch that was cut short is gone on with from there, in this call as often as
    /// that helps, and by the next call for the same file.
    pub async fn fetch_file(&self, digest: &Digest, file: &Path) -> Result<Fetched, BlobError> {
        if tokio::fs::try_exists(file).await.map_err(|error| BlobError::io(file, error))? {
            return Err(BlobError::Exists { path: file.to_owned() });
        }
        let blob = self.stat(digest).await?;
        let mut partial = Partial::open(file, blob.bytes).await?;
        let kept_bytes = partial.bytes;
        self.fetch_rest(&mut partial, &blob).await?;
        let mut found = partial.found();
        if found != *digest && kept_bytes > 0 {
            // What was kept may be the fault: once more, all of it.
            partial.begin_again().await?;
            self.fetch_rest(&mut partial, &blob).await?;
            found = partial.found();
        }
        if found != *digest {
            let path = partial.path.clone();
            let _ = tokio::fs::remove_file(path).await;
            return Err(BlobError::Damaged { digest: *digest, found });
        }
        partial.publish(file).await?;
        Ok(Fetched { blob, kept_bytes })
    }

    /// Appends what is missing, and goes on where it broke off.
    async fn fetch_rest(&self, partial: &mut Partial, blob: &BlobRef) -> Result<(), BlobError> {
        let mut pause = PAUSE.0;
        let mut tries = 0;
        loop {
            let before = partial.bytes;
            let Err(error) = self.append(partial, blob).await else { return Ok(()) };
            if !error.is_passing() {
                return Err(error);
            }
            // Whoever comes on may go on; whoever stands still gives up.
            tries = if partial.bytes > before { 0 } else { tries + 1 };
            if tries >= TRIES {
                return Err(error);
            }
            tracing::info!(%error, digest = %blob.digest, at = partial.bytes, of = blob.bytes, "a fetch broke off and is gone on with");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn append(&self, partial: &mut Partial, blob: &BlobRef) -> Result<(), BlobError> {
        if partial.bytes >= blob.bytes {
            return partial.flush().await;
        }
        let options = GetOptions { range: (partial.bytes > 0).then_some(GetRange::Offset(partial.bytes)), ..GetOptions::default() };
        let got = self.object_store().get_opts(&key_of(&blob.digest), options).await.map_err(|error| BlobError::of(blob.digest, error))?;
        let mut content = got.into_stream();
        let written = loop {
            match content.try_next().await {
                Ok(Some(piece)) => partial.write(&piece).await?,
                Ok(None) => break Ok(()),
                Err(error) => break Err(BlobError::of(blob.digest, error)),
            }
        };
        partial.flush().await?;
        written
    }
}

impl Partial {
    /// Opens what an earlier fetch has left, or begins anew; locked against other fetches of the same file.
    async fn open(dest: &Path, most: u64) -> Result<Self, BlobError> {
        let name = dest
            .file_name()
            .ok_or_else(|| BlobError::Refused { path: dest.display().to_string(), reason: "it does not name a file".to_owned() })?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let path = dest.with_file_name(hidden);
        let opened = {
            let path = path.clone();
            let dest = dest.to_owned();
            crate::folder::blocking(move || open_and_hash(&path, &dest, most)).await?
        };
        let (file, hasher, bytes) = opened;
        Ok(Self { path, file: tokio::fs::File::from_std(file), hasher, bytes })
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        self.file.write_all(piece).await.map_err(|error| BlobError::io(&self.path, error))?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), BlobError> {
        self.file.flush().await.map_err(|error| BlobError::io(&self.path, error))
    }

    fn found(&self) -> Digest {
        Digest::from_bytes(self.hasher.clone().finalize().into())
    }

    async fn begin_again(&mut self) -> Result<(), BlobError> {
        self.file.set_len(0).await.map_err(|error| BlobError::io(&self.path, error))?;
        self.file.seek(SeekFrom::Start(0)).await.map_err(|error| BlobError::io(&self.path, error))?;
        (self.hasher, self.bytes) = (Sha256::new(), 0);
        Ok(())
    }

    /// Makes it durable, then gives it its name.
    async fn publish(self, dest: &Path) -> Result<(), BlobError> {
        self.file.sync_all().await.map_err(|error| BlobError::io(&self.path, error))?;
        let (path, dest) = (self.path, dest.to_owned());
        crate::folder::blocking(move || {
            let failed = |error: std::io::Error| match error.kind() {
                ErrorKind::AlreadyExists => BlobError::Exists { path: dest.clone() },
                _ => BlobError::io(&dest, error),
            };
            // A link refuses a name that somebody has taken meanwhile; a rename would write over it.
            std::fs::hard_link(&path, &dest).map_err(failed)?;
            std::fs::remove_file(&path).map_err(failed)?;
            let parent = dest.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| BlobError::io(parent, error))
        })
        .await
    }
}

fn open_and_hash(path: &Path, dest: &Path, most: u64) -> Result<(File, Sha256, u64), BlobError> {
    let failed = |error| BlobError::io(path, error);
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(BlobError::InUse { path: dest.to_owned() }),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    if file.metadata().map_err(failed)?.len() > most {
        file.set_len(0).map_err(failed)?;
    }
    let mut buffer = vec![0; READ_BYTES];
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
    file.seek(SeekFrom::Start(bytes)).map_err(failed)?;
    Ok((file, hasher, bytes))
}
