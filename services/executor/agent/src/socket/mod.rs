//! The local socket: takes over what trainings log, and answers only what is durable.
//!
//! It decides nothing. What a process says here never ends a run, and nothing said here can hold a training up for longer than the
//! training's own client allows. The protocol is `docs/reference/local-socket.md`.

mod connection;
mod desk;
pub(crate) mod op;
mod upload;
mod uploads;

#[cfg(test)]
mod tests;

pub use desk::{DeskConfig, StandingStop};

use crate::{
    blob::{BlobAccess, BlobError},
    record::{self, MetricHeader, Origin, StoredReport},
    spool::{Spool, SpoolError},
    stage::{self, StagedManifest},
};
use desk::{Desk, LocalCheckpoint};
use footplate_blobs::EntryKind;
use footplate_events::facts::{DocumentRef, SessionEnd};
use footplate_types::{AttemptNumber, Epoch, MemberIndex, NodeName, RunId};
use op::{Fault, Hello};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{net::UnixListener, sync::watch};
use tokio_util::sync::CancellationToken;

/// Connections at once; a further one is closed and tries again.
const CONNECTIONS_MOST: usize = 8_192;
/// Bytes of entries read at a time when sessions are recovered.
const RECOVER_BYTES: usize = 8 << 20;
/// Pauses while the disk takes nothing.
const DISK_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The agent's spools.
#[derive(Clone)]
pub(crate) struct Spools {
    pub(crate) executor: Spool,
    pub(crate) tracker: Spool,
    pub(crate) inventory: Spool,
    pub(crate) logs: Spool,
    pub(crate) metrics: Spool,
}

/// Limits of what one op may hand over.
#[derive(Clone, Copy, Debug)]
pub struct IntakeLimits {
    /// Bytes of one artifact or checkpoint.
    pub staged_bytes_most: u64,
    /// How long a question about an earlier checkpoint may wait for the store.
    pub fetch_patience: Duration,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self { staged_bytes_most: 256 << 30, fetch_patience: Duration::from_secs(120) }
    }
}

/// What all connections share.
pub(crate) struct Intake {
    pub(crate) node: NodeName,
    pub(crate) spools: Spools,
    pub(crate) blobs: Arc<dyn BlobAccess>,
    pub(crate) limits: IntakeLimits,
    /// Ends everything that works for this.
    life: CancellationToken,
    epoch: AtomicU64,
    /// The generation that was registered last.
    pub(crate) registered: watch::Sender<Epoch>,
    ready: AtomicBool,
    desks: Mutex<BTreeMap<(RunId, AttemptNumber, MemberIndex), Arc<Desk>>>,
}

