//! Interrupted uploads that are gone on with: over a store in memory whose uploads are counted and fail.

use async_trait::async_trait;
use bytes::Bytes;
use footplate_blobs::{
    BlobError, Blobs, BucketFault,
    conformance::{content, flip, listed, pieces},
};
use footplate_types::Digest;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{
    Error, MultipartId, ObjectStore, PutPayload, PutResult, Result,
    client::{HttpError, HttpErrorKind},
    memory::InMemory,
    multipart::{MultipartStore, PartId},
    path::Path as Key,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

const MIB: usize = 1 << 20;
/// Six parts.
const SIZE: usize = 45 * MIB;
const LONG: Duration = Duration::from_secs(3_600);

/// Uploads of a store in memory; what was asked of them is counted.
#[derive(Default)]
struct Uploads {
    store: Arc<InMemory>,
    begun: AtomicUsize,
    parts: AtomicUsize,
    aborted: AtomicUsize,
    /// From this part of an upload on the store is away; 0: never.
    away_from: AtomicUsize,
    /// The next completion is done, and its answer lost.
    lose_answer: AtomicBool,
}

fn away() -> Error {
    Error::Generic { store: "test", source: Box::new(HttpError::new(HttpErrorKind::Connect, io::Error::other("refused"))) }
}

fn unknown_upload() -> Error {
    Error::NotFound { path: "k".to_owned(), source: "status code: 404: <Code>NoSuchUpload</Code>".into() }
}

#[async_trait]
impl MultipartStore for Uploads {
    async fn create_multipart(&self, path: &Key) -> Result<MultipartId> {
        self.begun.fetch_add(1, SeqCst);
        self.store.create_multipart(path).await
    }

    async fn put_part(&self, path: &Key, id: &MultipartId, index: usize, data: PutPayload) -> Result<PartId> {
        let away_from = self.away_from.load(SeqCst);
        if away_from > 0 && index >= away_from {
            return Err(away());
        }
        self.parts.fetch_add(1, SeqCst);
        self.store.put_part(path, id, index, data).await.map_err(|_| unknown_upload())
    }

    async fn complete_multipart(&self, path: &Key, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        let done = self.store.complete_multipart(path, id, parts).await.map_err(|_| unknown_upload())?;
        if self.lose_answer.swap(false, SeqCst) { Err(unknown_upload()) } else { Ok(done) }
    }

    async fn abort_multipart(&self, path: &Key, id: &MultipartId) -> Result<()> {
        self.aborted.fetch_add(1, SeqCst);
        self.store.abort_multipart(path, id).await.map_err(|_| unknown_upload())
    }
}

fn world() -> (Arc<Uploads>, Blobs) {
    let uploads = Arc::new(Uploads::default());
    let blobs = another_process(&uploads, LONG);
    (uploads, blobs)
}

/// The same store as another process sees it, that takes uploads over after so long.
fn another_process(uploads: &Arc<Uploads>, take_over_after: Duration) -> Blobs {
    Blobs::in_bucket_of(uploads.store.clone(), uploads.clone()).with_bucket_bounds(take_over_after, 5 << 30)
}

async fn records(blobs: &Blobs) -> usize {
    blobs.object_store().list(Some(&Key::from("blobs/uploads"))).try_collect::<Vec<_>>().await.unwrap().len()
}

/// Uploads until the store goes away after four parts.
async fn interrupted(uploads: &Uploads, blobs: &Blobs, bytes: &Bytes) {
    uploads.away_from.store(4, SeqCst);
    let failed = blobs.put_stream(pieces(bytes, MIB), Some(Digest::of(bytes)), u64::MAX).await.unwrap_err();
    assert!(matches!(failed, BlobError::Bucket { fault: BucketFault::Away, .. }), "{failed}");
    assert!(failed.is_passing());
    uploads.away_from.store(0, SeqCst);
}

#[tokio::test]
async fn an_interrupted_upload_is_gone_on_with_by_the_same_process_at_once() {
    let (uploads, blobs) = world();
    let bytes = content(1, SIZE);
    let broken = pieces(&bytes, MIB).take(40).chain(stream::iter([Err(io::Error::other("the client is gone"))]));
    assert!(matches!(blobs.put_stream(broken, Some(Digest::of(&bytes)), u64::MAX).await, Err(BlobError::Source(_))));
    assert_eq!((uploads.parts.load(SeqCst), uploads.aborted.load(SeqCst), records(&blobs).await), (4, 0, 1));
    assert_eq!(listed(&blobs).await, []);
    let blob = blobs.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap();
    // The first part again, to see whether the upload is still known, then what was missing.
    assert_eq!((uploads.begun.load(SeqCst), uploads.parts.load(SeqCst)), (1, 4 + 1 + 2));
    assert_eq!((blobs.verify(&blob.digest).await.unwrap(), records(&blobs).await), (blob, 0));
}

#[tokio::test]
async fn another_process_goes_on_once_the_first_has_been_silent_for_long_enough() {
    let (uploads, blobs) = world();
    let bytes = content(2, SIZE);
    interrupted(&uploads, &blobs, &bytes).await;
    let patient = another_process(&uploads, LONG);
    patient.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap();
    assert_eq!((uploads.begun.load(SeqCst), records(&blobs).await), (2, 1), "one that may live is left alone");
    let sent = uploads.parts.load(SeqCst);
    let hasty = another_process(&uploads, Duration::ZERO);
    hasty.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap();
    assert_eq!((uploads.begun.load(SeqCst), records(&blobs).await), (2, 0));
    assert!(uploads.parts.load(SeqCst) - sent <= 6);
    hasty.verify(&Digest::of(&bytes)).await.unwrap();
}

#[tokio::test]
async fn parts_of_other_content_under_the_same_announcement_are_sent_again() {
    let (uploads, blobs) = world();
    let (bytes, other) = (content(3, SIZE), content(4, SIZE));
    let wrong = pieces(&other, MIB).take(40).chain(stream::iter([Err(io::Error::other("gone"))]));
    blobs.put_stream(wrong, Some(Digest::of(&bytes)), u64::MAX).await.unwrap_err();
    let blob = blobs.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap();
    assert_eq!(uploads.parts.load(SeqCst), 4 + 6);
    blobs.verify(&blob.digest).await.unwrap();
}

#[tokio::test]
async fn an_upload_that_the_store_has_forgotten_is_begun_again() {
    let (uploads, blobs) = world();
    let bytes = content(5, SIZE);
    interrupted(&uploads, &blobs, &bytes).await;
    assert_eq!(blobs.sweep_staged(LONG).await.unwrap(), 0, "what is fresh stays");
    // As a rule of the bucket does: the upload goes, its record stays.
    let kept: Vec<_> = blobs.object_store().list(Some(&Key::from("blobs/uploads"))).try_collect().await.unwrap();
    let record =
        blobs.object_store().get_opts(&kept[0].location, object_store::GetOptions::default()).await.unwrap().bytes().await.unwrap();
    let told: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let key = Key::from(told["key"].as_str().unwrap());
    uploads.store.abort_multipart(&key, &told["upload"].as_str().unwrap().to_owned()).await.unwrap();
    blobs.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap();
    assert_eq!((uploads.begun.load(SeqCst), records(&blobs).await), (2, 0));
    blobs.verify(&Digest::of(&bytes)).await.unwrap();
}

#[tokio::test]
async fn a_completion_whose_answer_was_lost_is_seen_to_be_done() {
    let (uploads, blobs) = world();
    for (seed, announced) in [(6, true), (7, false)] {
        let bytes = content(seed, SIZE);
        uploads.lose_answer.store(true, SeqCst);
        let blob = blobs.put_stream(pieces(&bytes, MIB), announced.then(|| Digest::of(&bytes)), u64::MAX).await.unwrap();
        assert_eq!(blobs.verify(&blob.digest).await.unwrap(), blob);
    }
    assert_eq!(records(&blobs).await, 0);
}

#[tokio::test]
async fn what_can_never_succeed_is_aborted_at_once_and_what_was_left_is_swept() {
    let (uploads, blobs) = world();
    let bytes = content(8, SIZE);
    let announced = Digest::of(b"something else");
    assert!(matches!(blobs.put_stream(pieces(&bytes, MIB), Some(announced), u64::MAX).await, Err(BlobError::Mismatch { .. })));
    assert!(matches!(blobs.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), 30 << 20).await, Err(BlobError::TooLarge { .. })));
    let broken = pieces(&bytes, MIB).take(40).chain(stream::iter([Err(io::Error::other("gone"))]));
    assert!(matches!(blobs.put_stream(broken, None, u64::MAX).await, Err(BlobError::Source(_))));
    assert_eq!((uploads.aborted.load(SeqCst), records(&blobs).await), (3, 0));
    interrupted(&uploads, &blobs, &bytes).await;
    assert_eq!((records(&blobs).await, blobs.sweep_staged(Duration::ZERO).await.unwrap()), (1, 1));
    assert_eq!((uploads.aborted.load(SeqCst), records(&blobs).await), (4, 0));
}

