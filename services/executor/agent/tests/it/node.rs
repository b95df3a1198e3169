//! A node under test: the agent over a broker in memory and a folder as the object store, and the test in the place of every service.

use footplate_eventlog::{Broker as _, Expect, Headers, Message, StreamName, memory::MemoryBroker};
use footplate_events::{
    facts::{DocumentRef, Launcher, LogStream, MemberExited, Rendezvous, SourceRef, StopCause, StopPolicy},
    messages::{
        Assignment, BeatMessage, ExecutorReport, Fence, InventoryReport, LaunchDocument, LogHeader, Order, Report, ReportBody, RunCommand,
        Settled, SpoolPosition, Task, TrackerReport, assign_subject, beat_subject, settled_subject,
    },
};
use footplate_executor_agent::{AgentConfig, AgentError, BlobAccess, BlobError, ShapeSource, Timings, run};
use footplate_testkit::{eventually, kill_processes_mentioning, processes_mentioning};
use footplate_types::{
    AttemptNumber, Digest, DisplayName, Epoch, MemberIndex, Millis, NodeName, NodeShape, ProjectName, Rank, RunId, SlotIndex,
};
use futures::future::BoxFuture;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Deadline of every wait.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A folder as the object store.
pub(crate) struct Folder(pub(crate) PathBuf);

impl BlobAccess for Folder {
    fn put<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(async move {
            fs::copy(file, self.0.join(blob.digest.to_string())).map_err(|error| BlobError::Unavailable(error.to_string()))?;
            Ok(())
        })
    }

    fn get<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(async move {
            let bytes = fs::read(self.0.join(blob.digest.to_string())).map_err(|_| BlobError::NotFound(blob.digest.to_string()))?;
            fs::write(file, bytes).map_err(|error| BlobError::Refused(error.to_string()))
        })
    }
}

impl Folder {
    pub(crate) fn add(&self, bytes: &[u8]) -> DocumentRef {
        let digest = Digest::of(bytes);
        fs::write(self.0.join(digest.to_string()), bytes).unwrap();
        DocumentRef { digest, bytes: bytes.len() as u64 }
    }
}

/// A node, its broker and its store.
pub(crate) struct Node {
    pub(crate) root: tempfile::TempDir,
    pub(crate) broker: MemoryBroker,
    pub(crate) store: Arc<Folder>,
    pub(crate) config: AgentConfig,
    as_of: u64,
    running: Option<(JoinHandle<Result<(), AgentError>>, CancellationToken)>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some((task, _)) = self.running.take() {
            task.abort();
        }
        kill_processes_mentioning(&self.root.path().display().to_string());
    }
}

pub(crate) fn quick() -> Timings {
    Timings {
        assignment_every: Duration::from_millis(300),
        settled_every: Duration::from_millis(100),
        resend_after: Duration::from_millis(1_500),
        look_every: Duration::from_millis(20),
        sample_every: Duration::ZERO,
        peer_grace: Duration::from_millis(500),
        leftover_grace: Duration::from_millis(200),
        ..Timings::default()
    }
}