/// Tries again while the disk is full or broken: nothing is refused for that, the answer only waits.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, SpoolError>>>(mut append: impl FnMut() -> F) -> Option<T> {
    let mut pause = DISK_PAUSE.0;
    loop {
        match append().await {
            Ok(value) => return Some(value),
            Err(SpoolError::Closed) => return None,
            Err(error @ SpoolError::TooLarge { .. }) => {
                tracing::error!(%error, "entry dropped");
                return None;
            }
            Err(error) => tracing::warn!(%error, "spool waits"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(DISK_PAUSE.1);
    }
}

impl Intake {
    pub(crate) fn new(
        node: NodeName,
        spools: Spools,
        blobs: Arc<dyn BlobAccess>,
        limits: IntakeLimits,
        life: CancellationToken,
    ) -> Arc<Self> {
        let desks = Mutex::new(BTreeMap::new());
        Arc::new(Self {
            node,
            spools,
            blobs,
            limits,
            life,
            epoch: AtomicU64::new(0),
            registered: watch::Sender::new(Epoch(0)),
            ready: AtomicBool::new(false),
            desks,
        })
    }

    /// Works beside until done, or until the agent ends.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let life = self.life.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = life.cancelled() => {}
                () = work => {}
            }
        });
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    pub(crate) fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<(RunId, AttemptNumber, MemberIndex), Arc<Desk>>> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a member's workers log.
    pub(crate) fn open_desk(self: &Arc<Self>, config: DeskConfig) -> io::Result<Arc<Desk>> {
        let key = (config.of.run, config.of.attempt, config.of.member);
        if let Some(open) = self.locked().get(&key) {
            return Ok(open.clone());
        }
        let desk = Arc::new(Desk::open(config)?);
        self.spawn(upload::run(self.clone(), Arc::downgrade(&desk), desk.uploads.clone()));
        self.locked().insert(key, desk.clone());
        Ok(desk)
    }

    /// Forgets a member whose end is reported; its desk.
    pub(crate) fn drop_desk(&self, run: RunId, attempt: AttemptNumber, member: MemberIndex) -> Option<Arc<Desk>> {
        self.locked().remove(&(run, attempt, member))
    }

    pub(crate) fn desk(&self, run: RunId, attempt: AttemptNumber, member: MemberIndex) -> Option<Arc<Desk>> {
        self.locked().get(&(run, attempt, member)).cloned()
    }

    /// Learns from the spools and the staging how far each session was answered before a restart; then connections are admitted.
    pub(crate) async fn recover(&self) -> Result<(), SpoolError> {
        let mut next = self.spools.metrics.first();
        loop {
            let page = self.spools.metrics.read_from(next, RECOVER_BYTES).await?;
            let Some(last) = page.last().map(|record| record.offset) else { break };
            for entry in page {
                let Some((header, _)) = record::unpack::<MetricHeader>(&entry.payload) else { continue };
                let Some(desk) = header.of.and_then(|of| self.desk(of.run, of.attempt, of.member)) else { continue };
                desk.recover(header.session, header.rank, header.op, header.batch).await;
            }
            next = last + 1;
        }
        let mut next = self.spools.tracker.first();
        loop {
            let page = self.spools.tracker.read_from(next, RECOVER_BYTES).await?;
            let Some(last) = page.last().map(|record| record.offset) else { break };
            for entry in page {
                self.recover_report(&entry.payload).await;
            }
            next = last + 1;
        }
        let desks: Vec<Arc<Desk>> = self.locked().values().cloned().collect();
        for desk in desks {
            self.recover_staged(&desk).await;
        }
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    async fn recover_report(&self, payload: &[u8]) {
        let Some(StoredReport { origin: Some(Origin { of, rank, session, n }), .. }) = StoredReport::from_bytes(payload) else { return };
        if let Some(desk) = self.desk(of.run, of.attempt, of.member) {
            desk.recover(session, rank, n, 0).await;
        }
    }

    async fn recover_staged(&self, desk: &Arc<Desk>) {
        let mut undone = Vec::new();
        for (staged, done) in upload::staged(desk) {
            desk.recover(staged.op.session, staged.op.rank, staged.op.n, 0).await;
            if let upload::StagedAs::Checkpoint { step, metadata } = &staged.op.what {
                desk.set_latest(*step, &staged.op.manifest, &staged.dir, metadata);
            }
            if !done {
                undone.push(staged);
            }
        }
        desk.uploads.restore(undone);
    }

    /// What must be on disk before entries of the spools may be forgotten.
    pub(crate) fn write_sessions(&self) -> io::Result<()> {
        let desks: Vec<Arc<Desk>> = self.locked().values().cloned().collect();
        desks.iter().try_for_each(|desk| desk.write_sessions())
    }

    fn admit(&self, hello: &Hello) -> Result<Arc<Desk>, Fault> {
        if !self.ready.load(Ordering::Acquire) {
            return Err(Fault::new("NOT_READY", "the agent is starting"));
        }
        let desks = self.locked();
        let mut of_run = desks.values().filter(|desk| desk.config.of.run == hello.run).peekable();
        if of_run.peek().is_none() {
            return Err(Fault::new("UNKNOWN_RUN", format!("run {} is not on this node", hello.run)));
        }
        let wrong = || Fault::new("WRONG_ATTEMPT", format!("attempt {} of run {} is not on this node", hello.attempt, hello.run));
        let of_attempt: Vec<_> =
            of_run.filter(|desk| desk.config.of.attempt == hello.attempt && !desk.closed.is_cancelled()).cloned().collect();
        if of_attempt.is_empty() {
            return Err(wrong());
        }
        let found = of_attempt.into_iter().find(|desk| desk.has_rank(hello.rank));
        found.ok_or_else(|| Fault::new("MALFORMED", format!("rank {} is not one of this node's", hello.rank)))
    }

    /// The checkpoint that a member may resume from, fetched when it is not here yet.
    async fn latest_checkpoint(&self, desk: &Desk) -> Result<Option<LocalCheckpoint>, Fault> {
        if let Some(own) = desk.give_latest() {
            return Ok(Some(own));
        }
        let Some((attempt, step, manifest)) = desk.config.checkpoint else { return Ok(None) };
        let mut fetched = desk.fetched.lock().await;
        if fetched.is_none() {
            let target = desk.config.dir.join("resume").join(format!("{attempt}-{step}"));
            let fetch = self.fetch_checkpoint(desk, manifest, &target, step);
            let unavailable = |why: String| Fault::new("UNAVAILABLE", why);
            let found = tokio::time::timeout(self.limits.fetch_patience, fetch).await;
            let found = found.map_err(|_| unavailable("the object store did not answer in time".to_owned()))?;
            *fetched = Some(found.map_err(|error| unavailable(error.to_string()))?);
        }
        Ok(fetched.clone())
    }

    async fn fetch_checkpoint(&self, desk: &Desk, at: DocumentRef, target: &Path, step: i64) -> Result<LocalCheckpoint, BlobError> {
        let disk = |error: io::Error| BlobError::Refused(error.to_string());
        let project = &desk.config.of.project;
        let partial = target.with_extension("partial");
        let _ = tokio::fs::remove_dir_all(&partial).await;
        let content = stage::content(&partial);
        tokio::fs::create_dir_all(&content).await.map_err(disk)?;
        let listed = partial.join("manifest.json");
        self.get(project, at, &listed).await?;
        let bytes = tokio::fs::read(&listed).await.map_err(disk)?;
        let manifest = StagedManifest::read(&bytes).map_err(BlobError::Damaged)?;
        for entry in manifest.entries() {
            let to = content.join(entry.path.as_str());
            tokio::fs::create_dir_all(to.parent().unwrap_or(&content)).await.map_err(disk)?;
            match &entry.kind {
                EntryKind::File { digest, bytes, mode } => {
                    self.get(project, DocumentRef { digest: *digest, bytes: *bytes }, &to).await?;
                    tokio::fs::set_permissions(&to, fs::Permissions::from_mode(*mode)).await.map_err(disk)?;
                }
                EntryKind::Folder => tokio::fs::create_dir_all(&to).await.map_err(disk)?,
                // Checked with the manifest: it stays inside.
                EntryKind::Link { target } => tokio::fs::symlink(target, &to).await.map_err(disk)?,
            }
        }
        let _ = tokio::fs::remove_dir_all(target).await;
        tokio::fs::rename(&partial, target).await.map_err(disk)?;
        let content = stage::content(target);
        let path = manifest.single().map_or_else(|| content.clone(), |name| content.join(name));
        Ok(LocalCheckpoint { step: Some(step), path, digest: format!("sha256:{}", manifest.digest()), metadata: String::new() })
    }

    async fn get(&self, project: &footplate_types::ProjectName, blob: DocumentRef, to: &Path) -> Result<(), BlobError> {
        let mut pause = DISK_PAUSE.0;
        loop {
            match self.blobs.get(project, blob, to).await {
                Err(BlobError::Unavailable(why)) => tracing::warn!(%why, digest = %blob.digest, "download waits"),
                other => return other,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(DISK_PAUSE.1);
        }
    }
}

/// A desk's last words.
pub(crate) struct Closed {
    pub(crate) sessions: Vec<SessionEnd>,
    /// What was sent and not taken in, or staged and not stored; empty: all was.
    pub(crate) lacking: Vec<String>,
}

/// Closes a member's desk: takes in what its dead workers left in the socket, waits for uploads.
pub(crate) async fn close_desk(desk: &Arc<Desk>, drain: Duration, uploads: Duration) -> Closed {
    let drained = desk.close(drain).await;
    let uploaded = desk.uploaded(uploads).await;
    let mut lacking = Vec::new();
    if !drained {
        lacking.push("what was logged last (not taken in)".to_owned());
    }
    if !uploaded {
        lacking.push(format!("{} artifacts or checkpoints (not stored in time)", desk.uploads.pending()));
    }
    lacking.extend(desk.lacking());
    Closed { sessions: desk.session_ends(), lacking }
}

/// Longest path of a Unix socket.
const SOCKET_PATH_MOST: usize = 107;

/// Where the socket goes: in the agent's folder, or under the temporary folder where that path is too long for the kernel.
pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    let wished = dir.join("agent.sock");
    if wished.as_os_str().len() <= SOCKET_PATH_MOST {
        return wished;
    }
    let hash = footplate_types::Digest::of(dir.as_os_str().as_encoded_bytes()).to_string();
    std::env::temp_dir().join(format!("footplate-{}.sock", &hash[..16]))
}

/// Binds the socket; it is its owner's alone.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Accepts until the agent ends.
pub(crate) async fn accept(intake: Arc<Intake>, listener: UnixListener) {
    let open = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MOST));
    let life = intake.life.clone();
    loop {
        let accepted = tokio::select! {
            () = life.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match (accepted, open.clone().try_acquire_owned()) {
            (Ok((stream, _)), Ok(permit)) => {
                let serving = connection::serve(intake.clone(), stream, life.child_token());
                intake.spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            (Ok(_), Err(_)) => tracing::warn!(most = CONNECTIONS_MOST, "connection closed: too many"),
            // Out of descriptors: pause rather than spin.
            (Err(error), _) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(DISK_PAUSE.0).await;
            }
        }
    }
}
