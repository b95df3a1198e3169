//! The agent's ways to bytes: the bucket itself, or, where the object store is a folder of the tracker's, the artifact door, as any client
//! would.

use footplate_api::{Client, v1};
use footplate_blobs::{BlobRef, Blobs, Existing};
use footplate_events::facts::DocumentRef;
use footplate_executor_agent::blob::{BlobAccess, BlobError};
use footplate_types::{Digest, ProjectName};
use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use std::path::Path;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Status;

/// The size of a piece; the door takes at most 1 MiB.
const PIECE_BYTES: usize = 512 << 10;
/// How many pieces wait for a slow door.
const PIECES_WAITING: usize = 4;

/// Blobs through the platform's API.
#[derive(Clone, Debug)]
pub(crate) struct DoorBlobs {
    client: Client,
}

impl DoorBlobs {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    async fn upload(&self, project: &ProjectName, blob: DocumentRef, file: &Path) -> Result<(), BlobError> {
        let digest = blob.digest.to_string();
        let asked = v1::StatRequest { project: project.to_string(), digests: vec![digest.clone()] };
        let known = self.client.blobs().stat(asked).await.map_err(|status| of_status(&digest, &status))?.into_inner();
        if known.blobs.iter().any(|known| known.digest == digest && known.bytes == blob.bytes) {
            return Ok(());
        }
        let disk = |error: std::io::Error| BlobError::Refused(format!("{}: {error}", file.display()));
        let mut source = tokio::fs::File::open(file).await.map_err(disk)?;
        let (pieces, stream) = tokio::sync::mpsc::channel(PIECES_WAITING);
        let (project, expected) = (project.to_string(), digest.clone());
        let reading = async move {
            let mut first = Some((project, expected));
            loop {
                let mut data = vec![0; PIECE_BYTES];
                let length = source.read(&mut data).await?;
                if length == 0 && first.is_none() {
                    return Ok::<(), std::io::Error>(());
                }
                data.truncate(length);
                let (project, digest) = first.take().unwrap_or_default();
                if pieces.send(v1::UploadRequest { project, digest, data }).await.is_err() {
                    return Ok(());
                }
            }
        };
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let mut client = self.client.blobs();
        let (read, sent) = tokio::join!(reading, client.upload(stream));
        read.map_err(disk)?;
        sent.map(|_| ()).map_err(|status| of_status(&digest, &status))
    }

    async fn download(&self, project: &ProjectName, blob: DocumentRef, file: &Path) -> Result<(), BlobError> {
        let digest = blob.digest.to_string();
        let disk = |error: std::io::Error| BlobError::Refused(format!("{}: {error}", file.display()));
        let asked = v1::DownloadRequest { project: project.to_string(), digest: digest.clone(), from: 0 };
        let mut stream = self.client.blobs().download(asked).await.map_err(|status| of_status(&digest, &status))?.into_inner();
        let mut out = tokio::fs::OpenOptions::new().write(true).create_new(true).open(file).await.map_err(disk)?;
        let mut hasher = Sha256::new();
        while let Some(piece) = stream.message().await.map_err(|status| of_status(&digest, &status))? {
            hasher.update(&piece.data);
            out.write_all(&piece.data).await.map_err(disk)?;
        }
        out.sync_all().await.map_err(disk)?;
        if Digest::from_bytes(hasher.finalize().into()) == blob.digest { Ok(()) } else { Err(BlobError::Damaged(digest)) }
    }
}

fn of_status(digest: &str, status: &Status) -> BlobError {
    match status.code() {
        tonic::Code::NotFound => BlobError::NotFound(digest.to_owned()),
        // A full disk and a key that is being changed are for a person to mend: until then the node keeps the bytes and asks again.
        tonic::Code::Unavailable
        | tonic::Code::ResourceExhausted
        | tonic::Code::Unauthenticated
        | tonic::Code::PermissionDenied
        | tonic::Code::Aborted
        | tonic::Code::DeadlineExceeded
        | tonic::Code::Unknown
        | tonic::Code::Cancelled
        | tonic::Code::Internal => BlobError::Unavailable(status.message().to_owned()),
        _ => BlobError::Refused(status.message().to_owned()),
    }
}

impl BlobAccess for DoorBlobs {
    fn put<'a>(&'a self, project: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(self.upload(project, blob, file))
    }

    fn get<'a>(&'a self, project: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(async move {
            let got = self.download(project, blob, file).await;
            if got.is_err() {
                let _ = tokio::fs::remove_file(file).await;
            }
            got
        })
    }
}

/// Blobs in a bucket, without anybody between.
#[derive(Clone, Debug)]
pub(crate) struct BucketBlobs {
    blobs: Blobs,
}

impl BucketBlobs {
    pub(crate) fn new(blobs: Blobs) -> Self {
        Self { blobs }
    }

    async fn upload(&self, blob: DocumentRef, file: &Path) -> Result<(), BlobError> {
        let wanted = BlobRef { digest: blob.digest, bytes: blob.bytes };
        let told = |error| of_bucket(&blob, error);
        if self.blobs.is_stored(&wanted, Existing::TrustSize).await.map_err(told)? {
            return Ok(());
        }
        self.blobs.put_file(file, Some(blob.digest), blob.bytes).await.map(drop).map_err(told)
    }

    async fn download(&self, blob: DocumentRef, file: &Path) -> Result<(), BlobError> {
        self.blobs.fetch_file(&blob.digest, file).await.map(drop).map_err(|error| of_bucket(&blob, error))
    }
}

fn of_bucket(blob: &DocumentRef, error: footplate_blobs::BlobError) -> BlobError {
    use footplate_blobs::BlobError as Stored;
    match error {
        Stored::NotFound { digest } => BlobError::NotFound(digest.to_string()),
        Stored::Damaged { digest, .. } => BlobError::Damaged(digest.to_string()),
        // The agent's own copy is not what it was when it was taken over.
        Stored::Mismatch { .. } | Stored::TooLarge { .. } | Stored::Changed { .. } => BlobError::Damaged(blob.digest.to_string()),
        // A key that is wrong, a bucket that is gone and a full disk are for a person to mend: until then the node keeps the bytes.
        Stored::Bucket { .. } | Stored::Interrupted { .. } | Stored::Store(_) | Stored::Source(_) | Stored::DiskFull => {
            BlobError::Unavailable(error.to_string())
        }
        Stored::Setting(_)
        | Stored::Refused { .. }
        | Stored::Exists { .. }
        | Stored::InUse { .. }
        | Stored::Manifest(_)
        | Stored::Io { .. } => BlobError::Refused(error.to_string()),
    }
}

impl BlobAccess for BucketBlobs {
    fn put<'a>(&'a self, _project: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(self.upload(blob, file))
    }

    fn get<'a>(&'a self, _project: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(self.download(blob, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn what_a_person_can_mend_is_asked_again_and_what_nobody_can_is_not() {
        let again = |code| matches!(of_status("d", &Status::new(code, "why")), BlobError::Unavailable(_));
        for code in [Code::ResourceExhausted, Code::Unauthenticated, Code::PermissionDenied, Code::Aborted, Code::Unavailable] {
            assert!(again(code), "{code:?}");
        }
        for code in [Code::InvalidArgument, Code::FailedPrecondition, Code::DataLoss, Code::NotFound] {
            assert!(!again(code), "{code:?}");
        }
    }
}