impl Node {
    /// A node whose agent is not started yet.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        fs::create_dir_all(&store).unwrap();
        let mut config = AgentConfig::new(NodeName::parse("n1").unwrap(), root.path().join("work"));
        config.shim_command = vec![env!("CARGO_BIN_EXE_footplate-shim").into()];
        config.shape = ShapeSource::Declared(NodeShape { slots: 4, cpus: 4, ..NodeShape::default() });
        config.lease = Some(Duration::from_secs(60));
        config.beat_every = Some(Duration::from_millis(200));
        config.timings = quick();
        config.port_locks = root.path().join("ports");
        config.platform_address = Some("127.0.0.1:1".to_owned());
        Self { root, broker: MemoryBroker::new(), store: Arc::new(Folder(store)), config, as_of: 100, running: None }
    }

    /// A node whose agent runs and is registered.
    pub(crate) async fn started() -> Self {
        let mut node = Self::new();
        node.start();
        node.registered(1).await;
        node
    }

    pub(crate) fn start(&mut self) {
        let shutdown = CancellationToken::new();
        let agent = run(self.config.clone(), Arc::new(self.broker.clone()), self.store.clone(), shutdown.clone());
        self.running = Some((tokio::spawn(agent), shutdown));
    }

    /// Ends the agent in the middle of whatever it does.
    pub(crate) async fn kill(&mut self) {
        let (task, _) = self.running.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// Asks the agent to end, and waits.
    pub(crate) async fn shut_down(&mut self) -> Result<(), AgentError> {
        let (task, shutdown) = self.running.take().unwrap();
        shutdown.cancel();
        tokio::time::timeout(SOON, task).await.unwrap().unwrap()
    }

    pub(crate) fn task(&self, run: u8, launch: &LaunchDocument) -> Task {
        Task {
            project: ProjectName::parse("vision").unwrap(),
            run: RunId::from_bytes([run; 16]),
            name: DisplayName::parse("try").unwrap(),
            attempt: AttemptNumber(1),
            member: MemberIndex(0),
            epoch: Epoch(1),
            placed_at: self.as_of,
            order: Order::Prepare,
            members: 1,
            world_size: 1,
            first_rank: Rank(0),
            workers: 1,
            gpus: Vec::new(),
            gpu_profile: None,
            gpu_share: 0,
            gpu_memory_bytes: 0,
            slots: vec![SlotIndex(u32::from(run))],
            memory_bytes: 0,
            launcher: Launcher::Direct,
            stop: StopPolicy { grace: Millis(500), ..StopPolicy::default() },
            launch: self.store.add(&serde_json::to_vec(launch).unwrap()),
            config: None,
            source: None,
            checkpoint: None,
            seed: None,
            objective: None,
            role: None,
            array: None,
            traceparent: None,
        }
    }

    pub(crate) fn shell(&self, run: u8, script: &str) -> Task {
        self.task(run, &launch(script))
    }

    /// A snapshot of these files.
    pub(crate) fn snapshot(&self, files: &[(&str, &str)]) -> SourceRef {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let bytes = tar.into_inner().unwrap().finish().unwrap();
        SourceRef {
            archive: self.store.add(&bytes),
            tree: Digest::of(b"tree"),
            commit: "abc".to_owned(),
            branch: "main".to_owned(),
            dirty: false,
            untracked: 0,
            remote: String::new(),
            folder: String::new(),
            remark: String::new(),
        }
    }

    /// Writes the node's assignment, as the scheduler's leader would.
    pub(crate) async fn assign(&mut self, tasks: Vec<Task>) {
        self.as_of += 1;
        self.assign_as_of(self.as_of, tasks).await;
    }

    /// Writes an assignment of any age, as a leader that was deposed without knowing it might.
    pub(crate) async fn assign_as_of(&self, as_of: u64, tasks: Vec<Task>) {
        let assignment = Assignment { node: self.config.node.clone(), as_of, tasks };
        self.publish(StreamName::Assignments, assign_subject(&self.config.node), &serde_json::to_vec(&assignment).unwrap()).await;
    }

    async fn publish(&self, stream: StreamName, subject: String, payload: &[u8]) {
        let message = Message { subject, headers: Headers::default(), payload: payload.to_vec().into() };
        self.broker.publish(stream, message, Expect::Any).await.unwrap();
    }

    /// Prepares, waits for ready, runs, waits for started; its worker's process ids.
    pub(crate) async fn run_member(&mut self, task: &Task) -> Vec<u32> {
        self.assign(vec![task.clone()]).await;
        let rendezvous = self.ready(task.run).await;
        self.assign(vec![self.run_order(task, rendezvous)]).await;
        self.started_workers(task.run).await
    }

    pub(crate) fn run_order(&self, task: &Task, rendezvous: Rendezvous) -> Task {
        Task { order: Order::Run { rendezvous, peers: vec!["127.0.0.1".to_owned()] }, ..task.clone() }
    }

    pub(crate) fn stop_order(task: &Task, cause: StopCause, grace_ms: u64) -> Task {
        Task { order: Order::Stop { cause, grace: Millis(grace_ms) }, ..task.clone() }
    }

    pub(crate) async fn ready(&self, run: RunId) -> Rendezvous {
        let ready = |report: &ExecutorReport| match report {
            ExecutorReport::Ready { of, ready } if of.run == run => ready.rendezvous.clone(),
            _ => None,
        };
        self.report("ready", ready).await
    }

    pub(crate) async fn started_workers(&self, run: RunId) -> Vec<u32> {
        let started = |report: &ExecutorReport| match report {
            ExecutorReport::Started { of, started } if of.run == run => Some(started.workers.iter().map(|worker| worker.pid).collect()),
            _ => None,
        };
        self.report("started", started).await
    }

    pub(crate) async fn exited(&self, run: RunId) -> MemberExited {
        let exited = |report: &ExecutorReport| match report {
            ExecutorReport::Exited { of, exited } if of.run == run => Some(exited.clone()),
            _ => None,
        };
        self.report("exited", exited).await
    }

    async fn report<T>(&self, what: &str, pick: impl Fn(&ExecutorReport) -> Option<T>) -> T {
        let seen = || async { self.executor_reports().await.iter().find_map(&pick) };
        match footplate_testkit::try_eventually(SOON, what, seen).await {
            Ok(value) => value,
            Err(late) => panic!("{late}; reported: {:#?}", self.executor_reports().await),
        }
    }

    /// Every report in the stream, repeated offsets dropped as a reader drops them.
    pub(crate) async fn reports(&self) -> Vec<Report> {
        let page = self.broker.read(StreamName::Reports, ">", 1, usize::MAX).await.unwrap();
        let mut highest: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut kept = Vec::new();
        for message in page.messages {
            let report: Report = serde_json::from_slice(&message.payload).unwrap();
            let last = highest.entry(report.body.service()).or_default();
            if report.at.offset > *last {
                assert!(report.at.offset == *last + 1 || report.kept_from > *last + 1, "a gap after {last}: {report:?}");
                *last = report.at.offset;
                kept.push(report);
            }
        }
        kept
    }

    pub(crate) async fn executor_reports(&self) -> Vec<ExecutorReport> {
        let executor = |report: Report| match report.body {
            ReportBody::Executor(report) => Some(report),
            _ => None,
        };
        self.reports().await.into_iter().filter_map(executor).collect()
    }

    pub(crate) async fn tracker_reports(&self) -> Vec<TrackerReport> {
        let tracker = |report: Report| match report.body {
            ReportBody::Tracker(report) => Some(report),
            _ => None,
        };
        self.reports().await.into_iter().filter_map(tracker).collect()
    }

    /// Waits until the node is registered under this generation.
    pub(crate) async fn registered(&self, epoch: u64) {
        let registered = || async {
            let reports = self.reports().await;
            let of = |report: &Report| match &report.body {
                ReportBody::Inventory(InventoryReport::Registered { registered }) => registered.epoch == Epoch(epoch),
                _ => false,
            };
            reports.iter().any(of).then_some(())
        };
        eventually(SOON, "registered", registered).await;
    }

    /// A worker's stream as it stands in LOGS, byte for byte.
    pub(crate) async fn log(&self, run: RunId, rank: u32, stream: LogStream) -> Vec<u8> {
        let page = self.broker.read(StreamName::Logs, ">", 1, usize::MAX).await.unwrap();
        let mut bytes = Vec::new();
        let mut highest = 0;
        for message in page.messages {
            let header = LogHeader::from_headers(&message.headers).unwrap();
            if header.offset <= highest {
                continue;
            }
            highest = header.offset;
            if (header.run, header.rank, header.stream) == (run, Rank(rank), stream) {
                assert_eq!(header.at, bytes.len() as u64, "no gap and no overlap");
                bytes.extend_from_slice(&message.payload);
            }
        }
        bytes
    }

    pub(crate) async fn log_says(&self, run: RunId, rank: u32, stream: LogStream, text: &str) {
        let says = || async { String::from_utf8_lossy(&self.log(run, rank, stream).await).contains(text).then_some(()) };
        if footplate_testkit::try_eventually(SOON, text, says).await.is_err() {
            panic!("the log never said {text:?}: {:?}", String::from_utf8_lossy(&self.log(run, rank, stream).await));
        }
    }

    /// Settles a service's reports (or `logs`) up to an offset, as the service would.
    pub(crate) async fn settle(&self, service: &str, up_to: SpoolPosition) {
        let settled = Settled { node: self.config.node.clone(), up_to };
        self.publish(StreamName::Settled, settled_subject(&self.config.node, service), &serde_json::to_vec(&settled).unwrap()).await;
    }

    pub(crate) async fn last_beat(&self) -> Option<(u64, BeatMessage)> {
        let last = self.broker.last(StreamName::Beats, &beat_subject(&self.config.node)).await.unwrap()?;
        Some((last.sequence, serde_json::from_slice(&last.payload).unwrap()))
    }

    /// Fences the node at its last beat, as the executor's leader would.
    pub(crate) async fn fence(&self, epoch: u64) {
        let fence = Fence { node: self.config.node.clone(), epoch: Epoch(epoch), reason: "test".to_owned(), lease_ms: 1 };
        let payload = serde_json::to_vec(&BeatMessage::Fence(fence)).unwrap();
        let fenced = || async {
            let expect = self.last_beat().await.map_or(0, |(sequence, _)| sequence);
            let subject = beat_subject(&self.config.node);
            let message = Message { subject, headers: Headers::default(), payload: payload.clone().into() };
            self.broker.publish(StreamName::Beats, message, Expect::Subject(expect)).await.ok()
        };
        eventually(SOON, "fenced", fenced).await;
    }

    /// Living processes of this node's members, without their shims.
    pub(crate) fn living(&self) -> usize {
        let seen = processes_mentioning(&self.root.path().display().to_string());
        seen.iter().filter(|process| !process.argv.first().is_some_and(|program| program.ends_with("footplate-shim"))).count()
    }
}

/// A launch document of one shell line.
pub(crate) fn launch(script: &str) -> LaunchDocument {
    LaunchDocument {
        run: RunCommand::Shell(script.to_owned()),
        setup: String::new(),
        env: BTreeMap::new(),
        pass: Vec::new(),
        origin: BTreeMap::new(),
        roles: BTreeMap::new(),
        sealed: None,
    }
}
