//! `up`: all services, an agent and a broker of its own in one process, over one data folder.
//!
//! A first Ctrl-C drains this machine: workers are asked to save and end, their jobs are requeued; then the services stop, then the broker.
//! The next `up` on the same folder takes the machine into use again. Killed instead, the workers run on, and the next `up` adopts them.

use super::broker_door::OperatorDoor;
use super::nats_server::{NatsServer, NatsServerConfig, NatsServerError};
use super::port::{Open, Serving};
use super::run::{exit_of, failure, options, start_and_serve, telemetry, vouched};
use super::services::{Service, Wiring};
use super::{DataFolder, agent, knobs, principals};
use crate::context::{ContextFile, NamedContext, PROJECT_DEFAULT, default_path};
use crate::output::{Exit, tell};
use footplate_api::{Client, Target, v1};
use footplate_credentials::Access;
use footplate_eventlog::{Broker, jetstream::Permissions};
use footplate_registry_server::Bootstrap;
use footplate_service::config::{AnyKnob as _, Config, Origin};
use footplate_service::{Context, Shutdown, Supervisor};
use footplate_types::{Digest, NodeName, PrincipalId, ProjectName};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why this machine is drained when its user stops the platform; the next start takes back just this.
const DRAIN_REASON: &str = "the platform on this machine was stopped by its user";
/// How long workers get to save and end when the platform is stopped.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);
/// How long the services may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Runs the platform until told to stop.
///
/// # Errors
/// Everything that keeps it from starting, or from stopping in good order.
pub async fn up(config: Config) -> anyhow::Result<Exit> {
    let serving = Serving::of(&config)?;
    let folder = knobs::data_folder(&config).map_err(|error| failure(Exit::Usage, error))?;
    let data = DataFolder::take(&folder).map_err(|error| failure(Exit::Refused, error))?;
    let telemetry = telemetry("up", &config)?;
    let Open { ports, public, own: address } = serving.open_with_own().await?;
    let own = own_broker(&config, data.path()).await?;
    let Own { token, node_token, mut bootstrap } = own_principals(&config, data.path(), &address)?;
    bootstrap.extend(vouched(&config)?);
    let door = match &own {
        Some(own) => Some(OperatorDoor::over(own.operator.clone(), own.url.as_str().into(), &config)),
        None => OperatorDoor::of_settings(&config).map_err(|error| failure(Exit::Usage, error))?,
    };
    let mut process = options(&config);
    process.grace += DRAIN_WITHIN;
    let own_ref = own.as_ref();
    let running = footplate_service::run(process, async |outer: Context| {
        let inner = inside(&outer, config.get(&knobs::GRACE));
        let broker = super::connect(&config, own_ref, "footplate up", true).await.map_err(|error| failure(Exit::Unavailable, error))?;
        let broker: Arc<dyn Broker> = Arc::new(broker);
        let leader_lease = leader_lease(&config);
        let wiring = Wiring { config: &config, broker: broker.clone(), data: data.path(), context: &inner, leader_lease, bootstrap, door };
        start_and_serve(&wiring, &Service::ALL, ports).await?;
        let client = Client::connect(Target::new(address.as_str()).token(&token))?;
        let node_client = Client::connect(Target::new(address.as_str()).token(&node_token))?;
        let node =
            agent::start(&config, broker, &node_client, &data.part("agent")?, &inner).map_err(|error| failure(Exit::Failed, error))?;
        let shutdown = outer.shutdown.clone();
        outer.supervisor.spawn("platform", async move { stay(shutdown, inner, client, node).await });
        Ok::<(), anyhow::Error>(())
    });
    let greeting = greet(&public, &address, &token, data.path());
    let ended = beside(running, greeting).await;
    telemetry.flush();
    if let Some(mut own) = own {
        tokio::task::spawn_blocking(move || own.stop()).await?;
    }
    exit_of(ended)
}

/// The lease of the leaders: short unless set, since the data folder's lock lets in no other candidate, and after a kill the next start has to
/// wait it out.
fn leader_lease(config: &Config) -> Duration {
    match config.origin(knobs::LEADER_LEASE.key()) {
        Some(Origin::Default) | None => Duration::from_secs(2),
        Some(_) => config.get(&knobs::LEADER_LEASE),
    }
}

