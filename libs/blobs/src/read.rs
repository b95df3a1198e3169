//! Reading with the digest checked on the way.

use crate::BlobError;
use bytes::Bytes;
use footplate_types::Digest;
use futures::{StreamExt, stream, stream::BoxStream};
use sha2::{Digest as _, Sha256};

/// The content of a blob, in pieces.
pub type BlobStream = BoxStream<'static, Result<Bytes, BlobError>>;

struct Checking {
    inner: BlobStream,
    hasher: Sha256,
    held: Option<Bytes>,
    ended: bool,
}

/// Gives each piece when the next one has come, and the last one when the whole fits `digest`.
pub(crate) fn verified(inner: BlobStream, digest: Digest) -> BlobStream {
    let start = Checking { inner, hasher: Sha256::new(), held: None, ended: false };
    stream::try_unfold(start, move |mut state| async move {
        while !state.ended {
            match state.inner.next().await {
                Some(piece) => {
                    let piece = piece?;
                    state.hasher.update(&piece);
                    if let Some(before) = state.held.replace(piece) {
                        return Ok(Some((before, state)));
                    }
                }
                None => {
                    state.ended = true;
                    let found = Digest::from_bytes(state.hasher.finalize_reset().into());
                    if found != digest {
                        return Err(BlobError::Damaged { digest, found });
                    }
                }
            }
        }
        Ok(state.held.take().map(|last| (last, state)))
    })
    .boxed()
}
