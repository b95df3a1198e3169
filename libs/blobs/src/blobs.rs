//! Blobs by digest: put, get, look, verify, delete.

use crate::{
    BlobError,
    bucket::{Bucket, age},
    fault::{BucketFault, code_of},
    read::{self, BlobStream},
    upload::{PART_BYTES, Upload},
};
use bytes::{Bytes, BytesMut};
use footplate_types::Digest;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, future::BoxFuture, stream::BoxStream};
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, local::LocalFileSystem, multipart::MultipartStore, path::Path as Key,
};
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
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Nothing is known of it but that it is an object store.
    Plain,
    Folder(PathBuf),
    Bucket(Arc<Bucket>),
}

impl Blobs {
    /// Blobs in an object store that acknowledges only what is durable (for a folder use [`Blobs::local`], for S3 [`Blobs::s3`]).
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, kind: Kind::Plain }
    }

    /// Blobs in an object store whose multipart uploads outlive the process that began them: interrupted ones are gone on with, and a put
    /// creates rather than replaces. [`Blobs::s3`] is one.
    pub fn in_bucket<S: ObjectStore + MultipartStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { kind: Kind::Bucket(Arc::new(Bucket::new(store.clone()))), store }
    }

    /// The same where the multipart uploads go another way than all else, for tests that count or fail them.
    #[cfg(feature = "conformance")]
    pub fn in_bucket_of(store: Arc<dyn ObjectStore>, multipart: Arc<dyn MultipartStore>) -> Self {
        Self { kind: Kind::Bucket(Arc::new(Bucket::new(multipart))), store }
    }

    /// Blobs in a folder, made when absent. Every file and the folders above it are synced before a put is acknowledged.
    pub fn local(folder: &Path) -> Result<Self, BlobError> {
        std::fs::create_dir_all(folder).map_err(|error| BlobError::io(folder, error))?;
        let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), kind: Kind::Folder(folder.to_owned()) })
    }

    /// The object store itself, for what is not a blob.
    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The bucket's side of it, where it is one.
    pub(crate) fn bucket(&self) -> Option<&Arc<Bucket>> {
        match &self.kind {
            Kind::Bucket(bucket) => Some(bucket),
            Kind::Plain | Kind::Folder(_) => None,
        }
    }

    /// The same blobs with other bounds of the bucket, for tests of what takes minutes or gigabytes otherwise.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn with_bucket_bounds(self, take_over_after: Duration, copy_max_bytes: u64) -> Self {
        match self.kind {
            Kind::Bucket(bucket) => {
                let kind = Kind::Bucket(Arc::new(bucket.with_bounds(take_over_after, copy_max_bytes)));
                Self { kind, store: self.store }
            }
            kind => Self { kind, store: self.store },
        }
    }

    /// Whether the object store is there and lets us look: what a start and `doctor` ask before anything depends on it.
    pub async fn check(&self) -> Result<(), BlobError> {
        // One object of the list is enough; none is an answer, too.
        self.store.list(Some(&Key::from(STAGING))).try_next().await?;
        Ok(())
    }

    /// Stores bytes that are in memory. What lies under their digest is replaced; in a bucket, where it is damaged.
    pub async fn put_bytes(&self, bytes: Bytes) -> Result<BlobRef, BlobError> {
        let blob = BlobRef { digest: Digest::of(&bytes), bytes: bytes.len() as u64 };
        self.put_small(&blob.digest, bytes).await?;
        Ok(blob)
    }

    /// Stores content of this digest in one request.
    pub(crate) async fn put_small(&self, digest: &Digest, bytes: Bytes) -> Result<(), BlobError> {
        let key = key_of(digest);
        if self.bucket().is_some() {
            match self.store.put_opts(&key, bytes.clone().into(), PutMode::Create.into()).await {
                Ok(_) => return Ok(()),
                Err(object_store::Error::AlreadyExists { .. }) => {}
                // A store without conditional writes: then the same content replaces itself.
                Err(object_store::Error::NotImplemented { .. }) => {}
                Err(error) if code_of(&error).is_some_and(|code| code == "NotImplemented") => {}
                Err(error) => {
                    // The client does not try a conditional write again when its connection breaks: it might have landed. Then a look tells, and
                    // what follows is tried again for as long as the settings say.
                    let error = BlobError::from(error);
                    if !error.is_passing() {
                        return Err(error);
                    }
                }
            }
            match self.verify(digest).await {
                Ok(_) => return Ok(()),
                Err(BlobError::Damaged { found, .. }) => tracing::warn!(%digest, %found, "a damaged blob is mended"),
                Err(BlobError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.store.put(&key, bytes.into()).await?;
        Ok(())
    }

    /// Gives what is staged its name. Boxed, since an upload is what calls this and what this may call.
    pub(crate) fn name_staged<'a>(&'a self, staged: &'a Key, blob: &'a BlobRef) -> BoxFuture<'a, Result<(), BlobError>> {
        async move {
            if self.bucket().is_none_or(|bucket| blob.bytes <= bucket.copy_max_bytes) {
                self.store.rename(staged, &key_of(&blob.digest)).await?;
                return Ok(());
            }
            // Larger than the store copies by itself: through this process, in parts.
            let content = self.store.get(staged).await?.into_stream().map_err(io::Error::other);
            self.put_stream(content, Some(blob.digest), blob.bytes).await?;
            self.store.delete(staged).await?;
            Ok(())
        }
        .boxed()
    }

    /// Stores a stream of at most `limit` bytes, hashing on the way. Where a digest is `expected`, other content is refused, naming both.
    /// The blob appears when the stream has ended and all of it is stored; until then, and after any error, nothing is seen of it. In a bucket
    /// a large upload with an `expected` digest that was interrupted is gone on with by the next one of the same digest.
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
                upload.give_up(&error).await;
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
        let key = key_of(digest);
        let meta = match self.store.head(&key).await {
            // S3 answers a look without a body, so without saying whether the object or the whole bucket is missing, or what is wrong with
            // the key. Asked for the content it does.
            Err(error) if self.bucket().is_some() && !BucketFault::of(&error).is_some_and(BucketFault::is_passing) => {
                self.store.get(&key).await.map(|got| got.meta)
            }
            looked => looked,
        };
        Ok(BlobRef { digest: *digest, bytes: meta.map_err(|error| BlobError::of(*digest, error))?.size })
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
        match self.store.delete(&key_of(digest)).await.map_err(|error| BlobError::of(*digest, error)) {
            Ok(()) | Err(BlobError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what uploads cut short have left behind and nobody has touched for `idle`, interrupted multipart uploads included; how many.
    /// Choose `idle` longer than any upload pauses. An upload that was cut short between its first request and its record has no parts and
    /// costs nothing; a lifecycle rule of the bucket removes it.
    pub async fn sweep_staged(&self, idle: Duration) -> Result<u64, BlobError> {
        let mut swept = 0;
        let mut staged = self.store.list(Some(&Key::from(STAGING)));
        while let Some(meta) = staged.try_next().await? {
            if age(&meta) >= idle && self.store.delete(&meta.location).await.is_ok() {
                swept += 1;
            }
        }
        match &self.kind {
            Kind::Plain => {}
            Kind::Folder(folder) => {
                let folder = folder.join("blobs");
                let removed = tokio::task::spawn_blocking(move || sweep_files(&folder, idle)).await;
                swept += removed.map_err(|error| BlobError::Source(io::Error::other(error)))??;
            }
            Kind::Bucket(bucket) => swept += bucket.sweep(self.store.as_ref(), idle).await?,
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
