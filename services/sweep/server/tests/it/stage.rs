//! A running sweep service over a broker, a client, and the words of the other services.

use footplate_api::server::{ServerParts, serve};
use footplate_api::{ApiError, Client, Target, metrics, types, v1};
use footplate_blobs::Blobs;
use footplate_clock::SystemClock;
use footplate_eventlog::verify::verify_view;
use footplate_eventlog::{Broker, Expect, Headers, Keeper, Ledger, LedgerItem, Message, SnapshotStore, StreamName};
use footplate_events::facts::*;
use footplate_events::{Envelope, Event, Subject};
use footplate_series::{Point, codec};
use footplate_service::Context;
use footplate_sweep_server::{Config, Handle, filters, start};
use footplate_testkit::eventually;
use footplate_types::*;
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message as _;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const PROJECT: &str = "vision";

pub(crate) fn project() -> ProjectName {
    ProjectName::parse(PROJECT).unwrap()
}

pub(crate) struct Stage {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) ledger: Ledger,
    pub(crate) blobs: Blobs,
    pub(crate) client: Client,
    pub(crate) handle: Handle,
    context: Context,
}

impl Stage {
    pub(crate) async fn on(broker: Arc<dyn Broker>, folder: &Path, instance: &str) -> Self {
        Self::kept(broker, folder, instance, None).await
    }

    /// One that keeps its view.
    pub(crate) async fn kept(broker: Arc<dyn Broker>, folder: &Path, instance: &str, snapshots: Option<Keeper>) -> Self {
        let ledger = Ledger::new(broker.clone());
        let blobs = Blobs::local(folder).unwrap();
        let context = Context::new(Duration::from_secs(5));
        let config = Config { lease: Duration::from_millis(800), snapshots, ..Config::new(instance) };
        let handle = start(&config, &ledger, &blobs, &SystemClock::shared(), &context).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let parts = handle.parts(ServerParts::new().authenticator(|_| Ok(PrincipalId::parse("ada").unwrap())));
        context.supervisor.spawn("server", serve(listener, parts, context.shutdown.clone()));
        let client = Client::connect(Target::new(address.to_string()).project(PROJECT)).unwrap();
        Self { broker, ledger, blobs, client, handle, context }
    }

    pub(crate) async fn stop(self) {
        self.context.shutdown.request();
        let _ = self.context.supervisor.stopped().await;
    }

    /// Stores a JSON document.
    pub(crate) async fn stored(&self, json: &str) -> types::DocumentRef {
        let stored = self.blobs.put_bytes(json.as_bytes().to_vec().into()).await.unwrap();
        types::DocumentRef { digest: stored.digest.to_string(), bytes: stored.bytes }
    }

    pub(crate) async fn create(&self, spec: v1::SweepSpec, key: &str) -> Result<v1::CreateSweepResponse, ApiError> {
        let asked = v1::CreateSweepRequest { project: PROJECT.into(), spec: Some(spec), request_id: key.into(), dry_run: false };
        self.client.once(self.client.sweeps().create_sweep(asked)).await
    }

    pub(crate) async fn get(&self, id: &str) -> v1::Sweep {
        let at_least = self.ledger.end().await.unwrap_or_default();
        let asked = v1::GetSweepRequest { project: PROJECT.into(), sweep_id: id.into(), at_least };
        let call = || {
            let (mut service, asked) = (self.client.sweeps(), asked.clone());
            async move { service.get_sweep(asked).await }
        };
        self.client.safely(call).await.unwrap().sweep.unwrap()
    }

    pub(crate) async fn trials(&self, id: &str) -> Vec<v1::Trial> {
        let asked = v1::ListTrialsRequest { project: PROJECT.into(), sweep_id: id.into(), ..Default::default() };
        self.client.once(self.client.sweeps().list_trials(asked)).await.unwrap().trials
    }

    /// Waits until a sweep says something.
    pub(crate) async fn reaches(&self, id: &str, what: &str, look: impl Fn(&v1::Sweep) -> bool) -> v1::Sweep {
        eventually(SOON, what, || async {
            let sweep = self.get(id).await;
            look(&sweep).then_some(sweep)
        })
        .await
    }

    /// Every event of a verb about a sweep's trials, in ledger order.
    pub(crate) async fn events(&self, verb: &str) -> Vec<Event> {
        let (items, _) = self.ledger.read("fp.ledger.*.trial.>", 1, 1_000).await.unwrap();
        let of = |item: LedgerItem| match item {
            LedgerItem::Fact(recorded) if recorded.envelope.event.event_type().verb == verb => Some(recorded.envelope.event),
            _ => None,
        };
        items.into_iter().filter_map(of).collect()
    }

    /// The run of a trial is sealed, as the tracker says it.
    pub(crate) async fn seals(&self, run: &str, outcome: Outcome, last: Option<f64>) {
        seal(&self.broker, run, outcome, last).await;
    }

