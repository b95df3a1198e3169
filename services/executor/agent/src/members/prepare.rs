//! Preparing a member: documents, code, set-up, rendezvous. Each step is skipped when it was done before a restart; nothing is started
//! but the set-up, and that once.

use super::{Members, Open, locked};
use crate::{
    blob::BlobError,
    core::MemberKey,
    prepare::{ReservedPort, base_environment, unpack},
    shim::{MemberState, ShimError, ShimHandle, Stop, WorkerSpec},
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

/// How often a tree is tried to be made void while a shim that may still refuse has it.
const VOID_EVERY: Duration = Duration::from_millis(100);

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
        let launch = launch.of_role(task.role.as_ref().map(|role| role.name.as_str()));
        crate::durable::write_json(&open.launch_document(), &launch).map_err(disk("launch document"))?;
        Ok(launch)
    }

    fn reserve(&self, open: &Open, task: &Task) -> Result<Option<Rendezvous>, String> {
        // Rank 0 waits there; in a gang of roles every member may be spoken to.
        if task.member.0 != 0 && task.role.is_none() {
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
            let (cancelled, turn) = (cancel.clone(), open.setting_up.clone().lock_owned().await);
            let started = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                // It may have waited long, and nobody for it any more.
                if cancelled.is_cancelled() {
                    return Err(ShimError::Refused("cancelled".to_owned()));
                }
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

    /// Ends a set-up that still runs, and waits until nothing of it is left; afterwards none ever starts.
    pub(super) async fn end_set_up(&self, open: &Open) {
        drop(open.setting_up.lock().await);
        self.end_tree(&open.setup(), &open.marker).await;
    }
}

impl Members {
    /// Makes sure that nothing of the tree runs or ever will.
    pub(super) async fn end_tree(&self, shim: &ShimHandle, marker: &str) {
        let mut told = false;
        loop {
            if shim.has_ended() || voided(shim).await {
                return;
            }
            // A shim has it: one that watches workers, or one that is about to, or to refuse and leave the lock to us.
            if !told {
                match shim.stop(&Stop::kill("fenced")) {
                    Ok(()) => told = true,
                    Err(error) => tracing::error!(%error, %marker, "a tree that should not be cannot be told to end"),
                }
            }
            if matches!(shim.started(), Ok(Some(_))) {
                return self.wait_for_end(shim, marker).await;
            }
            tokio::time::sleep(VOID_EVERY).await;
        }
    }
}

/// Whether no shim will ever start this.
async fn voided(shim: &ShimHandle) -> bool {
    let voiding = shim.clone();
    match tokio::task::spawn_blocking(move || voiding.void()).await {
        Ok(Ok(voided)) => voided,
        Ok(Err(error)) => {
            tracing::error!(%error, dir = %shim.path().display(), "a member cannot be made void");
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        blob::BlobAccess,
        config::AgentConfig,
        socket::{Intake, IntakeLimits, Spools},
        spool::{Spool, SpoolOptions},
    };
    use footplate_testkit::eventually;
    use footplate_types::{NodeName, ProjectName, SpoolId};
    use futures::future::BoxFuture;

    const SOON: Duration = Duration::from_secs(10);

    struct Nothing;

    impl BlobAccess for Nothing {
        fn put<'a>(&'a self, _: &'a ProjectName, _: DocumentRef, _: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
            Box::pin(async { Ok(()) })
        }

        fn get<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, _: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
            Box::pin(async move { Err(BlobError::NotFound(blob.digest.to_string())) })
        }
    }

    fn members(work: &Path) -> Members {
        let config = AgentConfig::new(NodeName::parse("n1").unwrap(), work.to_owned());
        let spool = |name: &str| Spool::open(&work.join(name), SpoolOptions::default(), footplate_clock::spool_id).unwrap();
        let (executor, tracker, inventory) = (spool("executor"), spool("tracker"), spool("inventory"));
        let spools = Spools { executor, tracker, inventory, logs: spool("logs"), metrics: spool("metrics") };
        let life = CancellationToken::new();
        let intake = Intake::new(config.node.clone(), spools, Arc::new(Nothing), IntakeLimits::default(), life.clone());
        let aside = Arc::new(crate::aside::Aside::new(work, config.aside));
        Members::new(config, intake, aside, SpoolId::from_bytes([1; 16]), "1".to_owned(), work.join("agent.sock"), life)
    }

    fn lock_as_a_shim_does(shim: &ShimHandle) -> File {
        fs::create_dir_all(shim.path()).unwrap();
        let file = File::create(shim.path().join("lock")).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_set_up_whose_start_is_on_its_way_is_waited_for_and_none_starts_later() {
        let dir = tempfile::tempdir().unwrap();
        let members = Arc::new(members(dir.path()));
        let task = crate::core::tests::task(1, 1, &[0], footplate_events::messages::Order::Prepare);
        let open = members.open(MemberKey::of(&task), &task).unwrap();
        let starting = open.setting_up.clone().lock_owned().await;
        let ending = tokio::spawn({
            let (members, open) = (members.clone(), open.clone());
            async move { members.end_set_up(&open).await }
        });
        // The start goes on for as long as this is held; the folder it makes is not there yet.
        let void = open.setup().path().join("void.json");
        tokio::time::timeout(Duration::from_millis(100), async {
            while !void.exists() && !ending.is_finished() {
                tokio::task::yield_now().await
            }
        })
        .await
        .unwrap_err();
        drop(starting);
        tokio::time::timeout(SOON, ending).await.unwrap().unwrap();
        assert!(void.exists(), "whatever comes late is refused");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tree_whose_shim_refuses_after_it_took_the_lock_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let members = Arc::new(members(dir.path()));
        let shim = ShimHandle::new(dir.path().join("shim"));
        let refusing = lock_as_a_shim_does(&shim);
        let ending = tokio::spawn({
            let (members, shim) = (members.clone(), shim.clone());
            async move { members.end_tree(&shim, "m").await }
        });
        let told = shim.path().join("stop.json");
        eventually(SOON, "it is told to end", || async { told.exists().then_some(()) }).await;
        assert!(!ending.is_finished());
        drop(refusing);
        tokio::time::timeout(SOON, ending).await.unwrap().unwrap();
        assert!(shim.path().join("void.json").exists());
    }
}
