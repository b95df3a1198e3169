//! The suite that every object store passes: one async function a behaviour, each on blobs of its own with nothing in them.
//!
//! [`blobs_conformance!`](crate::blobs_conformance) makes a test of each. The functions panic where a store is wrong.
#![allow(clippy::unwrap_used, missing_docs)]

mod content;
mod damage;
mod folders;

pub use content::*;
pub use damage::*;
pub use folders::*;

use crate::{BlobRef, Blobs, blobs::key_of};
use bytes::Bytes;
use footplate_types::Digest;
use futures::{Stream, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use std::io;

/// Makes a `#[tokio::test]` of every behaviour. `$fresh` is an async function without arguments that gives `(guard, Blobs)`: an empty store, and
/// whatever must live as long as it.
#[macro_export]
macro_rules! blobs_conformance {
    ($fresh:path) => {
        $crate::blobs_conformance!(@ $fresh:
            bytes_read_back_by_their_digest,
            a_stream_of_any_size_reads_back_with_and_without_an_announced_digest,
            other_content_than_announced_is_refused_naming_both_digests,
            content_beyond_the_limit_is_refused_and_nothing_is_stored,
            a_stream_that_fails_or_is_dropped_leaves_nothing_to_be_seen,
            a_missing_blob_is_named_and_deleting_twice_is_no_error,
            what_others_put_beside_the_blobs_is_not_listed,
            the_same_content_put_many_times_at_once_is_one_blob,
            a_flipped_byte_is_found_by_every_reader_and_named,
            the_last_piece_is_given_only_when_the_whole_fits,
            a_cut_or_grown_object_is_found,
            putting_again_mends_a_damaged_blob,
            a_folder_comes_back_equal_with_unusual_names_links_and_programs,
            an_unchanged_or_renamed_folder_sends_nothing,
            a_change_of_one_byte_or_one_bit_of_mode_is_noticed,
            uploading_a_folder_again_mends_what_was_damaged,
            what_cannot_be_stored_is_refused_by_name_before_anything_is_sent,
            a_download_appears_whole_or_not_at_all,
            a_download_never_writes_over_what_is_there,
        );
    };
    (@ $fresh:path: $($behaviour:ident,)*) => {
        $(
            #[tokio::test]
            async fn $behaviour() {
                let (_guard, blobs) = $fresh().await;
                $crate::conformance::$behaviour(&blobs).await;
            }
        )*
    };
}

/// Bytes that depend on the arguments alone; no two blocks of 4 KiB of any two seeds are equal.
pub fn content(seed: u64, length: usize) -> Bytes {
    let mut block = [0u8; 4096];
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15) | 1;
    for word in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let mut bytes = Vec::with_capacity(length + block.len());
    for number in 0..length.div_ceil(block.len()) as u64 {
        block[..8].copy_from_slice(&number.to_le_bytes());
        block[8..16].copy_from_slice(&seed.to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}

/// The content in pieces of this size.
pub fn pieces(content: &Bytes, size: usize) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let content = content.clone();
    stream::iter((0..content.len().div_ceil(size)).map(move |at| Ok(content.slice(at * size..content.len().min((at + 1) * size)))))
}

/// Every blob that is listed.
pub async fn listed(blobs: &Blobs) -> Vec<BlobRef> {
    let mut listed: Vec<BlobRef> = blobs.list().try_collect().await.unwrap();
    listed.sort();
    listed
}

/// Puts other bytes under the name of a blob, past the check.
pub async fn replace(blobs: &Blobs, digest: &Digest, bytes: Bytes) {
    blobs.object_store().put(&key_of(digest), bytes.into()).await.unwrap();
}

/// Flips a bit in the middle of a stored blob; the digest of what lies there now.
pub async fn flip(blobs: &Blobs, digest: &Digest) -> Digest {
    let pieces: Vec<Bytes> = blobs.get(digest).await.unwrap().try_collect().await.unwrap();
    let mut bytes = pieces.concat();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let found = Digest::of(&bytes);
    replace(blobs, digest, Bytes::from(bytes)).await;
    found
}
