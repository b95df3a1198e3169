//! Blobs in memory, in a folder and in a bucket of a real S3 server against the suite; what a killed upload leaves behind.
#![allow(clippy::unwrap_used)]

mod bucket;
mod crash;
mod local;
mod s3;
mod s3_faults;

use footplate_blobs::Blobs;
use object_store::memory::InMemory;
use std::sync::Arc;

async fn in_memory() -> ((), Blobs) {
    ((), Blobs::new(Arc::new(InMemory::new())))
}

async fn in_a_bucket_in_memory() -> ((), Blobs) {
    ((), Blobs::in_bucket(InMemory::new()))
}

async fn in_a_folder() -> (tempfile::TempDir, Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(&folder.path().join("objects")).unwrap();
    (folder, blobs)
}

mod memory_suite {
    footplate_blobs::blobs_conformance!(super::in_memory);
}

mod memory_bucket_suite {
    footplate_blobs::blobs_conformance!(super::in_a_bucket_in_memory);
}

mod folder_suite {
    footplate_blobs::blobs_conformance!(super::in_a_folder);
}

mod s3_suite {
    footplate_blobs::blobs_conformance!(super::s3::in_a_bucket);
}
