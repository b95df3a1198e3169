//! A tracker on a loopback port, and the words of the other services to write its world with.

use footplate_api::server::{ServerParts, serve};
use footplate_api::v1;
use footplate_api::{Client, Target};
use footplate_blobs::Blobs;
use footplate_clock::{SharedClock, SystemClock};
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Broker, Expect, Headers, Ledger, Message, StreamName};
use footplate_events::facts::*;
use footplate_events::messages::{MemberRef, Report, ReportBody, SpoolPosition, TrackerReport, report_subject};
use footplate_events::{Envelope, Event, Subject};
use footplate_series::SeriesStore;
use footplate_service::Context;
use footplate_testkit::eventually;
use footplate_tracker_server::{Config, Handle, open_series, start};
use footplate_types::*;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const PROJECT: &str = "vision";

/// A running tracker.
pub(crate) struct Tracker {
    pub(crate) client: Client,
    pub(crate) handle: Handle,
    pub(crate) address: SocketAddr,
    context: Context,
}

impl Tracker {
    pub(crate) async fn start(config: &Config, ledger: &Ledger, folder: &std::path::Path) -> Self {
        // After a restart the former tracker's connections may hold its store for a moment more.
        let series = eventually(SOON, "the series store is free", || async { open_series(&folder.join("series")).await.ok() }).await;
        Self::start_over(series, config, ledger, folder).await
    }

    /// A tracker over a series store that others may share.
    pub(crate) async fn start_over(series: Arc<dyn SeriesStore>, config: &Config, ledger: &Ledger, folder: &std::path::Path) -> Self {
        let blobs = Blobs::local(&folder.join("objects")).unwrap();
        let clock: SharedClock = SystemClock::shared();
        let context = Context::new(Duration::from_secs(5));
        let handle = start(config, ledger, series, blobs, &clock, &context).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let parts = handle.parts(ServerParts::new().authenticator(|token| Ok(token.unwrap_or("ada").parse::<PrincipalId>()?)));
        context.supervisor.spawn("port", serve(listener, parts, context.shutdown.clone()));
        let client = Client::connect(Target::new(address.to_string()).project(PROJECT)).unwrap();
        Self { client, handle, address, context }
    }

    /// Stops it and waits until its files are closed.
    pub(crate) async fn stop(self) {
        let Self { client, handle, context, .. } = self;
        drop((client, handle));
        context.shutdown.request();
        let _ = context.supervisor.stopped().await;
    }
}

/// A tracker, its broker and its folder.
pub(crate) struct World {
    pub(crate) tracker: Option<Tracker>,
    pub(crate) ledger: Ledger,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) memory: Option<MemoryBroker>,
    pub(crate) config: Config,
    pub(crate) folder: TempDir,
}

/// Short waits, so that a test of a deadline is short.
pub(crate) fn quick(folder: &std::path::Path) -> Config {
    let mut config = Config::new("test-1/1", Some(folder.join("view")));
    config.lease = Duration::from_secs(2);
    config.seal_deadline = Duration::from_millis(1_500);
    config
}

impl World {
    pub(crate) async fn new() -> Self {
        let memory = MemoryBroker::new();
        let mut world = Self::on(Arc::new(memory.clone())).await;
        world.memory = Some(memory);
        world
    }

    pub(crate) async fn on(broker: Arc<dyn Broker>) -> Self {
        // RUST_LOG shows what a failing test did.
        let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_test_writer().try_init();
        let folder = tempfile::tempdir().unwrap();
        let config = quick(folder.path());
        let ledger = Ledger::new(broker.clone());
        let tracker = Tracker::start(&config, &ledger, folder.path()).await;
        Self { tracker: Some(tracker), ledger, broker, memory: None, config, folder }
    }

    pub(crate) fn tracker(&self) -> &Tracker {
        self.tracker.as_ref().unwrap()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.tracker().client
    }

    pub(crate) async fn restart(&mut self) {
        self.tracker.take().unwrap().stop().await;
        self.restart_after_stop().await;
    }

    pub(crate) async fn restart_after_stop(&mut self) {
        self.tracker = Some(Tracker::start(&self.config, &self.ledger, self.folder.path()).await);
    }

