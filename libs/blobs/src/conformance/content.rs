//! Putting, getting, looking, deleting.

use super::{content, listed, pieces};
use crate::{BlobError, BlobRef, Blobs};
use bytes::Bytes;
use footplate_types::Digest;
use futures::{StreamExt, future::join_all, stream};
use object_store::{ObjectStoreExt, path::Path as Key};
use std::io;

const MIB: usize = 1 << 20;
const NO_LIMIT: u64 = u64::MAX;

pub async fn bytes_read_back_by_their_digest(blobs: &Blobs) {
    for bytes in [Bytes::new(), Bytes::from_static(b"x"), content(1, 3 * MIB)] {
        let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
        assert_eq!(blob, BlobRef { digest: Digest::of(&bytes), bytes: bytes.len() as u64 });
        assert_eq!(blobs.get_bytes(&blob.digest, NO_LIMIT).await.unwrap(), bytes);
        assert_eq!(blobs.stat(&blob.digest).await.unwrap(), blob);
        assert_eq!(blobs.verify(&blob.digest).await.unwrap(), blob);
        assert!(blobs.exists(&blob.digest).await.unwrap());
        assert_eq!(blobs.put_bytes(bytes).await.unwrap(), blob, "putting again is no error");
    }
    assert_eq!(listed(blobs).await.len(), 3);
}

pub async fn a_stream_of_any_size_reads_back_with_and_without_an_announced_digest(blobs: &Blobs) {
    for (seed, length) in (0..).zip([0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 21 * MIB]) {
        for announced in [false, true] {
            let bytes = content(seed * 2 + u64::from(announced), length);
            let digest = Digest::of(&bytes);
            let blob = blobs.put_stream(pieces(&bytes, 700_001), announced.then_some(digest), length as u64).await.unwrap();
            assert_eq!(blob, BlobRef { digest, bytes: length as u64 });
            assert_eq!(blobs.get_bytes(&digest, length as u64).await.unwrap(), bytes);
        }
    }
    let large = content(99, 30 * MIB);
    let blob = blobs.put_reader(io::Cursor::new(large.clone()), None, NO_LIMIT).await.unwrap();
    assert_eq!(blobs.verify(&blob.digest).await.unwrap().bytes, large.len() as u64);
}

pub async fn other_content_than_announced_is_refused_naming_both_digests(blobs: &Blobs) {
    for length in [10, 20 * MIB] {
        let bytes = content(5, length);
        let announced = Digest::of(b"something else");
        let refused = blobs.put_stream(pieces(&bytes, MIB), Some(announced), NO_LIMIT).await.unwrap_err();
        assert!(matches!(refused, BlobError::Mismatch { expected, found } if expected == announced && found == Digest::of(&bytes)));
        let text = refused.to_string();
        assert!(text.contains(&announced.to_string()) && text.contains(&Digest::of(&bytes).to_string()), "{text}");
        assert!(!blobs.exists(&announced).await.unwrap() && !blobs.exists(&Digest::of(&bytes)).await.unwrap());
    }
    assert_eq!(listed(blobs).await, []);
}

pub async fn content_beyond_the_limit_is_refused_and_nothing_is_stored(blobs: &Blobs) {
    for (length, announced) in [(11, false), (20 * MIB, false), (20 * MIB, true)] {
        let bytes = content(6, length);
        let digest = announced.then(|| Digest::of(&bytes));
        let refused = blobs.put_stream(pieces(&bytes, 3 * MIB), digest, length as u64 - 1).await.unwrap_err();
        assert!(matches!(refused, BlobError::TooLarge { limit } if limit == length as u64 - 1), "{refused}");
    }
    assert_eq!(listed(blobs).await, []);
    let blob = blobs.put_bytes(content(6, 100)).await.unwrap();
    assert!(matches!(blobs.get_bytes(&blob.digest, 99).await, Err(BlobError::TooLarge { limit: 99 })));
}

pub async fn a_stream_that_fails_or_is_dropped_leaves_nothing_to_be_seen(blobs: &Blobs) {
    let bytes = content(7, 20 * MIB);
    let announced = Digest::of(&bytes);
    for digest in [None, Some(announced)] {
        let broken = pieces(&bytes, 3 * MIB).take(5).chain(stream::iter([Err(io::Error::other("the client is gone"))]));
        let failed = blobs.put_stream(broken, digest, NO_LIMIT).await.unwrap_err();
        assert!(matches!(&failed, BlobError::Source(error) if error.to_string() == "the client is gone"));
        let (reached, told) = tokio::sync::oneshot::channel();
        let stall = stream::once(async move {
            reached.send(()).unwrap();
            std::future::pending::<io::Result<Bytes>>().await
        });
        let put = std::pin::pin!(blobs.put_stream(pieces(&bytes, 3 * MIB).take(5).chain(stall), digest, NO_LIMIT));
        // The upload is dropped as soon as it has taken all pieces and waits for more.
        futures::future::select(put, told).await;
    }
    assert_eq!(listed(blobs).await, []);
    assert!(!blobs.exists(&announced).await.unwrap());
    assert_eq!(blobs.put_stream(pieces(&bytes, MIB), Some(announced), NO_LIMIT).await.unwrap().digest, announced);
    assert_eq!(listed(blobs).await.len(), 1);
}

pub async fn a_missing_blob_is_named_and_deleting_twice_is_no_error(blobs: &Blobs) {
    let blob = blobs.put_bytes(Bytes::from_static(b"short lived")).await.unwrap();
    for _ in 0..2 {
        blobs.delete(&blob.digest).await.unwrap();
        assert!(!blobs.exists(&blob.digest).await.unwrap());
    }
    let missing = |error| matches!(error, BlobError::NotFound { digest } if digest == blob.digest);
    assert!(missing(blobs.get(&blob.digest).await.err().unwrap()));
    assert!(missing(blobs.get_bytes(&blob.digest, 10).await.unwrap_err()));
    assert!(missing(blobs.verify(&blob.digest).await.unwrap_err()));
    assert!(missing(blobs.stat(&blob.digest).await.unwrap_err()));
    assert!(missing(blobs.manifest(&blob.digest).await.unwrap_err()));
}

pub async fn what_others_put_beside_the_blobs_is_not_listed(blobs: &Blobs) {
    for name in ["blobs/sha256/README", "blobs/sha256/ab/short", "blobs/staging/0", "ledger/1", "blobs/sha2567/ab/x"] {
        blobs.object_store().put(&Key::from(name), Bytes::from_static(b"x").into()).await.unwrap();
    }
    assert_eq!(listed(blobs).await, []);
    assert_eq!(blobs.verify_all().await.unwrap(), []);
    let blob = blobs.put_bytes(Bytes::from_static(b"a blob")).await.unwrap();
    assert_eq!(listed(blobs).await, [blob]);
}

pub async fn the_same_content_put_many_times_at_once_is_one_blob(blobs: &Blobs) {
    let bytes = content(8, 9 * MIB);
    let digest = Digest::of(&bytes);
    let puts = (0..6usize).map(|at| blobs.put_stream(pieces(&bytes, MIB), at.is_multiple_of(2).then_some(digest), NO_LIMIT));
    for put in join_all(puts).await {
        assert_eq!(put.unwrap().digest, digest);
    }
    assert_eq!(listed(blobs).await, [BlobRef { digest, bytes: bytes.len() as u64 }]);
    assert_eq!(blobs.get_bytes(&digest, NO_LIMIT).await.unwrap(), bytes);
}
