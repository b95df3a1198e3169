//! Blobs by digest: put, get, look, verify, delete.

use crate::{
    BlobError,
    read::{self, BlobStream},
    upload::{PART_BYTES, Upload},
};
use bytes::{Bytes, BytesMut};
use footplate_types::Digest;
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as Key};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

const ROOT: &str = "blobs/sha256";
const STAGING: &str = "blobs/staging";

/// How much of a reader is taken at a time.
const READ_BYTES: usize = 256 << 10;

/// A blob: what it is called and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobRef {
    /// The SHA-256 of its content.
    pub digest: Digest,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A stored blob that is not what its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The name it lies under.
    pub digest: Digest,
    /// The digest of what lies there.
    pub found: Digest,
}

/// A store of blobs. Cheap to clone; safe to share between tasks and, on one folder or bucket, between processes.
#[derive(Clone, Debug)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    folder: Option<PathBuf>,
}

impl Blobs {
    /// Blobs in an object store that acknowledges only what is durable (S3 does; for a folder use [`Blobs::local`]).
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, folder: None }
    }

    /// Blobs in a folder, made when absent. Every file and the folders above it are synced before a put is acknowledged.
    pub fn local(folder: &Path) -> Result<Self, BlobError> {
        std::fs::create_dir_all(folder).map_err(|error| BlobError::io(folder, error))?;
        let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), folder: Some(folder.to_owned()) })
    }

    /// The object store itself, for what is not a blob.
    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Stores bytes that are in memory. What lies under their digest is replaced.
    pub async fn put_bytes(&self, bytes: Bytes) -> Result<BlobRef, BlobError> {
        let blob = BlobRef { digest: Digest::of(&bytes), bytes: bytes.len() as u64 };
        self.store.put(&key_of(&blob.digest), bytes.into()).await?;
        Ok(blob)
    }

    /// Stores a stream of at most `limit` bytes, hashing on the way. Where a digest is `expected`, other content is refused, naming both.
    /// The blob appears when the stream has ended and all of it is stored; until then, and after any error, nothing is seen of it.
    pub async fn put_stream<S>(&self, stream: S, expected: Option<Digest>, limit: u64) -> Result<BlobRef, BlobError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send,
    {
        let mut stream = std::pin::pin!(stream);
        let mut upload = Upload::new(expected, limit);
        while let Some(chunk) = stream.next().await {
            let sent = match chunk {
                Ok(chunk) => upload.push(self, chunk).await,
                Err(error) => Err(BlobError::Source(error)),
            };
            if let Err(error) = sent {
                upload.abort().await;
                return Err(error);
            }
        }
        upload.finish(self).await
    }

    /// Stores what a reader gives: see [`Blobs::put_stream`].
    pub async fn put_reader<R>(&self, reader: R, expected: Option<Digest>, limit: u64) -> Result<BlobRef, BlobError>
    where
        R: AsyncRead + Send,
    {
        self.put_stream(ReaderStream::with_capacity(reader, READ_BYTES), expected, limit).await
    }

    /// Stores a local file: see [`Blobs::put_stream`].
    pub async fn put_file(&self, path: &Path, expected: Option<Digest>, limit: u64) -> Result<BlobRef, BlobError> {
        let file = tokio::fs::File::open(path).await.map_err(|error| BlobError::io(path, error))?;
        self.put_reader(file, expected, limit).await
    }

    /// The content of a blob as it lies there. Nothing checks it: for readers that check the digest themselves.
    pub async fn get(&self, digest: &Digest) -> Result<BlobStream, BlobError> {
        let got = self.store.get(&key_of(digest)).await.map_err(|error| BlobError::of(*digest, error))?;
        Ok(got.into_stream().map_err(BlobError::from).boxed())
    }

    /// The content of a blob, checked on the way: the last piece is given only when all of it fits the digest, else
    /// [`BlobError::Damaged`] in its place. A reader that takes the stream's end for success has the right bytes.
    pub async fn open_verified(&self, digest: &Digest) -> Result<BlobStream, BlobError> {
        Ok(read::verified(self.get(digest).await?, *digest))
    }

    /// All of a blob in memory, checked; larger than `limit` bytes is refused before anything is read.
    pub async fn get_bytes(&self, digest: &Digest, limit: u64) -> Result<Bytes, BlobError> {
        let size = self.stat(digest).await?.bytes;
        if size > limit {
            return Err(BlobError::TooLarge { limit });
        }
        let mut stream = self.open_verified(digest).await?;
        let mut bytes = BytesMut::with_capacity(usize::try_from(size).unwrap_or_default());
        while let Some(piece) = stream.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// How large a blob is. Says nothing of its content.
    pub async fn stat(&self, digest: &Digest) -> Result<BlobRef, BlobError> {
        let meta = self.store.head(&key_of(digest)).await.map_err(|error| BlobError::of(*digest, error))?;
        Ok(BlobRef { digest: *digest, bytes: meta.size })
    }

    /// Whether something lies under the digest.
    pub async fn exists(&self, digest: &Digest) -> Result<bool, BlobError> {
        match self.stat(digest).await {
            Ok(_) => Ok(true),
            Err(BlobError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads all of a blob and compares it with its name: its size when it is whole.
    pub async fn verify(&self, digest: &Digest) -> Result<BlobRef, BlobError> {
        let mut stream = self.open_verified(digest).await?;
        let mut bytes = 0;
        while let Some(piece) = stream.try_next().await? {
            bytes += piece.len() as u64;
        }
        Ok(BlobRef { digest: *digest, bytes })
    }

    /// Every blob, in no order.
    pub fn list(&self) -> BoxStream<'static, Result<BlobRef, BlobError>> {
        let listed = self.store.list(Some(&Key::from(ROOT)));
        let blobs = listed.map_err(BlobError::from).try_filter_map(|meta| std::future::ready(Ok(blob_of(&meta))));
        blobs.boxed()
    }

    /// Verifies every blob: the damaged ones.
    pub async fn verify_all(&self) -> Result<Vec<Damage>, BlobError> {
        let mut damaged = Vec::new();
        let mut blobs = self.list();
        while let Some(blob) = blobs.try_next().await? {
            match self.verify(&blob.digest).await {
                Ok(_) | Err(BlobError::NotFound { .. }) => {}
                Err(BlobError::Damaged { digest, found }) => damaged.push(Damage { digest, found }),
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    /// Removes a blob; one that is not there is removed already. Whether anything still refers to it is the caller's to know.
    pub async fn delete(&self, digest: &Digest) -> Result<(), BlobError> {
        match self.store.delete(&key_of(digest)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what uploads cut short have left behind and nobody has touched for `idle`; how many objects. Choose `idle` longer than any
    /// upload pauses. The parts of unfinished multipart uploads on S3 are removed by a lifecycle rule of the bucket.
    pub async fn sweep_staged(&self, idle: Duration) -> Result<u64, BlobError> {
        let now = footplate_clock::now();
        let idle_millis = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let mut swept = 0;
        let mut staged = self.store.list(Some(&Key::from(STAGING)));
        while let Some(meta) = staged.try_next().await? {
            let touched = footplate_types::Timestamp::from_millis(meta.last_modified.timestamp_millis());
            if now.millis_since(touched) >= idle_millis && self.store.delete(&meta.location).await.is_ok() {
                swept += 1;
            }
        }
        if let Some(folder) = self.folder.clone() {
            let removed = tokio::task::spawn_blocking(move || sweep_files(&folder.join("blobs"), idle)).await;
            swept += removed.map_err(|error| BlobError::Source(io::Error::other(error)))??;
        }
        Ok(swept)
    }

    /// A name of its own for an upload whose digest is not known yet.
    pub(crate) fn staging_key() -> Key {
        let name = footplate_types::EventId::from_bytes(footplate_clock::entropy());
        Key::from(format!("{STAGING}/{name}"))
    }
}

/// Where a blob lies.
pub(crate) fn key_of(digest: &Digest) -> Key {
    let hex = digest.to_string();
    Key::from(format!("{ROOT}/{}/{}", &hex[..2], &hex[2..]))
}

/// The blob that an object is; none for what somebody else has put there.
fn blob_of(meta: &ObjectMeta) -> Option<BlobRef> {
    let hex: String = meta.location.as_ref().strip_prefix(ROOT)?.split('/').collect();
    Some(BlobRef { digest: Digest::parse(&hex).ok()?, bytes: meta.size })
}

/// Removes the staged files (`<name>#<number>`) of a folder that were not written to for `idle`.
fn sweep_files(folder: &Path, idle: Duration) -> Result<u64, BlobError> {
    let mut swept = 0;
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(BlobError::io(folder, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| BlobError::io(folder, error))?;
        let path = entry.path();
        // Another sweep, or the upload itself, may have removed it since.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            swept += sweep_files(&path, idle)?;
        } else if is_staged(&path) && meta.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= idle) {
            swept += u64::from(std::fs::remove_file(&path).is_ok());
        }
    }
    Ok(swept)
}

fn is_staged(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once('#').is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Uploads of at most this many bytes go in one request.
pub(crate) const SINGLE_PUT_BYTES: usize = PART_BYTES;
