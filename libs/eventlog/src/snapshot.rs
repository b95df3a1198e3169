//! Snapshots of an owner's state: a start is a snapshot plus the ledger's tail. They are a help, never the truth: one that is of another
//! schema, damaged, or ahead of the ledger is thrown away and the ledger is read from its beginning.

use crate::live::Live;
use crate::place::replace_file;
use footplate_es::Evolve;
use footplate_types::Digest;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The first line of a snapshot file.
const MAGIC: &str = "footplate snapshot 1";

/// A state as of a ledger sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Up to which sequence it is folded.
    pub sequence: u64,
    /// The form of `state`: changes whenever older bytes could no longer be read, or would be folded otherwise.
    pub schema: String,
    /// The state.
    pub state: Vec<u8>,
}

/// Keeps the newest snapshot of each name. A save is durable when it returns.
pub trait SnapshotStore: Send + Sync + 'static {
    /// Keeps a snapshot instead of the one before.
    fn save<'a>(&'a self, name: &'a str, snapshot: Snapshot) -> BoxFuture<'a, io::Result<()>>;
    /// The newest snapshot; an error of kind `InvalidData` when it is damaged.
    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Snapshot>>>;
}

/// What stands before the state in a snapshot file.
#[derive(Serialize, Deserialize)]
struct Head {
    sequence: u64,
    schema: String,
    digest: Digest,
}

/// Snapshots in a folder, one file a name, replaced as a whole.
#[derive(Clone, Debug)]
pub struct FolderSnapshots {
    folder: PathBuf,
}

impl FolderSnapshots {
    /// Snapshots in `folder`, which is made when it is missing.
    pub fn new(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.snapshot"))
    }
}

impl SnapshotStore for FolderSnapshots {
    fn save<'a>(&'a self, name: &'a str, snapshot: Snapshot) -> BoxFuture<'a, io::Result<()>> {
        let path = self.path(name);
        async move { tokio::task::spawn_blocking(move || write(&path, &snapshot)).await.map_err(io::Error::other)? }.boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Snapshot>>> {
        let path = self.path(name);
        async move { tokio::task::spawn_blocking(move || read(&path)).await.map_err(io::Error::other)? }.boxed()
    }
}

fn write(path: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let head = Head { sequence: snapshot.sequence, schema: snapshot.schema.clone(), digest: Digest::of(&snapshot.state) };
    let head = serde_json::to_string(&head).map_err(io::Error::other)?;
    replace_file(path, &[format!("{MAGIC}\n{head}\n").as_bytes(), &snapshot.state])
}

fn read(path: &Path) -> io::Result<Option<Snapshot>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
    let rest = bytes.strip_prefix(format!("{MAGIC}\n").as_bytes()).ok_or_else(|| damaged("no snapshot of this form"))?;
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("cut off"))?;
    let head: Head = serde_json::from_slice(&rest[..end]).map_err(|error| damaged(&error.to_string()))?;
    let state = rest[end + 1..].to_vec();
    if Digest::of(&state) != head.digest {
        return Err(damaged("its state is not what was written"));
    }
    Ok(Some(Snapshot { sequence: head.sequence, schema: head.schema, state }))
}

/// The state to start from: the newest snapshot where it is of `schema`, whole, readable and not ahead of the ledger's `end`; nothing
/// otherwise.
pub async fn restore<S>(
    store: &dyn SnapshotStore,
    name: &str,
    schema: &str,
    end: u64,
    read: impl FnOnce(&[u8]) -> Option<S>,
) -> Option<(S, u64)> {
    let snapshot = match store.load(name).await {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!(%error, name, "a snapshot cannot be read and is left aside");
            return None;
        }
    };
    if snapshot.schema != schema || snapshot.sequence > end {
        tracing::info!(name, sequence = snapshot.sequence, end, schema = snapshot.schema, "a snapshot does not fit and is left aside");
        return None;
    }
    let state = read(&snapshot.state)?;
    Some((state, snapshot.sequence))
}

/// What is kept of a view, how often.
pub struct Keeping<S> {
    /// Where.
    pub store: Arc<dyn SnapshotStore>,
    /// Under which name.
    pub name: String,
    /// In which form.
    pub schema: String,
    /// The state's bytes; runs under the view's lock.
    pub write: fn(&S) -> Vec<u8>,
    /// How often, when the view has moved.
    pub every: Duration,
}

/// Keeps snapshots of a view until shut down, and one more then. A view with an event that is not understood is never kept: after a
/// restart it would look sound.
pub async fn keep<S: Evolve + Send + Sync + 'static>(live: Live<S>, keeping: Keeping<S>, shutdown: CancellationToken) {
    let mut kept = live.position();
    loop {
        let last = tokio::select! {
            () = shutdown.cancelled() => true,
            () = tokio::time::sleep(keeping.every) => false,
        };
        if live.position() > kept && live.not_understood().is_empty() {
            let (sequence, state) = {
                let (state, sequence) = live.read_at();
                (sequence, (keeping.write)(&state))
            };
            let snapshot = Snapshot { sequence, schema: keeping.schema.clone(), state };
            match keeping.store.save(&keeping.name, snapshot).await {
                Ok(()) => kept = sequence,
                Err(error) => tracing::warn!(%error, name = keeping.name, "a snapshot could not be kept"),
            }
        }
        if last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(sequence: u64) -> Snapshot {
        Snapshot { sequence, schema: "1".to_owned(), state: b"state\nwith lines".to_vec() }
    }

    async fn restored(store: &FolderSnapshots, schema: &str, end: u64) -> Option<(Vec<u8>, u64)> {
        restore(store, "x", schema, end, |bytes| Some(bytes.to_vec())).await
    }

    #[tokio::test]
    async fn a_snapshot_reads_back_and_the_newest_stands() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderSnapshots::new(folder.path()).unwrap();
        assert_eq!(store.load("x").await.unwrap(), None);
        store.save("x", snapshot(3)).await.unwrap();
        store.save("x", snapshot(7)).await.unwrap();
        assert_eq!(store.load("x").await.unwrap(), Some(snapshot(7)));
    }

    #[tokio::test]
    async fn a_snapshot_that_does_not_fit_is_left_aside() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderSnapshots::new(folder.path()).unwrap();
        store.save("x", snapshot(7)).await.unwrap();
        assert_eq!(restored(&store, "1", 7).await, Some((snapshot(7).state, 7)));
        assert_eq!(restored(&store, "2", 7).await, None);
        assert_eq!(restored(&store, "1", 6).await, None);
        let path = folder.path().join("x.snapshot");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(store.load("x").await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(restored(&store, "1", 7).await, None);
    }
}
