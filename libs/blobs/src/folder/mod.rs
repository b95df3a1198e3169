//! Folders in and out.

mod download;
mod upload;

pub use upload::{Existing, Uploaded};
