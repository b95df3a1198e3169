//! Members as processes: their folders, shims, logs and desks.

mod gather;
mod prepare;
mod watch;

use crate::{
    aside::Aside,
    boot,
    config::AgentConfig,
    core::{End, Held, MemberKey},
    hands::{Adopted, Hands},
    prepare::{Machine, ReservedPort, argv, worker_environment},
    shim::{MemberState, ShimHandle, ShimSpec, Started, Stop, WorkerSpec},
    socket::{DeskConfig, Intake, StandingStop},
    tail::{Positions, Tail},
};
use footplate_events::{
    facts::{Launcher, LogStream, MemberExited, Rendezvous, StopCause, WorkerStarted},
    messages::{LaunchDocument, Task},
};
use footplate_types::{Rank, SpoolId};
use futures::future::BoxFuture;
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Every member that this node holds.
pub(crate) struct Members {
    config: AgentConfig,
    intake: Arc<Intake>,
    aside: Arc<Aside>,
    spool: SpoolId,
    token: String,
    socket: PathBuf,
    life: CancellationToken,
    open: Mutex<BTreeMap<MemberKey, Arc<Open>>>,
}

/// One member at work.
struct Open {
    dir: PathBuf,
    marker: String,
    tail: tokio::sync::Mutex<Tail>,
    positions: Positions,
    port: Mutex<Option<ReservedPort>>,
    /// Held while a set-up is being started, also when nobody waits for it any more.
    setting_up: Arc<tokio::sync::Mutex<()>>,
    /// Ends the following of its logs.
    following: CancellationToken,
    follower: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Open {
    fn workers(&self) -> ShimHandle {
        ShimHandle::new(self.dir.join("shim"))
    }

    fn setup(&self) -> ShimHandle {
        ShimHandle::new(self.dir.join("setup"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(name)
    }

    fn config(&self) -> PathBuf {
        self.dir.join("config.json")
    }

    fn launch_document(&self) -> PathBuf {
        self.dir.join("launch.json")
    }

    fn code(&self) -> PathBuf {
        self.dir.join("code")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn started_of(started: &Started) -> Vec<WorkerStarted> {
    let one = |worker: &crate::shim::StartedWorker| WorkerStarted { rank: Rank(worker.rank), pid: worker.process.pid.unsigned_abs() };
    started.workers.iter().map(one).collect()
}

/// The span of what is done for a member, inside the trace of its submit.
fn span(what: &'static str, key: MemberKey, task: &Task) -> tracing::Span {
    let span = tracing::info_span!("member", otel.name = what, service = "agent", member = %key);
    if let Some(trace) = &task.traceparent {
        footplate_service::continue_trace(&span, trace);
    }
    span
}

/// How many processes the shim starts, and the local number of each.
fn processes(task: &Task) -> u32 {
    match task.launcher {
        Launcher::Direct => task.workers,
        Launcher::Torchrun => 1,
    }
}

impl Members {
    pub(crate) fn new(
        config: AgentConfig,
        intake: Arc<Intake>,
        aside: Arc<Aside>,
        spool: SpoolId,
        token: String,
        socket: PathBuf,
        life: CancellationToken,
    ) -> Self {
        Self { config, intake, aside, spool, token, socket, life, open: Mutex::new(BTreeMap::new()) }
    }

    fn dir(&self, key: MemberKey) -> PathBuf {
        self.config.work.join("members").join(key.to_string())
    }

    fn find(&self, key: MemberKey) -> Option<Arc<Open>> {
        locked(&self.open).get(&key).cloned()
    }

    /// Opens a member's folder, desk and log files; what is open stays as it is.
    fn open(&self, key: MemberKey, task: &Task) -> io::Result<Arc<Open>> {
        if let Some(open) = self.find(key) {
            return Ok(open);
        }
        let dir = self.dir(key);
        std::fs::create_dir_all(dir.join("logs"))?;
        std::fs::create_dir_all(dir.join("errors"))?;
        let of = crate::core::member_ref(task);
        self.intake.open_desk(DeskConfig {
            of: of.clone(),
            dir: dir.clone(),
            first_rank: task.first_rank,
            workers: task.workers,
            checkpoint: task.checkpoint,
            traceparent: task.traceparent.clone(),
        })?;
        let logs = dir.join("logs");
        let mut files =
            vec![(task.first_rank, LogStream::Setup, logs.join("setup")), (task.first_rank, LogStream::Platform, logs.join("platform"))];
        for rank in (0..processes(task)).map(|local| task.first_rank.0 + local) {
            files.push((Rank(rank), LogStream::Stdout, logs.join(format!("{rank}.out"))));
            files.push((Rank(rank), LogStream::Stderr, logs.join(format!("{rank}.err"))));
        }
        let tail = Tail::open(of, &dir, files)?;
        let open = Arc::new(Open {
            dir,
            marker: format!("{key}-{}", self.token),
            positions: tail.positions(),
            tail: tokio::sync::Mutex::new(tail),
            port: Mutex::new(None),
            setting_up: Arc::default(),
            following: self.life.child_token(),
            follower: tokio::sync::Mutex::new(None),
        });
        locked(&self.open).insert(key, open.clone());
        Ok(open)
    }

    fn machine(&self, open: &Open) -> Machine {
        Machine {
            own: std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect(),
            defaults: self.config.worker_defaults.clone(),
            socket: self.socket.clone(),
            addr: self.config.platform_address.clone(),
            member_dir: open.dir.clone(),
            config: open.config(),
            marker: open.marker.clone(),
        }
    }

    fn working_folder(open: &Open, task: &Task) -> PathBuf {
        let folder = task.source.as_ref().map_or("", |source| source.folder.as_str());
        if folder.is_empty() { open.code() } else { open.code().join(folder) }
    }

    fn shim_spec(&self, open: &Open, task: &Task, workers: Vec<WorkerSpec>) -> ShimSpec {
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        ShimSpec {
            marker: open.marker.clone(),
            lease: lease_file(&self.config),
            workers,
            peer_grace_ms: millis(self.config.timings.peer_grace),
            leftover_grace_ms: millis(self.config.timings.leftover_grace),
            memory_bytes: (task.memory_bytes > 0).then_some(task.memory_bytes),
        }
    }

    async fn launch_member(
        &self,
        key: MemberKey,
        task: &Task,
        rendezvous: &Rendezvous,
        peers: &[String],
    ) -> Result<Vec<WorkerStarted>, String> {
        let open = self.open(key, task).map_err(|error| format!("member folder: {error}"))?;
        let launch = crate::durable::read_json::<LaunchDocument>(&open.launch_document());
        let launch = launch.ok().flatten().ok_or_else(|| "the launch document is gone from the member's folder".to_owned())?;
        let machine = self.machine(&open);
        let worker = |local: u32| {
            let rank = task.first_rank.0 + local;
            WorkerSpec {
                rank,
                argv: argv(&launch.run),
                env: worker_environment(task, &launch, &machine, rendezvous, peers, local),
                cwd: Self::working_folder(&open, task),
                stdout: open.log(&format!("{rank}.out")),
                stderr: open.log(&format!("{rank}.err")),
            }
        };
        let spec = self.shim_spec(&open, task, (0..processes(task)).map(worker).collect());
        let shim = open.workers();
        if let Some(port) = locked(&open.port).as_mut() {
            port.release_to_worker();
        }
        let command = self.config.shim_command.clone();
        let starting = shim.clone();
        let started = tokio::task::spawn_blocking(move || {
            starting.write_spec(&spec)?;
            starting.start(&command)
        });
        started.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let started = shim.started().map_err(|error| error.to_string())?;
        started.as_ref().map(started_of).ok_or_else(|| "the supervisor left no record of its start".to_owned())
    }

    async fn stop_member(&self, key: MemberKey, stop: &Stop, cause: StopCause) {
        if let Some(desk) = self.intake.desk(key.run, key.attempt, key.member) {
            desk.announce_stop(StandingStop { cause, kill_at: Instant::now() + Duration::from_millis(stop.longest_ms()) });
        }
        let shim = ShimHandle::new(self.dir(key).join("shim"));
        let stop = stop.clone();
        let mut pause = Duration::from_millis(20);
        loop {
            let (shim, stop) = (shim.clone(), stop.clone());
            match tokio::task::spawn_blocking(move || shim.stop(&stop)).await {
                Ok(Ok(())) => return,
                // A stop must not be lost to a full disk.
                Ok(Err(error)) => tracing::error!(%error, member = %key, "stop waits"),
                Err(_) => return,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    async fn adopt_member(&self, key: MemberKey, held: &Held) -> Result<Adopted, String> {
        let open = self.open(key, &held.task).map_err(|error| error.to_string())?;
        if let Some(rendezvous) = &held.rendezvous {
            // Held again if it can be; a worker that has it keeps it.
            match ReservedPort::claim(&self.config.port_locks, rendezvous.port) {
                Ok(port) => *locked(&open.port) = Some(port),
                Err(error) => tracing::debug!(%error, port = rendezvous.port, "rendezvous port not held again"),
            }
        }
        let state = open.workers().state().map_err(|error| error.to_string())?;
        Ok(match state {
            MemberState::Running(started) if started.boot_id == boot::id() => Adopted::Running(started_of(&started)),
            _ => Adopted::NotRunning,
        })
    }
}

/// The lease file of an agent.
pub(crate) fn lease_file(config: &AgentConfig) -> PathBuf {
    config.work.join("lease.json")
}

impl Hands for Members {
    fn adopt<'a>(&'a self, key: MemberKey, held: &'a Held) -> BoxFuture<'a, Result<Adopted, String>> {
        Box::pin(self.adopt_member(key, held))
    }

    fn recovered(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for result in [self.intake.recover().await, self.recover_logs().await] {
                if let Err(error) = result {
                    tracing::error!(%error, "spools cannot be read back; what they hold may be taken in twice");
                }
            }
            // Only now: a log followed before would be taken in from its start again.
            let open: Vec<Arc<Open>> = locked(&self.open).values().cloned().collect();
            for member in open {
                self.follow(&member).await;
            }
        })
    }

    fn prepare<'a>(
        &'a self,
        key: MemberKey,
        task: &'a Task,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Rendezvous>, String>> {
        Box::pin(self.prepare_member(key, task, cancel).instrument(span("prepare", key, task)))
    }

    fn launch<'a>(
        &'a self,
        key: MemberKey,
        task: &'a Task,
        rendezvous: &'a Rendezvous,
        peers: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<WorkerStarted>, String>> {
        Box::pin(self.launch_member(key, task, rendezvous, peers).instrument(span("launch", key, task)))
    }

    fn ended(&self, key: MemberKey) -> BoxFuture<'_, ()> {
        let shim = ShimHandle::new(self.dir(key).join("shim"));
        let marker = format!("{key}-{}", self.token);
        Box::pin(async move { self.wait_for_end(&shim, &marker).await })
    }

    fn stop<'a>(&'a self, key: MemberKey, stop: &'a Stop, cause: StopCause) -> BoxFuture<'a, ()> {
        Box::pin(self.stop_member(key, stop, cause))
    }

    fn gather<'a>(&'a self, key: MemberKey, task: &'a Task, end: End) -> BoxFuture<'a, MemberExited> {
        Box::pin(self.gather_member(key, task, end))
    }

    fn forget(&self, key: MemberKey) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            locked(&self.open).remove(&key);
            let desk = self.intake.drop_desk(key.run, key.attempt, key.member);
            let (dir, aside) = (self.dir(key), self.aside.clone());
            let forgetting = move || {
                // What was acknowledged and is nowhere else is for a person to look at.
                if let Some(desk) = desk.filter(|desk| desk.holds_the_only_copy()) {
                    aside.keep_folder(&key.to_string(), &desk.staged())?;
                }
                std::fs::remove_dir_all(dir)
            };
            if let Ok(Err(error)) = tokio::task::spawn_blocking(forgetting).await
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, member = %key, "member folder");
            }
        })
    }

    fn write_progress(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let open: Vec<Arc<Open>> = locked(&self.open).values().cloned().collect();
            let intake = self.intake.clone();
            let write = move || {
                open.iter().try_for_each(|member| member.positions.write())?;
                intake.write_sessions()
            };
            tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
        })
    }
}