    /// Appends an event of another service, expecting the last one of its subject.
    pub(crate) async fn append(&self, subject: Subject, event: impl Into<Event>) -> u64 {
        let last = self.broker.last(StreamName::Ledger, &subject.to_string()).await.unwrap();
        let id = footplate_clock::event_id();
        let envelope = Envelope {
            id,
            subject,
            event: event.into(),
            source: "test".to_owned(),
            time: footplate_clock::now(),
            actor: PrincipalId::parse("ada").unwrap(),
            correlation: id,
            causation: None,
            trace: None,
        };
        self.ledger.append(envelope, last.map_or(0, |last| last.sequence)).await.unwrap()
    }

    pub(crate) async fn job(&self, run: RunId, event: impl Into<Event>) -> u64 {
        self.append(Subject::job(&project(), run), event).await
    }

    pub(crate) async fn attempt(&self, run: RunId, number: u32, event: impl Into<Event>) -> u64 {
        self.append(Subject::attempt(&project(), AttemptId { run, attempt: AttemptNumber(number) }), event).await
    }

    pub(crate) async fn create(&self, name: &str) -> String {
        let request = v1::CreateRunRequest { project: PROJECT.into(), name: name.into(), ..Default::default() };
        self.client().once(self.client().runs().create_run(request)).await.unwrap().run_id
    }

    pub(crate) async fn get(&self, run_id: &str) -> footplate_api::types::Run {
        let request = v1::GetRunRequest { project: PROJECT.into(), run_id: run_id.into(), at_least: self.ledger.end().await.unwrap() };
        self.client().once(self.client().runs().get_run(request)).await.unwrap().run.unwrap()
    }

    pub(crate) async fn finish(&self, run_id: &str, sessions: Vec<v1::SessionEnd>) -> u64 {
        let request = v1::FinishRunRequest {
            project: PROJECT.into(),
            run_id: run_id.into(),
            outcome: footplate_api::types::Outcome::Succeeded.into(),
            sessions,
            ..Default::default()
        };
        self.client().once(self.client().runs().finish_run(request)).await.unwrap().sequence
    }

    /// Waits for the seal.
    pub(crate) async fn sealed(&self, run_id: &str) -> footplate_api::types::Run {
        let request = v1::WaitRunRequest {
            project: PROJECT.into(),
            run_id: run_id.into(),
            timeout_ms: SOON.as_millis() as u64,
            ..Default::default()
        };
        let answer = self.client().once(self.client().runs().wait_run(request)).await.unwrap();
        assert!(answer.done, "not sealed in time: {:?}", answer.run);
        answer.run.unwrap()
    }

    pub(crate) async fn list(&self, filter: &str, order_by: &str) -> v1::ListRunsResponse {
        self.client().once(self.client().runs().list_runs(self.list_request(filter, order_by).await)).await.unwrap()
    }

    pub(crate) async fn list_request(&self, filter: &str, order_by: &str) -> v1::ListRunsRequest {
        v1::ListRunsRequest {
            project: PROJECT.into(),
            filter: filter.into(),
            order_by: order_by.into(),
            at_least: self.ledger.end().await.unwrap(),
            ..Default::default()
        }
    }

    pub(crate) async fn history(&self, run_id: &str, name: &str) -> v1::GetHistoryResponse {
        let request = v1::GetHistoryRequest { project: PROJECT.into(), run_id: run_id.into(), name: name.into(), ..Default::default() };
        self.client().once(self.client().metrics().get_history(request)).await.unwrap()
    }

    /// Publishes an agent's report.
    pub(crate) async fn report(&self, node: &str, spool: SpoolId, offset: u64, report: TrackerReport) {
        let report = Report {
            node: NodeName::parse(node).unwrap(),
            epoch: Epoch(1),
            at: SpoolPosition { spool, offset },
            kept_from: 1,
            body: ReportBody::Tracker(report),
            traceparent: None,
        };
        let subject = report_subject(&report.node, "tracker");
        let payload = serde_json::to_vec(&report).unwrap().into();
        self.broker.publish(StreamName::Reports, Message { subject, headers: Headers::default(), payload }, Expect::Any).await.unwrap();
    }

