//! One upload: small content in one put, large content in parts that become an object when all of them fit.

use crate::{
    BlobError, BlobRef, Blobs,
    blobs::{SINGLE_PUT_BYTES, key_of},
    bucket::RecordedParts,
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

/// Where the parts go.
struct Parts {
    way: Way,
    /// Where it lies until its digest is known; nothing when it was announced and the object appears under it at once.
    staged: Option<Key>,
}

enum Way {
    /// Whatever the store makes of it.
    Plain(Plain),
    /// An upload that can be gone on with.
    Recorded(Box<RecordedParts>),
}

struct Plain {
    multipart: Box<dyn MultipartUpload>,
    in_flight: FuturesUnordered<UploadPart>,
    count: usize,
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
        while self.buffer.len() > SINGLE_PUT_BYTES.max(part_bytes(self.parts.as_ref().map_or(0, Parts::count))) {
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
        let length = part_bytes(parts.count()).min(self.buffer.len());
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
        let blob = BlobRef { digest: found, bytes: self.bytes };
        match self.store_as(blobs, &blob).await {
            Ok(()) => Ok(blob),
            Err(error) => {
                self.give_up(&error).await;
                Err(error)
            }
        }
    }

    async fn store_as(&mut self, blobs: &Blobs, blob: &BlobRef) -> Result<(), BlobError> {
        if self.parts.is_none() {
            return blobs.put_small(&blob.digest, self.buffer.split().freeze()).await;
        }
        while !self.buffer.is_empty() {
            self.send_part(blobs).await?;
        }
        match &mut self.parts {
            Some(parts) => parts.complete(blobs, blob).await,
            None => Ok(()),
        }
    }

    /// After a failure: what may succeed when it is sent again is left to be gone on with where the store allows it, all else is aborted.
    pub(crate) async fn give_up(&mut self, error: &BlobError) {
        let may_go_on = self.expected.is_some() && (error.is_passing() || matches!(error, BlobError::Source(_)));
        match self.parts.take() {
            // A store that is away would keep the caller waiting for a record that it does not take: the last one stands.
            Some(Parts { way: Way::Recorded(_), .. }) if may_go_on && error.is_passing() => {}
            Some(Parts { way: Way::Recorded(parts), .. }) if may_go_on => parts.leave().await,
            Some(parts) => parts.abort().await,
            None => {}
        }
    }

    /// Tells the object store that nothing more comes; what it may still keep is swept later.
    async fn abort(&mut self) {
        if let Some(parts) = self.parts.take() {
            parts.abort().await;
        }
    }
}

impl Parts {
    async fn begin(blobs: &Blobs, expected: Option<Digest>) -> Result<Self, BlobError> {
        let (staged, key) = match expected {
            Some(expected) => (None, key_of(&expected)),
            None => {
                let staged = Blobs::staging_key();
                (Some(staged.clone()), staged)
            }
        };
        let way = match blobs.bucket() {
            Some(bucket) => Way::Recorded(Box::new(RecordedParts::begin(blobs.object_store(), bucket, &key, expected).await?)),
            None => {
                let multipart = blobs.object_store().put_multipart(&key).await?;
                Way::Plain(Plain { multipart, in_flight: FuturesUnordered::new(), count: 0 })
            }
        };
        Ok(Self { way, staged })
    }

    fn count(&self) -> usize {
        match &self.way {
            Way::Plain(plain) => plain.count,
            Way::Recorded(parts) => parts.count(),
        }
    }

    async fn send(&mut self, part: Bytes) -> Result<(), BlobError> {
        match &mut self.way {
            Way::Plain(plain) => plain.send(part).await,
            Way::Recorded(parts) => parts.send(part).await,
        }
    }

    async fn complete(&mut self, blobs: &Blobs, blob: &BlobRef) -> Result<(), BlobError> {
        match &mut self.way {
            Way::Plain(plain) => plain.complete().await?,
            Way::Recorded(parts) => {
                if !parts.complete().await? {
                    return was_completed(blobs, self.staged.as_ref(), blob).await;
                }
            }
        }
        match &self.staged {
            Some(staged) => blobs.name_staged(staged, blob).await,
            None => Ok(()),
        }
    }

    async fn abort(self) {
        match self.way {
            Way::Plain(plain) => plain.abort().await,
            Way::Recorded(parts) => parts.abort().await,
        }
    }
}

/// The store knows the upload no more. It is done where what lies there is right, whoever completed it.
async fn was_completed(blobs: &Blobs, staged: Option<&Key>, blob: &BlobRef) -> Result<(), BlobError> {
    let Some(staged) = staged else {
        return match blobs.verify(&blob.digest).await {
            Ok(_) => Ok(()),
            Err(BlobError::NotFound { .. } | BlobError::Damaged { .. }) => Err(BlobError::Interrupted { digest: blob.digest }),
            Err(error) => Err(error),
        };
    };
    // The name of what is staged is nobody else's: its completion was done and the answer lost, or the upload was aborted.
    match blobs.object_store().head(staged).await {
        Ok(_) => blobs.name_staged(staged, blob).await,
        Err(object_store::Error::NotFound { .. }) => Err(BlobError::Interrupted { digest: blob.digest }),
        Err(error) => Err(error.into()),
    }
}

impl Plain {
    async fn send(&mut self, part: Bytes) -> Result<(), BlobError> {
        while self.in_flight.len() >= PARTS_IN_FLIGHT {
            self.in_flight.next().await.transpose()?;
        }
        self.in_flight.push(self.multipart.put_part(part.into()));
        self.count += 1;
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), BlobError> {
        while let Some(sent) = self.in_flight.next().await {
            sent?;
        }
        self.multipart.complete().await?;
        Ok(())
    }

    async fn abort(mut self) {
        drop(std::mem::take(&mut self.in_flight));
        if let Err(error) = self.multipart.abort().await {
            tracing::warn!(%error, "an upload could not be aborted; its parts stay until they are swept");
        }
    }
}
