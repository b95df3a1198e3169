//! BlobService: the artifact door of clients and of agents whose object store is a folder.
//!
//! A blob is named by its digest, and whoever may call and knows a digest may read it: a project is asked for and checked for its form,
//! not compared with where the blob came from. Tenants that must not share even by digest need object stores of their own. Only sealed
//! documents (the real values of what is masked in a job's record) are kept from everyone but nodes.

use super::project_of;
use crate::error::blob_failed;
use bytes::Bytes;
use footplate_api::server::principal;
use footplate_api::types::DocumentRef;
use footplate_api::v1::{self, blob_service_server::BlobService};
use footplate_api::{Refusal, reason};
use footplate_blobs::{BlobError, BlobRef, Blobs};
use footplate_events::messages::SEALED_PREFIX;
use footplate_types::{Digest, Invalid};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use std::io;
use tonic::{Request, Response, Status, Streaming};

/// The most bytes of a blob in one message.
const SMALL_MAX: usize = 4 << 20;

/// The most bytes of one piece of a download.
const PIECE: usize = 256 << 10;

/// The most digests of one Stat.
const STAT_MAX: usize = 1_000;

/// Digests looked up at the same time.
const STATS_AT_ONCE: usize = 16;

/// The service.
#[derive(Clone)]
pub(crate) struct BlobDoor {
    blobs: Blobs,
    upload_max: u64,
}

impl BlobDoor {
    /// The service over a store; uploads are at most `upload_max` bytes.
    pub(crate) fn new(blobs: Blobs, upload_max: u64) -> Self {
        Self { blobs, upload_max }
    }

    /// The first bytes of a blob, as many as tell a sealed document; none of a blob that is too large to be one.
    async fn beginning(&self, digest: &Digest, size: u64) -> Result<Bytes, Refusal> {
        if size > SMALL_MAX as u64 {
            return Ok(Bytes::new());
        }
        self.blobs.get_bytes(digest, SMALL_MAX as u64).await.map_err(blob_failed)
    }
}

/// Refuses a sealed document to whoever is no node.
fn may_read<T>(request: &Request<T>, digest: &Digest, beginning: &[u8]) -> Result<(), Refusal> {
    if !beginning.starts_with(SEALED_PREFIX) || principal(request)?.is_node() {
        return Ok(());
    }
    Err(Refusal::new(&reason::PROJECT_DENIED, format!("{digest} is a sealed document: only the node that runs its job may read it"))
        .field("digest")
        .value(digest)
        .next("ask whoever submitted the job; the record shows it masked"))
}

fn digest_in(text: &str) -> Result<Digest, Refusal> {
    Digest::parse(text).map_err(|invalid| invalid.of("digest").into())
}

fn expected_in(text: &str) -> Result<Option<Digest>, Refusal> {
    if text.is_empty() { Ok(None) } else { digest_in(text).map(Some) }
}

fn blob_out(blob: BlobRef) -> DocumentRef {
    DocumentRef { digest: blob.digest.to_string(), bytes: blob.bytes }
}

#[tonic::async_trait]
impl BlobService for BlobDoor {
    async fn upload(&self, request: Request<Streaming<v1::UploadRequest>>) -> Result<Response<v1::UploadResponse>, Status> {
        let named = footplate_api::server::project(&request).unwrap_or_default().to_owned();
        let mut pieces = request.into_inner();
        let first = pieces.message().await?.unwrap_or_default();
        let asked = Request::new(());
        project_of(&asked, if first.project.is_empty() { &named } else { &first.project })?;
        let expected = expected_in(&first.digest)?;
        let rest = pieces.map(|piece| piece.map(|piece| piece.data.into()).map_err(|status| io::Error::other(status.message().to_owned())));
        let stream = stream::once(async { Ok(first.data.into()) }).chain(rest);
        let blob = self.blobs.put_stream(stream, expected, self.upload_max).await.map_err(blob_failed)?;
        Ok(Response::new(v1::UploadResponse { blob: Some(blob_out(blob)) }))
    }

