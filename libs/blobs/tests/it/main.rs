//! Blobs in memory and in a folder against the suite; what a killed upload leaves in a folder.
#![allow(clippy::unwrap_used)]

mod crash;
mod local;

use footplate_blobs::Blobs;
use object_store::memory::InMemory;
use std::sync::Arc;

fn in_memory() -> ((), Blobs) {
    ((), Blobs::new(Arc::new(InMemory::new())))
}

fn in_a_folder() -> (tempfile::TempDir, Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(&folder.path().join("objects")).unwrap();
    (folder, blobs)
}

mod memory_suite {
    footplate_blobs::blobs_conformance!(super::in_memory);
}

mod folder_suite {
    footplate_blobs::blobs_conformance!(super::in_a_folder);
}