    /// A worker logs the objective.
    pub(crate) async fn logs(&self, run: &str, n: u64, step: i64, value: f64) {
        log(&self.broker, run, n, step, value).await;
    }

    pub(crate) async fn verifies(&self) {
        let verified = verify_view(&self.ledger, &filters(), self.handle.live(), 0, SOON).await.unwrap();
        assert!(verified.is_equal(), "{:?}", verified.difference);
    }
}

/// Snapshots in memory.
#[derive(Clone, Default)]
pub(crate) struct InMemory(pub(crate) Arc<std::sync::Mutex<BTreeMap<String, Vec<u8>>>>);

impl SnapshotStore for InMemory {
    fn save<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, std::io::Result<()>> {
        self.0.lock().unwrap().insert(name.to_owned(), bytes);
        async { Ok(()) }.boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, std::io::Result<Option<Vec<u8>>>> {
        let found = self.0.lock().unwrap().get(name).cloned();
        async { Ok(found) }.boxed()
    }
}

/// The objective as a worker's agent publishes it.
pub(crate) async fn log(broker: &Arc<dyn Broker>, run: &str, n: u64, step: i64, value: f64) {
    let points = codec::encode(&[Point { step, time_ms: 1_000 + step, value }]);
    let batch = metrics::Batch {
        project: PROJECT.into(),
        run: run.into(),
        attempt: 1,
        rank: 0,
        session: SessionId::from_bytes([1; 16]).to_string(),
        n,
        series: vec![metrics::Block { name: "loss".into(), points }],
    };
    let subject = format!("fp.metrics.{}.n1", RunId::parse(run).unwrap().shard());
    let message = Message { subject, headers: Headers::default(), payload: batch.encode_to_vec().into() };
    eventually(SOON, "the objective is published", || async {
        broker.publish(StreamName::Metrics, message.clone(), Expect::Any).await.ok()
    })
    .await;
}

/// The seal of a trial's run, as the tracker writes it; again while the broker is away (told twice is told once).
pub(crate) async fn seal(broker: &Arc<dyn Broker>, run: &str, outcome: Outcome, last: Option<f64>) {
    let figure = SealedFigure { step: 9, last, min: last, max: last };
    let fact = RunSealed {
        outcome,
        attempt: AttemptNumber(1),
        complete: true,
        missing: Vec::new(),
        points: 10,
        artifacts: 0,
        log_bytes: 0,
        record: Digest::of(b"record"),
        objectives: BTreeMap::from([(MetricName::parse("loss").unwrap(), figure)]),
    };
    let id = footplate_clock::event_id();
    let envelope = Envelope {
        id,
        subject: Subject::run(&project(), RunId::parse(run).unwrap()),
        event: fact.into(),
        source: "test".to_owned(),
        time: footplate_clock::now(),
        actor: PrincipalId::parse("service:tracker").unwrap(),
        correlation: id,
        causation: None,
        trace: None,
    };
    let ledger = Ledger::new(broker.clone());
    eventually(SOON, "the seal is written", || async {
        let last = broker.last(StreamName::Ledger, &envelope.subject.to_string()).await.ok()?;
        ledger.append(envelope.clone(), last.map_or(0, |last| last.sequence)).await.ok()
    })
    .await;
}

pub(crate) fn job(config: Option<types::DocumentRef>) -> types::JobSpec {
    types::JobSpec {
        name: "train".into(),
        resources: Some(types::ResourceAsk { nodes: 1, per_node: Some(types::PerNode { slots: 1, ..Default::default() }) }),
        launch: Some(types::DocumentRef { digest: Digest::of(b"launch").to_string(), bytes: 6 }),
        config,
        ..Default::default()
    }
}

pub(crate) fn float(name: &str, low: f64, high: f64) -> v1::SweepParameter {
    let domain = v1::FloatDomain { low, high, log: false, step: None };
    v1::SweepParameter { name: name.into(), when: Vec::new(), domain: Some(v1::sweep_parameter::Domain::Float(domain)) }
}

pub(crate) fn choice(name: &str, choices: &[&str]) -> v1::SweepParameter {
    let domain = v1::CategoricalDomain { choices: choices.iter().map(|choice| (*choice).to_owned()).collect() };
    v1::SweepParameter { name: name.into(), when: Vec::new(), domain: Some(v1::sweep_parameter::Domain::Categorical(domain)) }
}

pub(crate) fn spec(sampler: &str, space: Vec<v1::SweepParameter>) -> v1::SweepSpec {
    v1::SweepSpec {
        name: "digits".into(),
        space,
        metric: "loss".into(),
        direction: "minimize".into(),
        sampler: sampler.into(),
        seed: 7,
        parallel: 2,
        trials: Some(4),
        job: Some(job(None)),
        ..Default::default()
    }
}
