//! Running registries over one broker, served on ports, and clients that each have a name.

use footplate_api::server::{ServerParts, serve};
use footplate_api::{ApiError, Client, Target, v1};
use footplate_clock::SystemClock;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Broker, Expect, Ledger, Message, StreamName};
use footplate_events::facts::*;
use footplate_events::{Envelope, Event, Subject, encode};
use footplate_registry_server::{Config, Handle, Membership, start};
use footplate_service::Context;
use footplate_shell::AccessGate;
use footplate_testkit::eventually;
use footplate_types::*;
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The project in which Ada is alone.
pub(crate) const ALONE: &str = "alone";

/// One registry instance.
pub(crate) struct Instance {
    pub(crate) context: Context,
    pub(crate) handle: Handle,
    address: String,
}

/// A broker in memory and one registry.
pub(crate) struct Stage<B = MemoryBroker> {
    pub(crate) broker: Arc<B>,
    pub(crate) registry: Instance,
}

pub(crate) fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

pub(crate) fn run_id(n: u8) -> RunId {
    RunId::from_bytes([n; 16])
}

pub(crate) async fn stage() -> Stage {
    let broker = Arc::new(MemoryBroker::new());
    let registry = instance(broker.clone(), "one").await;
    Stage { broker, registry }
}

pub(crate) async fn instance(broker: Arc<dyn Broker>, name: &str) -> Instance {
    instance_of(broker, Config::new(name)).await
}

pub(crate) async fn instance_of(broker: Arc<dyn Broker>, mut config: Config) -> Instance {
    let ledger = Ledger::new(broker);
    let context = Context::new(Duration::from_secs(5));
    config.membership = Membership::new(|project, who| project.as_str() == ALONE && who.as_str() == "ada");
    let gate = AccessGate::start(&ledger, &SystemClock::shared(), &context);
    let handle = start(&config, &gate, &ledger, &SystemClock::shared(), &context).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Whoever names themselves is believed here.
    let parts = handle.parts(ServerParts::new().authenticator(|token| Ok(PrincipalId::parse(token.unwrap_or("nobody")).unwrap())));
    context.supervisor.spawn("server", serve(listener, parts, context.shutdown.clone()));
    Instance { context, handle, address }
}

impl Instance {
    /// A client of someone.
    pub(crate) fn of(&self, who: &str) -> Person {
        let client = Client::connect(Target::new(self.address.as_str()).project("vision").token(who)).unwrap();
        Person { client, project: "vision".to_owned() }
    }

    pub(crate) async fn verified(&self) -> v1::ViewDigest {
        let client = self.of("ops").client;
        let answer = client.once(client.registry_views().verify_views(v1::VerifyViewsRequest { at_least: 0 })).await.unwrap();
        answer.views[0].clone()
    }

    pub(crate) async fn stop(self) {
        self.context.shutdown.request();
        self.context.supervisor.stopped().await.unwrap();
    }
}

/// Someone who asks about the model `digits`.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) client: Client,
    pub(crate) project: String,
}

pub(crate) type Told<T> = Result<T, ApiError>;

impl Person {
    pub(crate) fn in_project(self, project: &str) -> Self {
        Self { project: project.to_owned(), ..self }
    }

    pub(crate) async fn create(&self, name: &str) -> Told<v1::WriteResponse> {
        let asked = v1::CreateModelRequest { project: self.project.clone(), name: name.to_owned(), ..v1::CreateModelRequest::default() };
        self.client.once(self.client.registry().create_model(asked)).await
    }

    pub(crate) fn registration(&self, run: RunId, path: &str) -> v1::RegisterVersionRequest {
        v1::RegisterVersionRequest {
            project: self.project.clone(),
            model: "digits".to_owned(),
            run_id: run.to_string(),
            path: path.to_owned(),
            ..v1::RegisterVersionRequest::default()
        }
    }

    pub(crate) async fn register(&self, request: v1::RegisterVersionRequest) -> Told<v1::RegisterVersionResponse> {
        self.client.once(self.client.registry().register_version(request)).await
    }

    pub(crate) fn about(&self, version: u32) -> v1::VersionRequest {
        v1::VersionRequest { project: self.project.clone(), model: "digits".to_owned(), version, ..v1::VersionRequest::default() }
    }

    pub(crate) async fn propose(&self, version: u32) -> Told<v1::WriteResponse> {
        self.client.once(self.client.registry().propose_version(self.about(version))).await
    }

    pub(crate) async fn approve(&self, version: u32) -> Told<v1::WriteResponse> {
        self.client.once(self.client.registry().approve_version(self.about(version))).await
    }

    pub(crate) async fn promote(&self, version: u32) -> Told<v1::WriteResponse> {
        self.client.once(self.client.registry().promote_version(self.about(version))).await
    }

    pub(crate) async fn roll_back(&self) -> Told<v1::RollBackModelResponse> {
        let asked =
            v1::RollBackModelRequest { project: self.project.clone(), model: "digits".to_owned(), ..v1::RollBackModelRequest::default() };
        self.client.once(self.client.registry().roll_back_model(asked)).await
    }

    pub(crate) async fn set_alias(&self, alias: &str, version: u32) -> Told<v1::WriteResponse> {
        let asked = v1::SetAliasRequest {
            project: self.project.clone(),
            model: "digits".to_owned(),
            alias: alias.to_owned(),
            version,
            ..v1::SetAliasRequest::default()
        };
        self.client.once(self.client.registry().set_alias(asked)).await
    }

