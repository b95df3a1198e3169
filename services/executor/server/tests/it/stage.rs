//! A running executor and the hands to play the other services and the agents.

use bytes::Bytes;
use footplate_blobs::Blobs;
use footplate_clock::SystemClock;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Broker, Expect, Headers, Ledger, LedgerItem, Message, StreamName};
use footplate_events::facts::*;
use footplate_events::messages::*;
use footplate_events::{Envelope, Event, Recorded, Subject, encode};
use footplate_executor_server::{Config, Handle, start};
use footplate_service::Context;
use footplate_testkit::eventually;
use footplate_types::*;
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const RUN: RunId = RunId::from_bytes([9; 16]);

pub(crate) struct Stage {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) ledger: Ledger,
    pub(crate) context: Context,
    pub(crate) handle: Handle,
    pub(crate) blobs: Blobs,
}

pub(crate) fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

pub(crate) fn project() -> ProjectName {
    ProjectName::parse("default").unwrap()
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId { run: RUN, attempt: AttemptNumber(1) }
}

pub(crate) fn of(member: u32) -> MemberRef {
    MemberRef { project: project(), run: RUN, attempt: AttemptNumber(1), member: MemberIndex(member) }
}

/// An executor with short leases over an empty broker.
pub(crate) async fn stage() -> Stage {
    stage_over(Arc::new(MemoryBroker::new())).await
}

/// The same over a broker that the test made.
pub(crate) async fn stage_over(broker: Arc<dyn Broker>) -> Stage {
    let ledger = Ledger::new(broker.clone());
    let context = Context::new(Duration::from_secs(5));
    let blobs = Blobs::new(Arc::new(object_store::memory::InMemory::new()));
    let config = Config { lease: Duration::from_millis(600), margin: Duration::from_millis(100), ..Config::new("test") };
    let handle = start(&config, &ledger, &blobs, &SystemClock::shared(), &context).await;
    Stage { broker, ledger, context, handle, blobs }
}

impl Stage {
    /// Writes a fact of another service into the ledger.
    pub(crate) async fn record(&self, subject: Subject, event: impl Into<Event>) -> u64 {
        let envelope = Envelope {
            id: footplate_clock::event_id(),
            subject,
            event: event.into(),
            source: "test".to_owned(),
            time: footplate_clock::now(),
            actor: PrincipalId::parse("test").unwrap(),
            correlation: footplate_clock::event_id(),
            causation: None,
            trace: None,
        };
        let (headers, payload) = encode(&envelope).unwrap();
        let message = Message { subject: envelope.subject.to_string(), headers: headers.into(), payload: Bytes::from(payload) };
        self.broker.publish(StreamName::Ledger, message, Expect::Any).await.unwrap()
    }

    /// Two registered nodes and a gang of one member on each.
    pub(crate) async fn placed(&self) {
        let mut members = Vec::new();
        for (index, name) in ["n1", "n2"].into_iter().enumerate() {
            let shape = NodeShape { slots: 1, cpus: 1, memory_bytes: 1, ..NodeShape::default() };
            let fact = NodeRegistered {
                epoch: Epoch(1),
                boot_id: "boot-a".to_owned(),
                shape,
                address: "127.0.0.1".to_owned(),
                agent_version: "0".to_owned(),
                clock_ahead_ms: None,
            };
            self.record(Subject::node(&node(name)), fact).await;
            members.push(MemberPlacement {
                member: MemberIndex(index as u32),
                node: node(name),
                epoch: Epoch(1),
                gpus: Vec::new(),
                gpu_profile: None,
                gpu_share: 0,
                gpu_memory_bytes: 0,
                slots: vec![SlotIndex(0)],
                cpus: 0,
                memory_bytes: 0,
                role: None,
                first_rank: Rank(index as u32),
                workers: 1,
            });
        }
        self.record(Subject::job(&project(), RUN), JobSubmitted { spec: spec(), body: Digest::of(b"body") }).await;
        let view = View { sequence: 0, now: Timestamp::default(), seed: 0, policy: "test".to_owned() };
        let placed = JobPlaced { attempt: AttemptNumber(1), members, ready_within: Millis(60_000), view };
        self.record(Subject::job(&project(), RUN), placed).await;
    }

    pub(crate) async fn report(&self, name: &str, offset: u64, report: ExecutorReport) {
        let report = Report {
            node: node(name),
            epoch: Epoch(1),
            at: SpoolPosition { spool: SpoolId::from_bytes([1; 16]), offset },
            kept_from: 1,
            body: ReportBody::Executor(report),
            traceparent: None,
        };
        let message = Message {
            subject: report_subject(&node(name), "executor"),
            headers: Headers::default(),
            payload: Bytes::from(serde_json::to_vec(&report).unwrap()),
        };
        self.broker.publish(StreamName::Reports, message, Expect::Any).await.unwrap();
    }

    pub(crate) async fn exited(&self, name: &str, member: u32, offset: u64, logs: u64) {
        let exited = MemberExited {
            member: MemberIndex(member),
            node: node(name),
            epoch: Epoch(1),
            obeyed: None,
            workers: vec![WorkerExit { rank: Rank(member), exit: Exit::Code(0), after_ms: 0, message: String::new(), out_of_memory: None }],
            not_started: None,
            offsets: FinalOffsets { spool: Some(SpoolId::from_bytes([2; 16])), logs, ..FinalOffsets::default() },
        };
        self.report(name, offset, ExecutorReport::Exited { of: of(member), exited }).await;
    }

    pub(crate) async fn ready(&self, name: &str, member: u32, offset: u64) {
        let ready = MemberReady { member: MemberIndex(member), node: node(name), epoch: Epoch(1), rendezvous: None };
        self.report(name, offset, ExecutorReport::Ready { of: of(member), ready }).await;
    }

    pub(crate) async fn log(&self, name: &str, member: u32, offset: u64, at: u64, bytes: &[u8]) {
        let header = LogHeader {
            spool: SpoolId::from_bytes([2; 16]),
            offset,
            kept_from: 1,
            project: project(),
            run: RUN,
            attempt: AttemptNumber(1),
            member: MemberIndex(member),
            rank: Rank(member),
            stream: LogStream::Stdout,
            at,
        };
        let message =
            Message { subject: log_subject(&node(name), RUN), headers: header.to_headers().into(), payload: Bytes::copy_from_slice(bytes) };
        self.broker.publish(StreamName::Logs, message, Expect::Any).await.unwrap();
    }

    /// The attempt's events so far.
    pub(crate) async fn events(&self) -> Vec<Recorded> {
        let items = self.ledger.aggregate(&Subject::attempt(&project(), attempt())).await.unwrap();
        let fact = |item| match item {
            LedgerItem::Fact(recorded) => Some(*recorded),
            _ => None,
        };
        items.into_iter().filter_map(fact).collect()
    }

    /// Waits until the attempt has an event that `pick` takes.
    pub(crate) async fn event<T>(&self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        eventually(SOON, what, || async { self.events().await.iter().find_map(|recorded| pick(&recorded.envelope.event)) }).await
    }

    pub(crate) async fn stop(self) {
        self.context.shutdown.request();
        self.context.supervisor.stopped().await.unwrap();
    }
}

fn spec() -> JobSpec {
    let document = DocumentRef { digest: Digest::of(b"launch"), bytes: 6 };
    JobSpec::of(
        DisplayName::parse("gang").unwrap(),
        DisplayName::parse("default").unwrap(),
        QueueName::parse("default").unwrap(),
        ResourceAsk { nodes: 2, per_node: PerNode { slots: 1, ..PerNode::default() } },
        document,
    )
}
