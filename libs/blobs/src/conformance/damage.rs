//! Objects that are not what their name says.

use super::{content, flip, pieces, replace};
use crate::{BlobError, Blobs, Damage};
use futures::{StreamExt, TryStreamExt};

const LENGTH: usize = 10 << 20;

pub async fn a_flipped_byte_is_found_by_every_reader_and_named(blobs: &Blobs) {
    let whole = blobs.put_bytes(content(1, 100)).await.unwrap();
    for length in [1, LENGTH] {
        let blob = blobs.put_bytes(content(2, length)).await.unwrap();
        let bent = flip(blobs, &blob.digest).await;
        let is_named = |error: BlobError| {
            assert!(error.to_string().contains(&blob.digest.to_string()));
            matches!(error, BlobError::Damaged { digest, found } if digest == blob.digest && found == bent)
        };
        assert!(is_named(blobs.verify(&blob.digest).await.unwrap_err()));
        assert!(is_named(blobs.get_bytes(&blob.digest, u64::MAX).await.unwrap_err()));
        let read: Result<Vec<_>, _> = blobs.open_verified(&blob.digest).await.unwrap().try_collect().await;
        assert!(is_named(read.unwrap_err()));
        assert_eq!(blobs.verify_all().await.unwrap(), [Damage { digest: blob.digest, found: bent }]);
        blobs.delete(&blob.digest).await.unwrap();
    }
    assert_eq!(blobs.verify(&whole.digest).await.unwrap(), whole);
}

pub async fn the_last_piece_is_given_only_when_the_whole_fits(blobs: &Blobs) {
    let bytes = content(3, LENGTH);
    let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
    flip(blobs, &blob.digest).await;
    let pieces: Vec<_> = blobs.open_verified(&blob.digest).await.unwrap().collect().await;
    let given: usize = pieces.iter().flatten().map(|piece| piece.len()).sum();
    assert!(given < bytes.len(), "a reader that counts bytes is not deceived");
    assert!(pieces.last().unwrap().is_err() && pieces[..pieces.len() - 1].iter().all(Result::is_ok));
}

pub async fn a_cut_or_grown_object_is_found(blobs: &Blobs) {
    let bytes = content(4, 1_000);
    let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
    let mut grown = bytes.to_vec();
    grown.push(0);
    for bent in [bytes.slice(..999), bytes.slice(..0), grown.into()] {
        replace(blobs, &blob.digest, bent).await;
        assert!(matches!(blobs.verify(&blob.digest).await, Err(BlobError::Damaged { digest, .. }) if digest == blob.digest));
    }
}

pub async fn putting_again_mends_a_damaged_blob(blobs: &Blobs) {
    let bytes = content(5, LENGTH);
    let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
    for way in 0..3 {
        flip(blobs, &blob.digest).await;
        if way == 1 {
            replace(blobs, &blob.digest, bytes.slice(..77)).await;
        }
        let put = match way {
            0 => blobs.put_bytes(bytes.clone()).await,
            1 => blobs.put_stream(pieces(&bytes, 1 << 20), None, u64::MAX).await,
            _ => blobs.put_stream(pieces(&bytes, 1 << 20), Some(blob.digest), u64::MAX).await,
        };
        assert_eq!(put.unwrap(), blob);
        assert_eq!(blobs.verify(&blob.digest).await.unwrap(), blob);
    }
}
