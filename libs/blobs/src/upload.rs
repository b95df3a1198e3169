//! One upload: small content in one put, large content in parts that become an object when all of them fit.

use crate::{
    BlobError, BlobRef, Blobs,
    blobs::{SINGLE_PUT_BYTES, key_of},
};
use bytes::{Bytes, BytesMut};
use footplate_types::Digest;
use futures::{StreamExt, stream::FuturesUnordered};
use object_store::{MultipartUpload, ObjectStoreExt, UploadPart, path::Path as Key};
use sha2::{Digest as _, Sha256};

/// The size of the first parts. Later ones grow, since an object has at most 10,000 parts.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// After this many parts the next ones are twice as large, four times over: 10,000 parts hold about 700 GB.
const PARTS_PER_DOUBLING: usize = 1_500;

/// Parts on their way at once.
const PARTS_IN_FLIGHT: usize = 4;

fn part_bytes(index: usize) -> usize {
    PART_BYTES << (index / PARTS_PER_DOUBLING).min(4)
}

/// An upload under way. Dropped before `finish`, it leaves nothing that a reader sees.
pub(crate) struct Upload {
    expected: Option<Digest>,
    limit: u64,
    bytes: u64,
    hasher: Sha256,
    buffer: BytesMut,
    parts: Option<Parts>,
}

struct Parts {
    multipart: Box<dyn MultipartUpload>,
    in_flight: FuturesUnordered<UploadPart>,
    count: usize,
    /// Where it lies until its digest is known; nothing when it was announced and the object appears under it at once.
    staged: Option<Key>,
}

impl Upload {
    pub(crate) fn new(expected: Option<Digest>, limit: u64) -> Self {
        Self { expected, limit, bytes: 0, hasher: Sha256::new(), buffer: BytesMut::new(), parts: None }
    }

    pub(crate) async fn push(&mut self, blobs: &Blobs, chunk: Bytes) -> Result<(), BlobError> {
        self.bytes += chunk.len() as u64;
        if self.bytes > self.limit {
            return Err(BlobError::TooLarge { limit: self.limit });
        }
        self.hasher.update(&chunk);
        self.buffer.extend_from_slice(&chunk);
        while self.buffer.len() > SINGLE_PUT_BYTES.max(part_bytes(self.parts.as_ref().map_or(0, |parts| parts.count))) {
            self.send_part(blobs).await?;
        }
        Ok(())
    }

    /// Sends the next full part, or all that is left.
    async fn send_part(&mut self, blobs: &Blobs) -> Result<(), BlobError> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => none.insert(Parts::begin(blobs, self.expected).await?),
        };
        let length = part_bytes(parts.count).min(self.buffer.len());
        parts.send(self.buffer.split_to(length).freeze()).await
    }

    pub(crate) async fn finish(mut self, blobs: &Blobs) -> Result<BlobRef, BlobError> {
        let found = Digest::from_bytes(self.hasher.finalize_reset().into());
        if let Some(expected) = self.expected
            && expected != found
        {
            self.abort().await;
            return Err(BlobError::Mismatch { expected, found });
        }
        let stored = self.store_as(blobs, &key_of(&found)).await;
        if stored.is_err() {
            self.abort().await;
        }
        stored.map(|()| BlobRef { digest: found, bytes: self.bytes })
    }

    async fn store_as(&mut self, blobs: &Blobs, key: &Key) -> Result<(), BlobError> {
        if self.parts.is_none() {
            blobs.object_store().put(key, self.buffer.split().freeze().into()).await?;
            return Ok(());
        }
        while !self.buffer.is_empty() {
            self.send_part(blobs).await?;
        }
        match &mut self.parts {
            Some(parts) => parts.complete(blobs, key).await,
            None => Ok(()),
        }
    }

    /// Tells the object store that nothing more comes; what it may still keep is swept later.
    pub(crate) async fn abort(&mut self) {
        if let Some(mut parts) = self.parts.take() {
            drop(std::mem::take(&mut parts.in_flight));
            if let Err(error) = parts.multipart.abort().await {
                tracing::warn!(%error, "an upload could not be aborted; its parts stay until they are swept");
            }
        }
    }
}

impl Parts {
    async fn begin(blobs: &Blobs, expected: Option<Digest>) -> Result<Self, BlobError> {
        let staged = expected.is_none().then(Blobs::staging_key);
        let key = match (&staged, expected) {
            (Some(staged), _) => staged.clone(),
            (None, Some(expected)) => key_of(&expected),
            (None, None) => Blobs::staging_key(),
        };
        let multipart = blobs.object_store().put_multipart(&key).await?;
        Ok(Self { multipart, in_flight: FuturesUnordered::new(), count: 0, staged })
    }

    async fn send(&mut self, part: Bytes) -> Result<(), BlobError> {
        while self.in_flight.len() >= PARTS_IN_FLIGHT {
            self.in_flight.next().await.transpose()?;
        }
        self.in_flight.push(self.multipart.put_part(part.into()));
        self.count += 1;
        Ok(())
    }

    async fn complete(&mut self, blobs: &Blobs, key: &Key) -> Result<(), BlobError> {
        while let Some(sent) = self.in_flight.next().await {
            sent?;
        }
        self.multipart.complete().await?;
        match &self.staged {
            Some(staged) => Ok(blobs.object_store().rename(staged, key).await?),
            None => Ok(()),
        }
    }
}
