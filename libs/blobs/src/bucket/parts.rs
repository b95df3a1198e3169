//! One upload in parts that is written down as it goes.

use super::{
    Bucket, Claim, UPLOADS, age, is_unknown_upload, own_name, read,
    record::{Part, Record},
};
use crate::BlobError;
use bytes::Bytes;
use footplate_types::Digest;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, multipart::PartId, path::Path as Key};
use std::{collections::BTreeMap, sync::Arc};
use tokio::task::JoinSet;

/// Parts of one upload on their way at once.
const PARTS_IN_FLIGHT: usize = 4;

/// The record is written again when this many parts have come since.
const PARTS_PER_RECORD: usize = 4;

/// Interrupted uploads of one blob that are looked at.
const RECORDS_MOST: usize = 16;

/// An upload under way. Dropped, it can be gone on with.
pub(crate) struct RecordedParts {
    store: Arc<dyn ObjectStore>,
    bucket: Arc<Bucket>,
    record_key: Key,
    record: Record,
    claim: Claim,
    /// Tasks, so that parts go on while the caller waits for more content.
    in_flight: JoinSet<Result<(usize, Part), object_store::Error>>,
    count: usize,
    unrecorded: usize,
    /// Whether it was begun by an upload before this one, and has not shown yet that the store still knows it.
    is_unproven: bool,
}

impl RecordedParts {
    /// Begins an upload into `key`, or goes on with an interrupted one of the same blob.
    pub(crate) async fn begin(
        store: &Arc<dyn ObjectStore>,
        bucket: &Arc<Bucket>,
        key: &Key,
        announced: Option<Digest>,
    ) -> Result<Self, BlobError> {
        let folder = announced.map_or_else(|| format!("{UPLOADS}/staging"), |digest| format!("{UPLOADS}/{digest}"));
        if announced.is_some()
            && let Some(found) = Self::take_over(store, bucket, key, &folder).await?
        {
            return Ok(found);
        }
        let record_key = Key::from(format!("{folder}/{}", own_name()));
        let Some(claim) = bucket.claim(&record_key) else { return Err(BlobError::Source(std::io::Error::other("a name came twice"))) };
        let record = fresh(bucket, key).await?;
        let parts = Self::of(store, bucket, record_key, record, claim, false);
        if let Err(error) = parts.write_record().await {
            // Without its record nobody would ever abort it.
            let _ = bucket.abort(&parts.record).await;
            return Err(error);
        }
        Ok(parts)
    }

    fn of(store: &Arc<dyn ObjectStore>, bucket: &Arc<Bucket>, record_key: Key, record: Record, claim: Claim, is_unproven: bool) -> Self {
        Self {
            store: store.clone(),
            bucket: bucket.clone(),
            record_key,
            record,
            claim,
            in_flight: JoinSet::new(),
            count: 0,
            unrecorded: 0,
            is_unproven,
        }
    }

    /// An upload that another one of the same blob left behind: of this process, or of one that has not been heard of for long.
    async fn take_over(store: &Arc<dyn ObjectStore>, bucket: &Arc<Bucket>, key: &Key, folder: &str) -> Result<Option<Self>, BlobError> {
        let mut listed = store.list(Some(&Key::from(folder)));
        for _ in 0..RECORDS_MOST {
            let Some(meta) = listed.try_next().await? else { return Ok(None) };
            let Some(claim) = bucket.claim(&meta.location) else { continue };
            let Some(mut record) = read(store.as_ref(), &meta.location).await? else { continue };
            let may_be_alive = record.owner != bucket.owner && age(&meta) < bucket.take_over_after;
            if may_be_alive || record.object() != *key {
                continue;
            }
            record.owner.clone_from(&bucket.owner);
            tracing::info!(%key, parts = record.parts.len(), "goes on with an interrupted upload");
            return Ok(Some(Self::of(store, bucket, meta.location, record, claim, true)));
        }
        Ok(None)
    }

