//! The port to the object store: how an agent gets and puts bytes. Facts go over the broker, bytes go here.

use footplate_events::facts::DocumentRef;
use footplate_types::ProjectName;
use futures::future::BoxFuture;
use std::path::Path;

/// Why bytes did not arrive.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlobError {
    /// No such blob: asking again will not help.
    #[error("no blob {0} in the store: it was never put there whole, or was deleted; put it (`footplate submit` does) and submit again")]
    NotFound(String),
    /// The bytes are not what their digest says: asking again will not help.
    #[error("blob {0} is damaged")]
    Damaged(String),
    /// The store or the way to it is away: ask again.
    #[error("object store: {0}")]
    Unavailable(String),
    /// The store, or this node's disk, refused for good.
    #[error("object store refused: {0}")]
    Refused(String),
}

/// Blobs of a project, each under its SHA-256.
pub trait BlobAccess: Send + Sync + 'static {
    /// Stores the file's bytes, which have this digest and length. Storing what is there already is no error.
    fn put<'a>(&'a self, project: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>>;

    /// Writes the blob to `file` (which is not there yet), verified against its digest: whole, or an error and no file.
    fn get<'a>(&'a self, project: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>>;
}