    pub(crate) async fn remove_alias(&self, alias: &str, seen: u64) -> Told<v1::WriteResponse> {
        let (project, model, alias) = (self.project.clone(), "digits".to_owned(), alias.to_owned());
        let asked = v1::RemoveAliasRequest { project, model, alias, seen, ..v1::RemoveAliasRequest::default() };
        self.client.once(self.client.registry().remove_alias(asked)).await
    }

    pub(crate) async fn archive(&self, version: u32, free_aliases: bool, seen: u64) -> Told<v1::WriteResponse> {
        let (project, model) = (self.project.clone(), "digits".to_owned());
        let asked = v1::ArchiveVersionRequest { project, model, version, free_aliases, seen, ..v1::ArchiveVersionRequest::default() };
        self.client.once(self.client.registry().archive_version(asked)).await
    }

    pub(crate) fn figures(&self, version: u32, figures: impl IntoIterator<Item = (String, f64)>) -> v1::EvaluateVersionRequest {
        let (project, model) = (self.project.clone(), "digits".to_owned());
        let figures = figures.into_iter().collect();
        v1::EvaluateVersionRequest { project, model, version, figures, data: "test@3".to_owned(), ..v1::EvaluateVersionRequest::default() }
    }

    pub(crate) async fn evaluate(&self, request: v1::EvaluateVersionRequest) -> Told<v1::WriteResponse> {
        self.client.once(self.client.registry().evaluate_version(request)).await
    }

    /// The numbers of the versions in a stage.
    pub(crate) async fn in_stage(&self, stage: &str, at_least: u64) -> Vec<u32> {
        let (project, model, stages) = (self.project.clone(), "digits".to_owned(), vec![stage.to_owned()]);
        let asked = v1::ListVersionsRequest { project, model, stages, at_least, ..v1::ListVersionsRequest::default() };
        let page = self.client.once(self.client.registry().list_versions(asked)).await.unwrap();
        page.versions.iter().map(|version| version.version).collect()
    }

    pub(crate) async fn resolve(&self, uri: &str) -> Told<v1::ResolveModelResponse> {
        let asked = v1::ResolveModelRequest { project: self.project.clone(), uri: uri.to_owned(), at_least: 0 };
        self.client.once(self.client.registry().resolve_model(asked)).await
    }

    pub(crate) async fn model(&self) -> v1::Model {
        let asked = v1::GetModelRequest { project: self.project.clone(), name: "digits".to_owned(), at_least: 0 };
        self.client.once(self.client.registry().get_model(asked)).await.unwrap().model.unwrap()
    }

    pub(crate) async fn version(&self, version: u32) -> v1::ModelVersion {
        let asked = v1::GetVersionRequest { project: self.project.clone(), model: "digits".to_owned(), version, at_least: 0 };
        self.client.once(self.client.registry().get_version(asked)).await.unwrap().version.unwrap()
    }
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

pub(crate) fn opened() -> RunCreated {
    let name = DisplayName::parse("train").unwrap();
    let experiment = ExperimentId::of(&project(), &name);
    RunCreated { name: name.clone(), experiment, experiment_name: name, body: None, hypothesis: String::new() }
}

pub(crate) fn artifacts(files: &[(&str, &str)]) -> RunArtifactsLogged {
    let logged = |(path, content): &(&str, &str)| LoggedArtifact {
        path: ArtifactPath::parse(path).unwrap(),
        digest: Digest::of(content.as_bytes()),
        bytes: content.len() as u64,
        attempt: AttemptNumber(0),
        rank: Rank(0),
    };
    RunArtifactsLogged { artifacts: files.iter().map(logged).collect() }
}

pub(crate) fn sealed(outcome: Outcome) -> RunSealed {
    RunSealed {
        outcome,
        attempt: AttemptNumber(0),
        complete: true,
        missing: Vec::new(),
        points: 0,
        artifacts: 1,
        log_bytes: 0,
        record: Digest::of(b"record"),
        objectives: std::collections::BTreeMap::new(),
    }
}

/// A sealed run of a project with `model.bin` in it, as the tracker would have told it.
pub(crate) async fn trained(broker: &dyn Broker, project: &str, n: u8) -> RunId {
    let (project, run) = (ProjectName::parse(project).unwrap(), run_id(n));
    let subject = Subject::run(&project, run);
    record(broker, subject.clone(), opened()).await;
    record(broker, subject.clone(), artifacts(&[("model.bin", &format!("weights {n}"))])).await;
    record(broker, subject, sealed(Outcome::Succeeded)).await;
    run
}

/// The model `digits` with so many versions, each proposed by Ada and approved by Bob.
pub(crate) async fn approved_versions<B: Broker>(stage: &Stage<B>, count: u8) {
    let (ada, bob) = (stage.registry.of("ada"), stage.registry.of("bob"));
    ada.create("digits").await.unwrap();
    for n in 1..=count {
        let run = trained(stage.broker.as_ref(), "vision", n).await;
        let version = ada.register(ada.registration(run, "model.bin")).await.unwrap().version;
        ada.propose(version).await.unwrap();
        bob.approve(version).await.unwrap();
    }
}