    /// How many parts there are so far.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Sends the next part; waits while too many are on their way. A part that is stored already is not sent again.
    pub(crate) async fn send(&mut self, content: Bytes) -> Result<(), BlobError> {
        let (index, sha256) = (self.count, Digest::of(&content));
        self.count += 1;
        if self.is_unproven {
            return self.prove(index, sha256, content).await;
        }
        if self.record.parts.get(&index).is_some_and(|part| part.sha256 == sha256) {
            return Ok(());
        }
        self.record.parts.remove(&index);
        while self.in_flight.len() >= PARTS_IN_FLIGHT {
            self.take_in_one().await?;
        }
        if self.unrecorded >= PARTS_PER_RECORD {
            self.write_record().await?;
            self.unrecorded = 0;
        }
        // Held before the part is on its way, so that what waits in memory is bounded for all uploads together.
        let slot = self.bucket.slots.clone().acquire_owned().await.map_err(|error| BlobError::Source(std::io::Error::other(error)))?;
        let (multipart, key, upload) = (self.bucket.multipart.clone(), self.record.object(), self.record.upload.clone());
        self.in_flight.spawn(async move {
            let sent = multipart.put_part(&key, &upload, index, content.into()).await;
            drop(slot);
            Ok((index, Part { id: sent?.content_id, sha256 }))
        });
        Ok(())
    }

    /// The first part of an upload that is gone on with is sent whatever the record says: that shows whether the store still knows the upload.
    async fn prove(&mut self, index: usize, sha256: Digest, content: Bytes) -> Result<(), BlobError> {
        let put = |record: &Record| {
            let (multipart, key, upload) = (self.bucket.multipart.clone(), record.object(), record.upload.clone());
            let content = content.clone();
            async move { multipart.put_part(&key, &upload, index, content.into()).await }
        };
        let sent = match put(&self.record).await {
            Err(error) if is_unknown_upload(&error) => {
                self.record = fresh(&self.bucket, &self.record.object()).await?;
                put(&self.record).await?
            }
            sent => sent?,
        };
        self.record.parts.insert(index, Part { id: sent.content_id, sha256 });
        self.is_unproven = false;
        // Tells other processes that somebody is at work here.
        self.write_record().await
    }

    /// Waits for one of the parts on their way.
    async fn take_in_one(&mut self) -> Result<(), BlobError> {
        match self.in_flight.join_next().await {
            None => Ok(()),
            Some(Ok(sent)) => {
                let (index, part) = sent?;
                self.record.parts.insert(index, part);
                self.unrecorded += 1;
                Ok(())
            }
            Some(Err(error)) => Err(BlobError::Source(std::io::Error::other(error))),
        }
    }

    async fn write_record(&self) -> Result<(), BlobError> {
        self.store.put(&self.record_key, self.record.bytes().into()).await?;
        Ok(())
    }

    /// Makes the object of the parts. `Ok(false)` when the store knows the upload no more: somebody else has completed or aborted it, or this
    /// completion was done and its answer lost.
    pub(crate) async fn complete(&mut self) -> Result<bool, BlobError> {
        while !self.in_flight.is_empty() {
            self.take_in_one().await?;
        }
        let part = |index| self.record.parts.get(&index).map(|part| PartId { content_id: part.id.clone() });
        let parts = (0..self.count).map(part).collect::<Option<Vec<_>>>();
        let parts = parts.ok_or_else(|| BlobError::Source(std::io::Error::other("a part of the upload is missing")))?;
        match self.bucket.multipart.complete_multipart(&self.record.object(), &self.record.upload, parts).await {
            Ok(_) => {
                self.forget().await;
                Ok(true)
            }
            Err(error) if is_unknown_upload(&error) => {
                self.forget().await;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The upload is over: nobody needs its record.
    async fn forget(&self) {
        if let Err(error) = self.store.delete(&self.record_key).await {
            tracing::warn!(%error, record = %self.claim.record, "the record of an upload that is over stays until it is swept");
        }
    }

    /// Gives the upload up and frees what it holds.
    pub(crate) async fn abort(mut self) {
        self.in_flight.shutdown().await;
        match self.bucket.abort(&self.record).await {
            Ok(()) => self.forget().await,
            Err(error) => tracing::warn!(%error, "an upload could not be aborted; its parts stay until they are swept"),
        }
    }

    /// Leaves the upload for whoever sends the same blob next.
    pub(crate) async fn leave(mut self) {
        while let Some(Ok(sent)) = self.in_flight.join_next().await {
            if let Ok((index, part)) = sent {
                self.record.parts.insert(index, part);
            }
        }
        if let Err(error) = self.write_record().await {
            tracing::debug!(%error, "what was sent since the last record will be sent again");
        }
    }
}

/// A new upload into `key`.
async fn fresh(bucket: &Bucket, key: &Key) -> Result<Record, BlobError> {
    let upload = bucket.multipart.create_multipart(key).await?;
    Ok(Record { owner: bucket.owner.clone(), key: key.to_string(), upload, parts: BTreeMap::new() })
}
