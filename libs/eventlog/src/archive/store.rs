//! Where segments lie: a small port, so that the ledger knows no object store.

use bytes::Bytes;
use futures::future::BoxFuture;
use std::io;

/// What became of an object that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there now, whole and durable.
    New,
    /// There was one of that name before: nothing was changed.
    Exists,
}

/// Keeps objects under names with slashes. What is there is there whole: an interrupted write leaves nothing.
pub trait SegmentStore: Send + Sync + 'static {
    /// Makes an object, and never overwrites one. After an error it may or may not be there.
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, io::Result<Created>>;
    /// Keeps these bytes under the name instead of those before.
    fn replace<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, io::Result<()>>;
    /// The bytes under a name, if there are any.
    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Bytes>>>;
}
