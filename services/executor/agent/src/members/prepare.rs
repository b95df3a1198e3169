//! Preparing a member: documents, code, set-up, rendezvous. Each step is skipped when it was done before a restart; nothing is started
//! but the set-up, and that once.

use super::{Members, Open, locked};
use crate::{
    blob::BlobError,
    core::MemberKey,
    prepare::{ReservedPort, base_environment, unpack},
    shim::{MemberState, ShimHandle, Stop, WorkerSpec},
};
use footplate_events::{
    facts::{DocumentRef, Rendezvous},
    messages::{LaunchDocument, SEALED_PREFIX, SealedDocument, Task},
};
use footplate_types::ArtifactPath;
use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Pauses while the object store is away.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Members {
    pub(super) async fn prepare_member(
        &self,
        key: MemberKey,
        task: &Task,
        cancel: CancellationToken,
    ) -> Result<Option<Rendezvous>, String> {
        let open = self.open(key, task).map_err(|error| format!("member folder: {error}"))?;
        self.follow(&open).await;
        let work = self.prepare_steps(&open, task, &cancel);
        tokio::select! {
            // A set-up that runs is ended when the member is gathered.
            () = cancel.cancelled() => Err("cancelled".to_owned()),
            result = work => result,
        }
    }

    async fn prepare_steps(&self, open: &Arc<Open>, task: &Task, cancel: &CancellationToken) -> Result<Option<Rendezvous>, String> {
        let launch = self.documents(open, task).await?;
        self.place_code(open, task).await?;
        let folder = Self::working_folder(open, task);
        if !folder.is_dir() {
            return Err(format!("the snapshot has no folder {:?}", task.source.as_ref().map_or("", |source| &source.folder)));
        }
        if !launch.setup.is_empty() {
            self.set_up(open, task, &launch, cancel).await?;
        }
        self.reserve(open, task)
    }

    /// The launch document and the config, with the real values where they were masked. They stand in the member's folder alone, which
    /// is its owner's, and go with it.
    async fn documents(&self, open: &Open, task: &Task) -> Result<LaunchDocument, String> {
        let disk = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        if let Some(launch) = crate::durable::read_json(&open.launch_document()).map_err(disk("launch document"))? {
            return Ok(launch);
        }
        let recorded = open.dir.join("launch.recorded");
        self.fetch(task, task.launch, &recorded, "launch document").await?;
        let launch = crate::durable::read_json::<LaunchDocument>(&recorded).map_err(disk("launch document"))?;
        let mut launch = launch.ok_or("launch document: gone")?;
        let mut config = None;
        if let Some(sealed) = launch.sealed {
            let path = open.dir.join("sealed.json");
            self.fetch(task, sealed, &path, "sealed document").await?;
            // What cannot be read is not told: an error text is no place for what is in there.
            let bytes = fs::read(&path).map_err(|_| "sealed document: unreadable")?;
            let json = bytes.strip_prefix(SEALED_PREFIX).unwrap_or(&bytes);
            let sealed: SealedDocument = serde_json::from_slice(json).map_err(|_| "sealed document: unreadable")?;
            (launch, config) = launch.unsealed(sealed);
            let _ = fs::remove_file(&path);
        }
        match (config, task.config) {
            (Some(text), _) => crate::durable::write(&open.config(), text.as_bytes()).map_err(disk("config"))?,
            (None, Some(recorded)) => self.fetch(task, recorded, &open.config(), "config").await?,
            (None, None) => crate::durable::write(&open.config(), b"{}").map_err(disk("config"))?,
        }
        crate::durable::write_json(&open.launch_document(), &launch).map_err(disk("launch document"))?;
        Ok(launch)
    }

    fn reserve(&self, open: &Open, task: &Task) -> Result<Option<Rendezvous>, String> {
        if task.member.0 != 0 {
            return Ok(None);
        }
        let mut port = locked(&open.port);
        if port.is_none() {
            let random = || u32::from_le_bytes(footplate_clock::entropy());
            *port = Some(ReservedPort::reserve(&self.config.port_locks, random).map_err(|error| error.to_string())?);
        }
        Ok(port.as_ref().map(|port| Rendezvous { address: self.config.address.clone(), port: port.port() }))
    }

    /// Fetches a document once, waiting while the store is away: the gang's deadline bounds that.
    async fn fetch(&self, task: &Task, blob: DocumentRef, to: &Path, what: &str) -> Result<(), String> {
        if to.exists() {
            return Ok(());
        }
        let partial = to.with_extension("partial");
        let mut pause = PAUSE.0;
        loop {
            let _ = tokio::fs::remove_file(&partial).await;
            match self.intake.blobs.get(&task.project, blob, &partial).await {
                Ok(()) => break,
                Err(BlobError::Unavailable(why)) => tracing::warn!(%why, run = %task.run, what, "waits for the object store"),
                Err(error) => return Err(format!("{what}: {error}")),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
        tokio::fs::rename(&partial, to).await.map_err(|error| format!("{what}: {error}"))
    }

    async fn place_code(&self, open: &Open, task: &Task) -> Result<(), String> {
        let code = open.code();
        if code.is_dir() {
            return Ok(());
        }
        let Some(source) = &task.source else {
            return tokio::fs::create_dir_all(&code).await.map_err(|error| format!("code folder: {error}"));
        };
        if !source.folder.is_empty() {
            ArtifactPath::parse(&source.folder).map_err(|error| error.of("source.folder").to_string())?;
        }
        let archive = open.dir.join("source.tar.gz");
        self.fetch(task, source.archive, &archive, "code snapshot").await?;
        let (partial, limits) = (open.dir.join("code.partial"), self.config.unpack);
        let unpacking = tokio::task::spawn_blocking(move || {
            if let Err(error) = fs::remove_dir_all(&partial)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(format!("code folder: {error}"));
            }
            let file = File::open(&archive).map_err(|error| format!("code snapshot: {error}"))?;
            unpack(io::BufReader::new(file), &partial, limits).map_err(|error| error.to_string())?;
            fs::rename(&partial, &code).map_err(|error| format!("code folder: {error}"))?;
            let _ = fs::remove_file(&archive);
            Ok(())
        });
        unpacking.await.map_err(|error| error.to_string())?
    }

    async fn set_up(&self, open: &Open, task: &Task, launch: &LaunchDocument, cancel: &CancellationToken) -> Result<(), String> {
        let shim = open.setup();
        if matches!(shim.state(), Ok(MemberState::NotStarted)) {
            let log = open.log("setup");
            let worker = WorkerSpec {
                rank: task.first_rank.0,
                argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), launch.setup.clone()],
                env: base_environment(task, launch, &self.machine(open)),
                cwd: Self::working_folder(open, task),
                stdout: log.clone(),
                stderr: log,
            };
            let spec = self.shim_spec(open, task, vec![worker]);
            let (starting, command) = (shim.clone(), self.config.shim_command.clone());
            if cancel.is_cancelled() {
                return Err("cancelled".to_owned());
            }
            let started = tokio::task::spawn_blocking(move || {
                starting.write_spec(&spec)?;
                starting.start(&command)
            });
            started.await.map_err(|error| error.to_string())?.map_err(|error| format!("set-up: {error}"))?;
        }
        self.wait_for_end(&shim, &open.marker).await;
        self.judge_set_up(&shim)
    }

    fn judge_set_up(&self, shim: &ShimHandle) -> Result<(), String> {
        let node = &self.config.node;
        let Ok(MemberState::Ended(exit)) = shim.state() else { return Err(format!("set-up on {node}: no record of its end")) };
        let ended = exit.workers.first();
        match ended.map(|worker| (worker.code, worker.signal, &worker.launch_error)) {
            Some((Some(0), ..)) if exit.obeyed.is_none() => Ok(()),
            Some((_, _, Some(error))) => Err(format!("set-up on {node} could not be started: {error}")),
            Some((Some(code), ..)) => Err(format!("set-up on {node} exited with code {code}")),
            Some((None, Some(signal), None)) => Err(format!("set-up on {node} died of signal {signal}")),
            Some((None, None, None)) | None => Err(format!("set-up on {node} was lost")),
        }
    }

    /// Ends a set-up that still runs, and waits until nothing of it is left.
    pub(super) async fn end_set_up(&self, open: &Open) {
        let shim = open.setup();
        if !shim.path().exists() {
            return;
        }
        self.end_tree(&shim, &open.marker).await;
    }
}

impl Members {
    /// Makes sure that nothing of the tree runs or ever will.
    pub(super) async fn end_tree(&self, shim: &ShimHandle, marker: &str) {
        if shim.has_ended() {
            return;
        }
        let voiding = shim.clone();
        let void = tokio::task::spawn_blocking(move || voiding.void()).await;
        if matches!(void, Ok(Ok(true))) {
            return;
        }
        if let Err(error) = shim.stop(&Stop::kill("fenced")) {
            tracing::error!(%error, %marker, "a tree that should not be cannot be told to end");
        }
        self.wait_for_end(shim, marker).await;
    }
}