    type DownloadStream = BoxStream<'static, Result<v1::DownloadResponse, Status>>;

    /// The content is checked on the way: a damaged blob ends the stream with an error before its last piece.
    async fn download(&self, request: Request<v1::DownloadRequest>) -> Result<Response<Self::DownloadStream>, Status> {
        let message = request.get_ref();
        project_of(&request, &message.project)?;
        let digest = digest_in(&message.digest)?;
        let size = self.blobs.stat(&digest).await.map_err(blob_failed)?.bytes;
        if message.from > size {
            return Err(Refusal::from(Invalid::new("from", message.from, format!("0 to {size}"))).into());
        }
        may_read(&request, &digest, &self.beginning(&digest, size).await?)?;
        let mut skip = message.from;
        let content = self.blobs.open_verified(&digest).await.map_err(blob_failed)?;
        let pieces = content.map_err(|error| Status::from(blob_failed(error))).map_ok(move |mut bytes| {
            let passed = usize::try_from(skip).unwrap_or(usize::MAX).min(bytes.len());
            skip -= passed as u64;
            let mut wanted = bytes.split_off(passed);
            let mut cut = Vec::new();
            while !wanted.is_empty() {
                let rest = wanted.split_off(wanted.len().min(PIECE));
                cut.push(Ok::<_, Status>(v1::DownloadResponse { data: std::mem::replace(&mut wanted, rest).into() }));
            }
            stream::iter(cut)
        });
        Ok(Response::new(pieces.try_flatten().boxed()))
    }

    async fn stat(&self, request: Request<v1::StatRequest>) -> Result<Response<v1::StatResponse>, Status> {
        let message = request.get_ref();
        project_of(&request, &message.project)?;
        if message.digests.len() > STAT_MAX {
            let given = format!("{} digests", message.digests.len());
            return Err(Refusal::from(Invalid::new("digests", given, format!("at most {STAT_MAX}"))).into());
        }
        let digests = message.digests.iter().map(|text| digest_in(text)).collect::<Result<Vec<_>, _>>()?;
        let looks = digests.into_iter().map(|digest| async move {
            match self.blobs.stat(&digest).await {
                Ok(blob) => Ok(Some(blob_out(blob))),
                Err(BlobError::NotFound { .. }) => Ok(None),
                Err(error) => Err(Status::from(blob_failed(error))),
            }
        });
        let found: Vec<Option<DocumentRef>> = stream::iter(looks).buffered(STATS_AT_ONCE).try_collect().await?;
        Ok(Response::new(v1::StatResponse { blobs: found.into_iter().flatten().collect() }))
    }

    async fn put_blob(&self, request: Request<v1::PutBlobRequest>) -> Result<Response<v1::UploadResponse>, Status> {
        project_of(&request, &request.get_ref().project)?;
        let message = request.into_inner();
        if message.data.len() > SMALL_MAX {
            let refusal = Refusal::new(&reason::TOO_LARGE, format!("{} bytes are too many for one message", message.data.len()));
            return Err(refusal.field("data").allowed(format!("at most {SMALL_MAX} bytes; stream larger blobs with Upload")).into());
        }
        let expected = expected_in(&message.digest)?;
        let found = Digest::of(&message.data);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(blob_failed(BlobError::Mismatch { expected, found }).into());
        }
        let blob = self.blobs.put_bytes(message.data.into()).await.map_err(blob_failed)?;
        Ok(Response::new(v1::UploadResponse { blob: Some(blob_out(blob)) }))
    }

    async fn get_blob(&self, request: Request<v1::GetBlobRequest>) -> Result<Response<v1::GetBlobResponse>, Status> {
        let message = request.get_ref();
        project_of(&request, &message.project)?;
        let digest = digest_in(&message.digest)?;
        let data = self.blobs.get_bytes(&digest, SMALL_MAX as u64).await.map_err(blob_failed)?;
        may_read(&request, &digest, &data)?;
        Ok(Response::new(v1::GetBlobResponse { data: data.into() }))
    }
}