#[tokio::test]
async fn an_object_that_is_right_is_left_as_it_is_and_a_damaged_one_is_mended() {
    let (uploads, blobs) = world();
    let bytes = content(9, MIB);
    let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
    let lies = || async { blobs.object_store().list(Some(&Key::from("blobs/sha256"))).try_next().await.unwrap().unwrap().e_tag };
    let before = lies().await;
    assert_eq!(blobs.put_bytes(bytes.clone()).await.unwrap(), blob);
    assert_eq!(lies().await, before, "nothing was written");
    flip(&blobs, &blob.digest).await;
    blobs.put_bytes(bytes).await.unwrap();
    assert_eq!(blobs.verify(&blob.digest).await.unwrap(), blob);
    assert_eq!(uploads.begun.load(SeqCst), 0);
}

#[tokio::test]
async fn what_is_too_large_to_be_copied_at_once_goes_in_parts() {
    let (uploads, blobs) = world();
    let blobs = blobs.with_bucket_bounds(LONG, MIB as u64);
    let bytes = content(10, 20 * MIB);
    let blob = blobs.put_stream(pieces(&bytes, MIB), None, u64::MAX).await.unwrap();
    assert_eq!((blobs.verify(&blob.digest).await.unwrap(), uploads.begun.load(SeqCst)), (blob, 2));
    let left: Vec<_> = blobs.object_store().list(Some(&Key::from("blobs/staging"))).try_collect().await.unwrap();
    assert!(left.is_empty() && records(&blobs).await == 0, "{left:?}");
}