    /// A job that runs: submitted, placed on `n1` with two workers, launched.
    pub(crate) async fn running_job(&self) -> RunId {
        self.running(spec("gang")).await
    }

    /// A job with two workers on n1 that runs.
    pub(crate) async fn running(&self, spec: JobSpec) -> RunId {
        let run = footplate_clock::run_id();
        self.job(run, JobSubmitted { spec, body: Digest::of(b"body") }).await;
        self.job(run, placed(1, "n1")).await;
        let rendezvous = Rendezvous { address: "n1".into(), port: 1 };
        self.job(run, JobLaunched { attempt: AttemptNumber(1), rendezvous }).await;
        run
    }
}

pub(crate) fn project() -> ProjectName {
    ProjectName::parse(PROJECT).unwrap()
}

pub(crate) fn session(byte: u8) -> String {
    SessionId::from_bytes([byte; 16]).to_string()
}

pub(crate) fn batch(run_id: &str, session: &str, n: u64, name: &str, points: &[(i64, f64)]) -> v1::IngestRequest {
    let points = points
        .iter()
        .map(|(step, value)| v1::Point { step: *step, time_ms: 1_700_000_000_000i64.wrapping_add(*step), value: *value })
        .collect();
    v1::IngestRequest {
        project: PROJECT.into(),
        run_id: run_id.into(),
        session: session.into(),
        n,
        series: vec![v1::SeriesPoints { name: name.into(), points }],
        ..Default::default()
    }
}

pub(crate) fn member(run: RunId) -> MemberRef {
    MemberRef { project: project(), run, attempt: AttemptNumber(1), member: MemberIndex(0) }
}

pub(crate) fn spec(name: &str) -> JobSpec {
    JobSpec {
        labels: [("team".to_owned(), "blue".to_owned())].into(),
        ..JobSpec::of(
            DisplayName::parse(name).unwrap(),
            DisplayName::parse("digits").unwrap(),
            QueueName::parse("default").unwrap(),
            ResourceAsk { nodes: 1, per_node: PerNode { slots: 2, ..PerNode::default() } },
            DocumentRef { digest: Digest::of(b"launch"), bytes: 6 },
        )
    }
}

pub(crate) fn placed(attempt: u32, node: &str) -> JobPlaced {
    let member = MemberPlacement {
        member: MemberIndex(0),
        node: NodeName::parse(node).unwrap(),
        epoch: Epoch(1),
        gpus: Vec::new(),
        gpu_profile: None,
        gpu_share: 0,
        gpu_memory_bytes: 0,
        slots: vec![SlotIndex(0), SlotIndex(1)],
        cpus: 0,
        memory_bytes: 0,
        role: None,
        first_rank: Rank(0),
        workers: 2,
    };
    JobPlaced {
        attempt: AttemptNumber(attempt),
        members: vec![member],
        ready_within: Millis(1_000),
        view: View { sequence: 0, now: Timestamp::default(), seed: 0, policy: "test".into() },
    }
}

pub(crate) fn exited(offsets: FinalOffsets) -> AttemptExited {
    let worker = WorkerExit { rank: Rank(0), exit: Exit::Code(0), after_ms: 0, message: String::new(), out_of_memory: None };
    AttemptExited {
        members: vec![MemberExited {
            member: MemberIndex(0),
            node: NodeName::parse("n1").unwrap(),
            epoch: Epoch(1),
            obeyed: None,
            workers: vec![worker],
            not_started: None,
            offsets,
        }],
    }
}

pub(crate) fn ended(attempt: u32) -> JobEnded {
    JobEnded {
        outcome: Outcome::Succeeded,
        cause: Cause::Success,
        attempt: AttemptNumber(attempt),
        root: None,
        request: None,
        message: String::new(),
    }
}

pub(crate) fn archived() -> AttemptLogsArchived {
    AttemptLogsArchived {
        member: MemberIndex(0),
        node: NodeName::parse("n1").unwrap(),
        complete: true,
        logs: vec![LogArchive { rank: Rank(0), stream: LogStream::Stdout, digest: Digest::of(b"log"), bytes: 40 }],
    }
}
