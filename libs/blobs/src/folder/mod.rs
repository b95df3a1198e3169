//! Folders in and out.

mod download;
mod upload;

pub(crate) use upload::blocking;
pub use upload::{Existing, Uploaded};
