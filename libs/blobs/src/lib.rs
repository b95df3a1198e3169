//! Content-addressed blobs over any object store: a local folder, memory, S3.
//!
//! A blob lies at `blobs/sha256/<2 hex>/<62 hex>` of its SHA-256 and appears there only when whole and durable: what is under way lies in a
//! staged file or an unfinished multipart upload that no reader sees. Putting a blob again replaces what lies there, so that a damaged
//! object is mended by sending it once more; in a bucket an object that is right is left as it is. A folder (a checkpoint, a code snapshot)
//! is a [`Manifest`], itself a blob.
//!
//! This crate never believes a digest it was told, and never follows a name out of the folder it was given.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blobs;
mod bucket;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod fault;
mod fetch;
mod folder;
mod manifest;
mod read;
mod s3;
mod upload;

pub use blobs::{BlobRef, Blobs, Damage};
pub use error::BlobError;
pub use fault::BucketFault;
pub use fetch::Fetched;
pub use folder::{Existing, Uploaded};
pub use manifest::{EntryKind, Manifest, ManifestEntry};
pub use read::BlobStream;
pub use s3::S3Options;
