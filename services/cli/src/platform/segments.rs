//! The archive of the ledger in the object store, beside the blobs.

use super::knobs;
use bytes::Bytes;
use footplate_blobs::Blobs;
use footplate_eventlog::archive::{Archive, ArchiveConfig, Created, SegmentStore};
use footplate_eventlog::{Archived, Broker, Ledger};
use footplate_service::config::Config;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, path::Path};
use std::io;
use std::sync::Arc;

/// Where segments lie in the object store.
const FOLDER: &str = "ledger";

/// The ledger that begins in segments and goes on in the broker, and the archive that it begins in.
pub(super) fn ledger(broker: &Arc<dyn Broker>, blobs: &Blobs) -> (Ledger, Archive) {
    let archive = Archive::new(broker.clone(), Arc::new(InObjects(blobs.object_store().clone())));
    (Ledger::new(Arc::new(Archived::new(archive.clone()))), archive)
}

/// How the ledger is archived, from the settings.
pub(super) fn archiving(config: &Config) -> ArchiveConfig {
    let keep = config.get(&knobs::LEDGER_KEEP);
    ArchiveConfig {
        keep_events: config.get(&knobs::ARCHIVE_KEEP_EVENTS),
        segment_bytes: usize::try_from(config.get(&knobs::ARCHIVE_SEGMENT).0).unwrap_or(usize::MAX),
        every: config.get(&knobs::ARCHIVE_EVERY),
        keep_ended: (!keep.is_zero()).then_some(keep),
        announced_for: config.get(&knobs::ARCHIVE_ANNOUNCE),
    }
}

/// One object a segment or list.
struct InObjects(Arc<dyn ObjectStore>);

impl InObjects {
    fn path(name: &str) -> Path {
        Path::from_iter(std::iter::once(FOLDER).chain(name.split('/')))
    }
}

impl SegmentStore for InObjects {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, io::Result<Created>> {
        async move {
            let only_new = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.0.put_opts(&Self::path(name), bytes.into(), only_new).await {
                Ok(_) => Ok(Created::New),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(Created::Exists),
                Err(error) => Err(io::Error::other(error)),
            }
        }
        .boxed()
    }

    fn replace<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, io::Result<()>> {
        async move { self.0.put(&Self::path(name), bytes.into()).await.map(|_| ()).map_err(io::Error::other) }.boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Bytes>>> {
        async move {
            match self.0.get(&Self::path(name)).await {
                Ok(found) => found.bytes().await.map(Some).map_err(io::Error::other),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(io::Error::other(error)),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_is_made_once_and_a_missing_one_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(folder.path()).unwrap();
        let store = InObjects(blobs.object_store().clone());
        assert_eq!(store.load("7/index").await.unwrap(), None);
        assert_eq!(store.create("7/00001", "one".into()).await.unwrap(), Created::New);
        assert_eq!(store.create("7/00001", "two".into()).await.unwrap(), Created::Exists);
        assert_eq!(store.load("7/00001").await.unwrap().unwrap(), "one");
        store.replace("7/index", "a".into()).await.unwrap();
        store.replace("7/index", "b".into()).await.unwrap();
        assert_eq!(store.load("7/index").await.unwrap().unwrap(), "b");
    }
}
