//! Sending documents and snapshots to the blob store: only what is not there, under its digest, in pieces when it is large.

use crate::{
    call,
    output::{Exit, Failure},
};
use footplate_api::{Client, types, v1};
use footplate_types::Digest;
use std::{path::Path, time::Duration};
use tokio::io::AsyncReadExt as _;

/// The largest document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 3 << 20;
/// Bytes of one piece of an archive.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that may wait to be sent.
const PIECES_AHEAD: usize = 4;
/// The longest that an archive may take to be sent.
const ARCHIVE_DEADLINE: Duration = Duration::from_secs(600);

/// Stores a document; says where it is.
///
/// # Errors
/// The store's refusal, no answer, or a document that is too large.
pub async fn put(client: &Client, bytes: &[u8]) -> anyhow::Result<types::DocumentRef> {
    let reference = types::DocumentRef { digest: Digest::of(bytes).to_string(), bytes: bytes.len() as u64 };
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let message = format!("a document of {} bytes is larger than the {DOCUMENT_BYTES_MAX} that are taken", bytes.len());
        return Err(Failure::new(Exit::Refused, message).into());
    }
    if !is_there(client, &reference).await? {
        let message = v1::PutBlobRequest { project: client.project().to_owned(), digest: reference.digest.clone(), data: bytes.to_vec() };
        call!(client, blobs.put_blob(message))?;
    }
    Ok(reference)
}

/// Stores the archive at `path`, unless it is there; says whether it was sent.
///
/// # Errors
/// The store's refusal, no answer, or a file that cannot be read.
pub async fn put_archive(client: &Client, path: &Path, reference: &types::DocumentRef) -> anyhow::Result<bool> {
    if is_there(client, reference).await? {
        return Ok(false);
    }
    let (sender, receiver) = tokio::sync::mpsc::channel(PIECES_AHEAD);
    let first = v1::UploadRequest { project: client.project().to_owned(), digest: reference.digest.clone(), data: Vec::new() };
    let mut blobs = client.blobs();
    let mut request = tonic::Request::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
    request.set_timeout(ARCHIVE_DEADLINE);
    let (fed, sent) = tokio::join!(feed(path, first, sender), client.once(blobs.upload(request)));
    fed?;
    sent?;
    Ok(true)
}

async fn feed(path: &Path, first: v1::UploadRequest, sender: tokio::sync::mpsc::Sender<v1::UploadRequest>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::new(Exit::Failed, format!("{} cannot be read: {error}", path.display()));
    let mut file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let mut piece = first;
    loop {
        let mut data = vec![0; PIECE_BYTES];
        let count = file.read(&mut data).await.map_err(unreadable)?;
        data.truncate(count);
        // Even an empty blob is one piece: it names the project.
        if count == 0 && piece.project.is_empty() {
            return Ok(());
        }
        piece.data = data;
        // A closed channel means that the server has answered already; its answer is what counts.
        if sender.send(std::mem::take(&mut piece)).await.is_err() || count == 0 {
            return Ok(());
        }
    }
}

async fn is_there(client: &Client, reference: &types::DocumentRef) -> anyhow::Result<bool> {
    let asked = v1::StatRequest { project: client.project().to_owned(), digests: vec![reference.digest.clone()] };
    Ok(call!(client, blobs.stat(asked))?.blobs.iter().any(|blob| blob.digest == reference.digest))
}

/// The bytes of a document.
///
/// # Errors
/// No such document, or no answer.
pub async fn get(client: &Client, reference: &types::DocumentRef) -> anyhow::Result<Vec<u8>> {
    let asked = v1::GetBlobRequest { project: client.project().to_owned(), digest: reference.digest.clone() };
    Ok(call!(client, blobs.get_blob(asked))?.data)
}