/// Runs `main` to its end, and `side` beside it.
async fn beside<T>(main: impl Future<Output = T>, side: impl Future<Output = ()>) -> T {
    tokio::pin!(main);
    tokio::select! {
        ended = &mut main => return ended,
        () = side => {}
    }
    main.await
}

/// The context of services and agent: it stops when told by this process, not by the signal itself.
fn inside(outer: &Context, grace: Duration) -> Context {
    let shutdown = Shutdown::new(grace);
    Context { supervisor: Supervisor::new(shutdown.clone()), shutdown, readiness: outer.readiness.clone(), metrics: outer.metrics.clone() }
}

async fn own_broker(config: &Config, data: &Path) -> anyhow::Result<Option<NatsServer>> {
    if !config.get(&knobs::NATS_URL).is_empty() {
        return Ok(None);
    }
    let program = config.get(&knobs::NATS_PROGRAM);
    let server = NatsServerConfig {
        program: (!program.is_empty()).then(|| PathBuf::from(program)),
        data: data.to_owned(),
        port: config.get(&knobs::NATS_PORT),
        monitor_port: config.get(&knobs::NATS_MONITOR_PORT),
        disk_bytes: config.get(&knobs::NATS_DISK).0,
        access: own_access(
            &agent::node_name(config).map_err(|error| failure(Exit::Usage, error))?,
            !config.get(&knobs::LEDGER_KEEP).is_zero(),
        ),
    };
    let started = tokio::task::spawn_blocking(move || NatsServer::start(&server)).await?;
    let exit = |error: &NatsServerError| match error {
        NatsServerError::PortTaken { .. } | NatsServerError::Operator(_) | NatsServerError::Store(_) => Exit::Refused,
        _ => Exit::Unavailable,
    };
    Ok(Some(started.map_err(|error| failure(exit(&error), error))?))
}

/// What this process may do at its broker: what its services may, and its agent; and to let runs go, where it is to.
fn own_access(node: &NodeName, lets_go: bool) -> Access {
    let services = Service::ALL.iter().map(|service| Permissions::of_service(&service.name()));
    let all = Permissions::together(services.chain([Permissions::of_node(node)]));
    let all = if lets_go { all.letting_go() } else { all };
    Access::new(all.publish, all.subscribe)
}

/// The principals of this machine, their tokens, and what the registry is to know of them.
struct Own {
    token: String,
    node_token: String,
    bootstrap: Vec<Bootstrap>,
}

/// Tells of principals that an older Footplate knew by a file, and that nobody knows any more.
fn tell_of_former_tokens(file: &Path, own: &[&str]) {
    let Ok(text) = std::fs::read_to_string(file) else { return };
    let own: Vec<String> = own.iter().map(|token| Digest::of(token.as_bytes()).to_string()).collect();
    let others = text.lines().filter_map(|line| line.trim().split_once(' ')).filter(|(digest, _)| !own.iter().any(|own| own == digest));
    let others: Vec<&str> = others.map(|(_, principal)| principal.trim()).collect();
    if !others.is_empty() {
        let (file, others) = (file.display(), others.join(", "));
        tell(format!(
            "footplate: {file} is not read any more; make {others} anew (footplate user create, footplate token create), then remove it"
        ));
    }
}

/// Makes the tokens of the local user and of this machine's agent, and puts the user's where the command line finds it. Bodies that are sealed
/// are given to nodes alone, so that the agent has one of its own.
fn own_principals(config: &Config, data: &Path, address: &str) -> anyhow::Result<Own> {
    let failed = |error: String| failure(Exit::Failed, error);
    let user = PrincipalId::of_local_user(&std::env::var("USER").unwrap_or_default());
    let node = agent::node_name(config).map_err(|error| failure(Exit::Usage, error))?;
    let (token, node_token) = (principals::local_token(&data.join("token")), principals::local_token(&data.join("agent-token")));
    let (token, node_token) = (token.map_err(failed)?, node_token.map_err(failed)?);
    if let Some(path) = default_path() {
        let context = NamedContext {
            addr: Some(address.to_owned()),
            project: None,
            token: Some(token.clone()),
            data: Some(data.display().to_string()),
            ca: None,
        };
        if let Err(error) = ContextFile::remember(&path, "local", context) {
            tell(format!("footplate: the command line will not find this platform by itself: {error}"));
        }
    }
    tell_of_former_tokens(&data.join("tokens"), &[&token, &node_token]);
    let project = ProjectName::parse(PROJECT_DEFAULT)?;
    let user = Bootstrap { project: Some(project), ..principals::vouched(user, &token, true) };
    let node = principals::vouched(PrincipalId::of_node(&node), &node_token, false);
    Ok(Own { token, node_token, bootstrap: vec![user, node] })
}

