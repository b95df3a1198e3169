//! The services and the agents of one run, each over a connection of its own as in a deployment.

use super::watch::{Launch, Watch};
use anyhow::{Context as _, Result, bail};
use footplate_api::server::{ServerParts, serve};
use footplate_api::{Client, Target, types, v1};
use footplate_blobs::Blobs;
use footplate_clock::SystemClock;
use footplate_eventlog::Ledger;
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig};
use footplate_events::facts::DocumentRef;
use footplate_executor_agent::node::{DeclaredNode, declared_nodes};
use footplate_executor_agent::{AgentConfig, BlobAccess, BlobError, Mode, ShapeSource};
use footplate_service::Context;
use footplate_testkit::{NatsServer, nats, try_eventually};
use footplate_types::{Digest, PrincipalId, ProjectName, RunId};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How long the nodes may take to be registered.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a gang's end may take.
const END_WITHIN: Duration = Duration::from_secs(120);
/// How long a stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// What every node is declared to be.
const NODE: &str =
    "cpus = 128\nmemory = \"2TiB\"\nrack = \"r1\"\n[[node.gpu]]\nmodel = \"H100\"\nmemory = \"80GB\"\ncount = 8\nisland = 0\n";

/// Everything that runs.
pub(crate) struct Stage {
    pub(crate) client: Client,
    context: Context,
    pub(crate) ledger: Ledger,
    pub(crate) project: ProjectName,
    _folder: TempDir,
    _server: NatsServer,
}

impl Stage {
    /// Starts services and `nodes` agents, whose members run for so long; returns when every node is ready for work.
    pub(crate) async fn open(nodes: u32, run_for: Duration) -> Result<Self> {
        let server = nats().try_start().await?;
        let folder = tempfile::Builder::new().prefix("footplate-load-").tempdir()?;
        let context = Context::new(STOP_WITHIN);
        let client = services(&server, folder.path(), &context).await?;
        let declared = declared_nodes(&format!("[[node]]\nname = \"gpu\"\ncount = {nodes}\n{NODE}"))?;
        for node in declared {
            agent(&server, folder.path(), node, run_for, &context).await?;
        }
        let look = || async {
            let nodes_now = client.once(client.nodes().list_nodes(v1::ListNodesRequest::default())).await.ok()?.nodes;
            (nodes_now.iter().filter(|node| node.state == "ready").count() == nodes as usize).then_some(())
        };
        try_eventually(READY_WITHIN, "every node is ready", look).await?;
        let ledger = Ledger::new(Arc::new(broker(&server, "load watch").await?));
        Ok(Self { client, context, ledger, project: ProjectName::parse("default")?, _folder: folder, _server: server })
    }

    /// Submits one gang of `members`, waits for its end, and tells how its launch went.
    pub(super) async fn launch(&self, members: u32) -> Result<Launch> {
        let watch = Watch::begin(self.ledger.broker().clone()).await?;
        let per_node = types::PerNode { gpus: 8, ..types::PerNode::default() };
        let spec = types::JobSpec {
            name: "gang".to_owned(),
            resources: Some(types::ResourceAsk { nodes: members, per_node: Some(per_node) }),
            launch: Some(types::DocumentRef { digest: Digest::of(b"on paper").to_string(), bytes: 8 }),
            ..types::JobSpec::default()
        };
        let asked = v1::SubmitJobRequest { project: self.project.to_string(), spec: Some(spec), ..v1::SubmitJobRequest::default() };
        let run_id = self.client.once(self.client.jobs().submit_job(asked)).await?.run_id;
        let look = || async {
            let asked = v1::GetJobRequest { project: self.project.to_string(), run_id: run_id.clone(), at_least: 0 };
            let job = self.client.once(self.client.jobs().get_job(asked)).await.ok()?.job?;
            (job.state == "ended").then_some(job)
        };
        let job = try_eventually(END_WITHIN, "the gang has ended", look).await?;
        if job.outcome() != types::Outcome::Succeeded || job.attempt != 1 {
            bail!("the gang ended {:?} after {} attempts: {}", job.outcome(), job.attempt, job.reason);
        }
        watch.end(&self.ledger, &self.project, RunId::parse(&run_id)?).await
    }

    /// Stops agents and services.
    pub(crate) async fn close(self) -> Result<()> {
        self.context.shutdown.request();
        self.context.supervisor.stopped().await.context("the services did not stop in good order")
    }
}

async fn broker(server: &NatsServer, name: &str) -> Result<JetStreamBroker> {
    Ok(JetStreamBroker::connect(JetStreamConfig::single(server.url(), name)).await?)
}

/// Scheduler, executor and gpu-inventory behind one port.
async fn services(server: &NatsServer, folder: &Path, context: &Context) -> Result<Client> {
    let clock = SystemClock::shared();
    let ledger = async |name: &str| anyhow::Ok(Ledger::new(Arc::new(broker(server, name).await?)));
    let principal = PrincipalId::parse("user:load")?;
    let parts = ServerParts::new().authenticator(move |_| Ok(principal.clone()));
    let scheduler = footplate_scheduler_server::Config::new("load");
    let parts =
        footplate_scheduler_server::start(&scheduler, &ledger("scheduler").await?, &clock, &context.within("scheduler")).await.parts(parts);
    let executor = footplate_executor_server::Config::new("load");
    let objects = folder.join("objects");
    std::fs::create_dir_all(&objects)?;
    let blobs = Blobs::local(&objects)?;
    let started =
        footplate_executor_server::start(&executor, &ledger("executor").await?, &blobs, &clock, &context.within("executor")).await;
    let parts = started.parts(parts);
    let inventory = footplate_gpu_inventory_server::Config::new("load");
    let started =
        footplate_gpu_inventory_server::start(&inventory, &ledger("gpu-inventory").await?, &clock, &context.within("inventory")).await;
    let parts = started.parts(parts);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    context.supervisor.spawn("server", serve(listener, parts, context.shutdown.clone()));
    Ok(Client::connect(Target::new(address).project("default"))?)
}

/// One agent whose members exist on paper.
async fn agent(server: &NatsServer, folder: &Path, node: DeclaredNode, run_for: Duration, context: &Context) -> Result<()> {
    let mut jetstream = JetStreamConfig::single(server.url(), node.name.as_str());
    jetstream.manage_streams = false;
    let broker = Arc::new(JetStreamBroker::connect(jetstream).await?);
    let work = folder.join("agents").join(node.name.as_str());
    let name = format!("agent {}", node.name);
    let config = AgentConfig {
        shape: ShapeSource::Declared(node.shape),
        mode: Mode::Simulated { run_for },
        sync: false,
        ..AgentConfig::new(node.name, work)
    };
    let shutdown = context.shutdown.token();
    context.supervisor.spawn(name, async move { footplate_executor_agent::run(config, broker, Arc::new(NoBytes), shutdown).await });
    Ok(())
}

/// Members on paper read and write no bytes.
struct NoBytes;

impl BlobAccess for NoBytes {
    fn put<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, _: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        async move { Err(BlobError::Refused(format!("{} of a simulated member", blob.digest))) }.boxed()
    }

    fn get<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, _: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        async move { Err(BlobError::NotFound(blob.digest.to_string())) }.boxed()
    }
}
