//! Snapshots of the services' views in the object store, beside the blobs.

use super::knobs;
use footplate_blobs::Blobs;
use footplate_eventlog::{Keeper, SnapshotStore};
use footplate_service::config::Config;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use std::io;
use std::sync::Arc;

/// Where they lie in the object store.
const FOLDER: &str = "snapshots";

/// What keeps the views of this process's services.
pub(super) fn snapshots(config: &Config, blobs: &Blobs) -> Keeper {
    Keeper::new(Arc::new(InObjects(blobs.object_store().clone())), config.get(&knobs::SNAPSHOTS_EVERY))
}

/// One object a view, replaced as a whole.
struct InObjects(Arc<dyn ObjectStore>);

impl InObjects {
    fn path(name: &str) -> Path {
        Path::from_iter([FOLDER, name])
    }
}

impl SnapshotStore for InObjects {
    fn save<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, io::Result<()>> {
        async move { self.0.put(&Self::path(name), bytes.into()).await.map(|_| ()).map_err(io::Error::other) }.boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Vec<u8>>>> {
        async move {
            match self.0.get(&Self::path(name)).await {
                Ok(found) => Ok(Some(found.bytes().await.map_err(io::Error::other)?.to_vec())),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(io::Error::other(error)),
            }
        }
        .boxed()
    }
}
