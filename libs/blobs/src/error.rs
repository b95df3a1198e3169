//! What can go wrong, by what the caller can do.

use crate::fault::BucketFault;
use footplate_types::{Digest, Invalid};
use std::{
    error::Error as StdError,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Why a blob was not stored, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// No such blob: it was never put whole, or was deleted.
    #[error("blob {digest} does not exist")]
    NotFound {
        /// What was asked for.
        digest: Digest,
    },
    /// What was sent is not what was announced; nothing was stored. Send it again.
    #[error("the content has digest {found}, expected {expected}; nothing was stored")]
    Mismatch {
        /// The digest that was announced.
        expected: Digest,
        /// The digest of what came.
        found: Digest,
    },
    /// The stored object is not what its name says: put the content again, which mends it, or restore the object store.
    #[error("the stored blob {digest} is damaged: its content has digest {found}")]
    Damaged {
        /// The name it lies under.
        digest: Digest,
        /// The digest of what lies there.
        found: Digest,
    },
    /// More bytes than the caller allows.
    #[error("the content is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// A name or an entry of a folder that cannot be stored: rename or remove it.
    #[error("{path:?} cannot be stored: {reason}")]
    Refused {
        /// The path inside the folder.
        path: String,
        /// Why, and what is allowed.
        reason: String,
    },
    /// A file changed while it was being read: try again when it stands still.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The place to write to is taken.
    #[error("{} exists already and is not empty", path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// Another download into the same place is under way.
    #[error("another download into {} is under way", path.display())]
    InUse {
        /// The place.
        path: PathBuf,
    },
    /// A manifest that no upload of ours wrote.
    #[error("the manifest is malformed: {0}")]
    Manifest(String),
    /// No room: free some and try again. Nothing was stored.
    #[error("no space left where the blobs are kept")]
    DiskFull,
    /// What the caller streams in failed.
    #[error("the content could not be read: {0}")]
    Source(#[source] io::Error),
    /// A local file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The parts of an upload went away before it was whole (another upload of the same blob, or a rule of the bucket): send it again.
    #[error("the upload of blob {digest} was ended by somebody else before it was whole; nothing was stored")]
    Interrupted {
        /// What was uploaded.
        digest: Digest,
    },
    /// A setting of a bucket that cannot be used.
    #[error("{0}")]
    Setting(Invalid),
    /// The bucket does not do what it is asked for; [`BucketFault::advice`] says what to do.
    #[error("{fault}; {}", fault.advice())]
    Bucket {
        /// What is wrong.
        fault: BucketFault,
        /// What the store said.
        source: object_store::Error,
    },
    /// The object store failed; it has retried by itself where that helps.
    #[error("the object store failed: {0}")]
    Store(#[source] object_store::Error),
}

impl BlobError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        if is_full(&source) { Self::DiskFull } else { Self::Io { path: path.to_owned(), source } }
    }

    /// What the object store said of the blob `digest`.
    pub(crate) fn of(digest: Digest, error: object_store::Error) -> Self {
        // A bucket that is gone has no blobs either, and that is not what is to be told.
        match Self::from(error) {
            Self::Store(object_store::Error::NotFound { .. }) => Self::NotFound { digest },
            other => other,
        }
    }

    /// Whether the same may succeed later without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Bucket { fault, .. } => fault.is_passing(),
            Self::Interrupted { .. } => true,
            _ => false,
        }
    }
}

impl From<object_store::Error> for BlobError {
    fn from(error: object_store::Error) -> Self {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(at) = cause {
            if at.downcast_ref::<io::Error>().is_some_and(is_full) {
                return Self::DiskFull;
            }
            cause = at.source();
        }
        match BucketFault::of(&error) {
            Some(fault) => Self::Bucket { fault, source: error },
            None => Self::Store(error),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("copying failed")]
    struct Wrapped {
        source: io::Error,
    }

    #[test]
    fn a_full_disk_is_recognised_however_deep_it_is_told() {
        let full = || io::Error::from(ErrorKind::StorageFull);
        let told = |source| object_store::Error::Generic { store: "test", source };
        assert!(matches!(BlobError::from(told(Box::new(Wrapped { source: full() }))), BlobError::DiskFull));
        assert!(matches!(BlobError::from(told(Box::new(io::Error::from_raw_os_error(28)))), BlobError::DiskFull));
        assert!(matches!(BlobError::from(told(Box::new(Wrapped { source: io::Error::other("x") }))), BlobError::Store(_)));
        assert!(matches!(BlobError::io(Path::new("x"), full()), BlobError::DiskFull));
    }
}