/// Says that it is up, once everything is ready.
async fn greet(public: &str, own: &str, token: &str, data: &Path) {
    let Ok(client) = Client::connect(Target::new(own).token(token)) else { return };
    let began = Instant::now();
    while began.elapsed() < READY_WITHIN {
        let ready = client.nodes().list_nodes(v1::ListNodesRequest::default()).await;
        if ready.is_ok_and(|answer| answer.get_ref().nodes.iter().any(|node| node.state == "ready")) {
            let here = if own == public { String::new() } else { format!(", for this machine at {own}") };
            tell(format!("footplate is up at {public}{here}, data in {}", data.display()));
            tell("next: footplate submit --wait -- python3 train.py | footplate ps | footplate node list".to_owned());
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tell(format!("footplate: not everything is ready after {} s; see the admin pages' /readyz", READY_WITHIN.as_secs()));
}

/// Stays until a stop is asked for or something fails; then drains, then stops what is inside.
async fn stay(outer: Shutdown, inner: Context, client: Client, node: NodeName) -> Result<(), String> {
    let supervisor = inner.supervisor.clone();
    let failed = async move { supervisor.stopped().await };
    tokio::pin!(failed);
    tokio::select! {
        ended = &mut failed => return ended.map_err(|error| error.to_string()),
        () = take_back(&client, &node, &outer) => {}
    }
    tokio::select! {
        ended = &mut failed => return ended.map_err(|error| error.to_string()),
        () = outer.requested() => {}
    }
    tokio::select! {
        () = drain(&client, &node) => {}
        () = outer.over() => {}
    }
    inner.shutdown.request();
    failed.await.map_err(|error| error.to_string())
}

/// Takes this machine into use again after a stop by its user.
async fn take_back(client: &Client, node: &NodeName, outer: &Shutdown) {
    let look = async {
        loop {
            let asked = v1::GetNodeRequest { name: node.to_string(), at_least: 0 };
            match client.nodes().get_node(asked).await {
                Ok(answer) => match answer.into_inner().node {
                    Some(known) if known.state == "drained" && known.reason == DRAIN_REASON => {
                        let asked = v1::NodeRequest { name: node.to_string(), wait: true, ..v1::NodeRequest::default() };
                        if client.nodes().uncordon_node(asked).await.is_ok() {
                            return;
                        }
                    }
                    Some(known) if known.state != "lost" => return,
                    _ => {}
                },
                Err(status) => tracing::debug!(%status, "this machine is not registered yet"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = outer.or(tokio::time::timeout(READY_WITHIN, look)).await;
}

/// Asks for a drain of this machine and waits until it holds nothing.
async fn drain(client: &Client, node: &NodeName) {
    let holds = || async {
        let asked =
            v1::ListJobsRequest { states: vec!["placed".into(), "launched".into(), "stopping".into()], ..v1::ListJobsRequest::default() };
        match client.jobs().list_jobs(asked).await {
            Ok(answer) => answer.into_inner().jobs.iter().any(|job| job.members.iter().any(|member| member.node == node.as_str())),
            Err(_) => true,
        }
    };
    if !holds().await {
        return;
    }
    tell("stopping: workers are asked to save and end; their jobs are requeued (again Ctrl-C stops at once, workers run on)".to_owned());
    let asked = v1::NodeRequest { name: node.to_string(), reason: DRAIN_REASON.to_owned(), wait: true, ..v1::NodeRequest::default() };
    if let Err(status) = client.nodes().drain_node(asked).await {
        tell(format!("footplate: this machine could not be drained: {}", status.message()));
        return;
    }
    let began = Instant::now();
    while began.elapsed() < DRAIN_WITHIN && holds().await {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
