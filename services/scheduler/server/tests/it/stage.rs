//! Running schedulers over one broker, served on ports, and a client.

use footplate_api::server::{ServerParts, serve};
use footplate_api::{ApiError, Client, Target, types, v1};
use footplate_clock::SystemClock;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Broker, Expect, Ledger, LedgerItem, Message, StreamName};
use footplate_events::facts::NodeRegistered;
use footplate_events::messages::{Assignment, assign_subject};
use footplate_events::{Envelope, Event, Subject, encode};
use footplate_scheduler_server::{Config, Handle, start};
use footplate_service::Context;
use footplate_testkit::eventually;
use footplate_types::*;
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// One scheduler instance and a client of it.
pub(crate) struct Instance {
    pub(crate) ledger: Ledger,
    pub(crate) context: Context,
    pub(crate) handle: Handle,
    pub(crate) client: Client,
}

/// A broker in memory and one scheduler.
pub(crate) struct Stage {
    pub(crate) broker: Arc<MemoryBroker>,
    pub(crate) scheduler: Instance,
}

pub(crate) fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

pub(crate) fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

pub(crate) async fn stage() -> Stage {
    let broker = Arc::new(MemoryBroker::new());
    let scheduler = instance(broker.clone(), "one").await;
    Stage { broker, scheduler }
}

pub(crate) async fn instance(broker: Arc<dyn Broker>, name: &str) -> Instance {
    let ledger = Ledger::new(broker);
    let context = Context::new(Duration::from_secs(5));
    let config = Config { lease: Duration::from_millis(800), ..Config::new(name) };
    let handle = start(&config, &ledger, &SystemClock::shared(), &context.within("scheduler")).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let parts = handle.parts(ServerParts::new().authenticator(|_| Ok(PrincipalId::parse("tester").unwrap())));
    context.supervisor.spawn("server", serve(listener, parts, context.shutdown.clone()));
    let client = Client::connect(Target::new(address.to_string()).project("vision")).unwrap();
    Instance { ledger, context, handle, client }
}

/// A job of `nodes` x `slots`.
pub(crate) fn spec(nodes: u32, slots: u32) -> types::JobSpec {
    types::JobSpec {
        name: "train".to_owned(),
        resources: Some(types::ResourceAsk { nodes, per_node: Some(types::PerNode { slots, ..types::PerNode::default() }) }),
        launch: Some(types::DocumentRef { digest: Digest::of(b"launch").to_string(), bytes: 6 }),
        ..types::JobSpec::default()
    }
}

pub(crate) fn submission(spec: types::JobSpec) -> v1::SubmitJobRequest {
    v1::SubmitJobRequest { project: "vision".to_owned(), spec: Some(spec), ..v1::SubmitJobRequest::default() }
}

/// Writes a fact of another service into the ledger; again while the broker is away (told twice is told once).
pub(crate) async fn record(broker: &dyn Broker, subject: Subject, event: impl Into<Event>) -> u64 {
    let id = footplate_clock::event_id();
    let envelope = Envelope {
        id,
        subject,
        event: event.into(),
        source: "test".to_owned(),
        time: footplate_clock::now(),
        actor: PrincipalId::parse("test").unwrap(),
        correlation: id,
        causation: None,
        trace: None,
    };
    let (headers, payload) = encode(&envelope).unwrap();
    let message = Message { subject: envelope.subject.to_string(), headers: headers.into(), payload: payload.into() };
    eventually(SOON, "the fact is stored", || async { broker.publish(StreamName::Ledger, message.clone(), Expect::Any).await.ok() }).await
}

pub(crate) async fn register(broker: &dyn Broker, name: &str, slots: u32) -> u64 {
    let shape = NodeShape { slots, cpus: 8, memory_bytes: 1 << 34, disk_bytes: 1 << 34, ..NodeShape::default() };
    let fact = NodeRegistered {
        epoch: Epoch(1),
        boot_id: "boot".to_owned(),
        shape,
        address: format!("{name}.local"),
        agent_version: "0".to_owned(),
        clock_ahead_ms: None,
    };
    record(broker, Subject::node(&node(name)), fact).await
}

/// What stands in the stream for a node.
pub(crate) async fn assigned(broker: &dyn Broker, name: &str) -> Option<(u64, Assignment)> {
    let last = broker.last(StreamName::Assignments, &assign_subject(&node(name))).await.unwrap()?;
    Some((last.sequence, serde_json::from_slice(&last.payload).unwrap()))
}

impl Instance {
    pub(crate) async fn submit(&self, request: v1::SubmitJobRequest) -> Result<v1::SubmitJobResponse, ApiError> {
        self.client.once(self.client.jobs().submit_job(request)).await
    }

    pub(crate) async fn submitted(&self, spec: types::JobSpec) -> String {
        self.submit(submission(spec)).await.unwrap().run_id
    }

    pub(crate) async fn job(&self, run_id: &str) -> v1::Job {
        let asked = v1::GetJobRequest { project: "vision".to_owned(), run_id: run_id.to_owned(), at_least: 0 };
        self.client.once(self.client.jobs().get_job(asked)).await.unwrap().job.unwrap()
    }

    /// Waits until the job is in a state, and returns it.
    pub(crate) async fn reaches(&self, run_id: &str, state: &str) -> v1::Job {
        eventually(SOON, &format!("{run_id} is {state}"), || async {
            let job = self.handle.live().read().jobs().contains_key(&RunId::parse(run_id).unwrap())
                || self.handle.live().read().ended().contains_key(&RunId::parse(run_id).unwrap());
            if !job {
                return None;
            }
            Some(self.job(run_id).await).filter(|job| job.state == state)
        })
        .await
    }

    pub(crate) async fn cancel(&self, run_id: &str, request_id: &str) -> Result<v1::JobRequestResponse, ApiError> {
        let asked = v1::JobRequest {
            project: "vision".to_owned(),
            run_id: run_id.to_owned(),
            reason: "enough".to_owned(),
            request_id: request_id.to_owned(),
            wait: true,
        };
        self.client.once(self.client.jobs().cancel_job(asked)).await
    }

    /// The job's events so far.
    pub(crate) async fn events(&self, run_id: &str) -> Vec<Event> {
        let subject = Subject::job(&project(), RunId::parse(run_id).unwrap());
        let items = self.ledger.aggregate(&subject).await.unwrap();
        let fact = |item| match item {
            LedgerItem::Fact(recorded) => Some(recorded.envelope.event),
            _ => None,
        };
        items.into_iter().filter_map(fact).collect()
    }

    pub(crate) async fn verified(&self) -> v1::ViewDigest {
        let asked = v1::VerifyViewsRequest { at_least: 0 };
        let answer = self.client.once(self.client.scheduler_views().verify_views(asked)).await.unwrap();
        answer.views[0].clone()
    }

    pub(crate) async fn stop(self) {
        self.context.shutdown.request();
        self.context.supervisor.stopped().await.unwrap();
    }
}
