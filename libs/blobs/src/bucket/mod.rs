//! Buckets: object stores with multipart uploads that outlive the process that began them.
//!
//! Such an upload costs room until it is completed or aborted, and the store does not tell of it through `object_store`. So each is written
//! down in the bucket (its name, the parts it has) before its first part is sent: whoever uploads the same blob next goes on with it, and
//! [`Blobs::sweep_staged`](crate::Blobs::sweep_staged) aborts what nobody has touched for long.

mod parts;
mod record;

pub(crate) use parts::RecordedParts;
pub(crate) use record::UPLOADS;

use crate::{BlobError, fault::code_of};
use footplate_types::Timestamp;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, multipart::MultipartStore, path::Path as Key};
use record::{RECORD_MAX_BYTES, Record};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Parts on their way at once, of all uploads of this process together: with the 8 MiB of a usual part, 64 MiB of memory.
const PARTS_AT_ONCE: usize = 8;

/// An upload of another process is taken over when nobody has written to its record for so long; its owner writes after every few parts.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(120);

/// The largest object that S3 copies in one request.
const COPY_MAX_BYTES: u64 = 5 << 30;

/// What [`Blobs`](crate::Blobs) needs of a bucket beside the object store.
pub(crate) struct Bucket {
    multipart: Arc<dyn MultipartStore>,
    owner: String,
    /// Records of uploads that this process has under way.
    live: Arc<Mutex<BTreeSet<Key>>>,
    slots: Arc<Semaphore>,
    pub(crate) take_over_after: Duration,
    pub(crate) copy_max_bytes: u64,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// The right to go on with one upload, in this process.
#[derive(Debug)]
struct Claim {
    live: Arc<Mutex<BTreeSet<Key>>>,
    record: Key,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.record);
    }
}

impl Bucket {
    pub(crate) fn new(multipart: Arc<dyn MultipartStore>) -> Self {
        Self {
            multipart,
            owner: own_name(),
            live: Arc::default(),
            slots: Arc::new(Semaphore::new(PARTS_AT_ONCE)),
            take_over_after: TAKE_OVER_AFTER,
            copy_max_bytes: COPY_MAX_BYTES,
        }
    }

    /// The same with other bounds.
    #[cfg(feature = "conformance")]
    pub(crate) fn with_bounds(&self, take_over_after: Duration, copy_max_bytes: u64) -> Self {
        Self {
            multipart: self.multipart.clone(),
            owner: own_name(),
            live: Arc::default(),
            slots: self.slots.clone(),
            take_over_after,
            copy_max_bytes,
        }
    }

    fn claim(&self, record: &Key) -> Option<Claim> {
        let is_new = self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(record.clone());
        is_new.then(|| Claim { live: self.live.clone(), record: record.clone() })
    }

    /// Aborts uploads whose records nobody has written to for `idle`; how many.
    pub(crate) async fn sweep(&self, store: &dyn ObjectStore, idle: Duration) -> Result<u64, BlobError> {
        let mut swept = 0;
        let mut records = store.list(Some(&Key::from(UPLOADS)));
        while let Some(meta) = records.try_next().await? {
            if age(&meta) < idle {
                continue;
            }
            let Some(_claim) = self.claim(&meta.location) else { continue };
            if let Some(record) = read(store, &meta.location).await? {
                self.abort(&record).await?;
            }
            store.delete(&meta.location).await?;
            swept += 1;
        }
        Ok(swept)
    }

    /// Aborts an upload; one that is not there any more is aborted already.
    async fn abort(&self, record: &Record) -> Result<(), BlobError> {
        match self.multipart.abort_multipart(&record.object(), &record.upload).await {
            Err(error) if !is_unknown_upload(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// A name that nobody else has.
fn own_name() -> String {
    footplate_types::EventId::from_bytes(footplate_clock::entropy()).to_string()
}

/// How long ago an object was written.
pub(crate) fn age(meta: &object_store::ObjectMeta) -> Duration {
    let touched = Timestamp::from_millis(meta.last_modified.timestamp_millis());
    Duration::from_millis(footplate_clock::now().millis_since(touched))
}

/// Reads a record; none when it is gone, or is none of ours.
async fn read(store: &dyn ObjectStore, key: &Key) -> Result<Option<Record>, BlobError> {
    match store.get(key).await {
        Ok(got) if got.meta.size > RECORD_MAX_BYTES => Ok(None),
        Ok(got) => Ok(Record::read(&got.bytes().await?)),
        Err(error) => match BlobError::from(error) {
            BlobError::Store(object_store::Error::NotFound { .. }) => Ok(None),
            error => Err(error),
        },
    }
}

/// Whether the store says that it knows no such upload (any more): completed, aborted, or removed by a rule of the bucket.
fn is_unknown_upload(error: &object_store::Error) -> bool {
    code_of(error).is_some_and(|code| code == "NoSuchUpload")
}
