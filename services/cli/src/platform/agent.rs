//! The agent of this machine, from the settings.

use super::blobs::{BucketBlobs, DoorBlobs};
use super::run::{exit_of, failure, options, telemetry};
use super::{DataFolder, broker::connect_node, knobs, objects};
use crate::output::Exit;
use footplate_api::{Client, Target};
use footplate_blobs::{BlobError, Blobs};
use footplate_eventlog::Broker;
use footplate_events::facts::PlacementAsk;
use footplate_executor_agent::node::declared_nodes;
use footplate_executor_agent::{AgentConfig, BlobAccess, OnShutdown, ShapeSource, SpoolSizes};
use footplate_service::Context;
use footplate_service::config::Config;
use footplate_types::{Invalid, NodeName, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of this node.
///
/// # Errors
/// A name that is none.
pub fn node_name(config: &Config) -> Result<NodeName, Invalid> {
    let set = config.get(&knobs::NODE_NAME);
    if set.is_empty() {
        NodeName::from_host(&knobs::host_name())
    } else {
        NodeName::parse(&set).map_err(|invalid| invalid.of("agent.node"))
    }
}

/// What this node offers: declared in a file, or looked for.
fn shape(config: &Config, node: &NodeName) -> Result<ShapeSource, Invalid> {
    let inventory = config.get(&knobs::NODE_INVENTORY);
    if !inventory.is_empty() {
        let wrong =
            |what: String| Invalid::new("agent.inventory", &inventory, format!("a readable inventory that declares {node}: {what}"));
        let text = std::fs::read_to_string(&inventory).map_err(|error| wrong(error.to_string()))?;
        let declared = declared_nodes(&text).map_err(|error| wrong(error.to_string()))?;
        let known = declared.iter().map(|known| known.name.to_string()).collect::<Vec<_>>().join(", ");
        let found = declared.into_iter().find(|known| known.name == *node);
        return found.map(|found| ShapeSource::Declared(found.shape)).ok_or_else(|| wrong(format!("it declares {known}")));
    }
    let slots = config.get(&knobs::NODE_SLOTS);
    let pool = config.get(&knobs::AGENT_POOL);
    let rack = config.get(&knobs::AGENT_RACK);
    // Whoever counts slots wants slots, also on a machine with GPUs.
    Ok(ShapeSource::Detected {
        slots: (slots > 0).then_some(slots),
        ignore_gpus: slots > 0,
        share_gpus: config.get(&knobs::AGENT_SHARE_GPUS),
        pool: (!pool.is_empty()).then_some(pool),
        rack: (!rack.is_empty()).then_some(rack),
        labels: labels(&config.get(&knobs::AGENT_LABELS))?,
        taints: taints(&config.get(&knobs::AGENT_TAINTS))?,
    })
}

/// `key=value,key=value`, each key once.
fn labels(text: &str) -> Result<BTreeMap<String, String>, Invalid> {
    let wrong = |part: &str| Invalid::new("agent.labels", part, "key=value with commas between them, each key once");
    let mut labels = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(|| wrong(part))?;
        if labels.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
            return Err(wrong(part));
        }
    }
    Ok(labels)
}

/// `key=value,key`.
fn taints(text: &str) -> Result<BTreeSet<Taint>, Invalid> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let taints: BTreeSet<Taint> =
        parts.map(|part| Taint::parse(part).map_err(|invalid| invalid.of("agent.taints"))).collect::<Result<_, _>>()?;
    let most = PlacementAsk::TAINTS_MAX;
    if taints.len() > most {
        return Err(Invalid::new("agent.taints (count)", taints.len(), format!("0 to {most}")));
    }
    Ok(taints)
}

fn agent_config(config: &Config, node: NodeName, work: PathBuf, endless: bool) -> Result<AgentConfig, Invalid> {
    let mut agent = AgentConfig::new(node, work);
    agent.address = config.get(&knobs::NODE_ADDRESS);
    agent.shape = shape(config, &agent.node)?;
    let lease = config.get(&knobs::NODE_LEASE);
    agent.lease = (!endless && !lease.is_zero()).then_some(lease);
    let beat = config.get(&knobs::AGENT_BEAT);
    agent.beat_every = Some(agent.lease.map_or(beat, |lease| beat.min(lease / 3)));
    agent.timings.kill = config.get(&knobs::AGENT_KILL);
    agent.timings.resend_after = config.get(&knobs::AGENT_RESEND);
    agent.on_shutdown = OnShutdown::LeaveMembers;
    let spool = config.get(&knobs::AGENT_SPOOL).0;
    agent.spools = SpoolSizes { logs: spool, metrics: spool, ..SpoolSizes::default() };
    Ok(agent)
}

/// The file of the authorities that alone are trusted, from everywhere the same: workers stand in folders of their own.
fn platform_ca(config: &Config) -> Option<PathBuf> {
    let file = config.get(&knobs::AGENT_CA);
    (!file.is_empty()).then(|| std::path::absolute(&file).unwrap_or_else(|_| PathBuf::from(&file)))
}

/// The way to bytes: to the bucket itself where one is named, else through the platform's door.
fn blob_access(config: &Config, client: &Client, context: &Context) -> Result<Arc<dyn BlobAccess>, BlobError> {
    let Some(options) = objects::bucket(config).map_err(BlobError::Setting)? else {
        return Ok(Arc::new(DoorBlobs::new(client.clone())));
    };
    let blobs = Blobs::s3(&options)?;
    let looking = blobs.clone();
    // An agent starts whatever the store says: what runs here is to be taken over all the same.
    context.supervisor.spawn_infallible("look at the object store", async move {
        if let Err(error) = looking.check().await {
            tracing::warn!(%error, place = %options, "the object store cannot be used now; jobs that need it wait");
        }
    });
    Ok(Arc::new(BucketBlobs::new(blobs)))
}

/// Starts the agent of `up`: its lease has no end, since on one machine only a reboot loses its members.
///
/// # Errors
/// A node name or an object store that cannot be used.
pub fn start(config: &Config, broker: Arc<dyn Broker>, client: &Client, work: &Path, context: &Context) -> anyhow::Result<NodeName> {
    let node = node_name(config)?;
    let mut agent = agent_config(config, node.clone(), work.to_owned(), true)?;
    agent.platform_address = Some(client.target().address.clone());
    let blobs = blob_access(config, client, context)?;
    let shutdown = context.shutdown.token();
    context.supervisor.spawn("agent", async move { footplate_executor_agent::run(agent, broker, blobs, shutdown).await });
    Ok(node)
}

/// Runs the agent of this node as a process of its own, until told to stop; its members run on.
///
/// # Errors
/// Everything that keeps it from starting, or from stopping in good order.
pub async fn run_agent(config: Config) -> anyhow::Result<Exit> {
    let folder = knobs::data_folder(&config).map_err(|error| failure(Exit::Usage, error))?;
    let data = DataFolder::take(&folder).map_err(|error| failure(Exit::Refused, error))?;
    let telemetry = telemetry("agent", &config)?;
    let node = node_name(&config).map_err(|error| failure(Exit::Usage, error))?;
    let ca = platform_ca(&config);
    let target = Target::new(config.get(&knobs::AGENT_API)).token(config.get(&knobs::AGENT_TOKEN)).ca(ca.clone());
    if target.is_readable_on_the_way() {
        tracing::warn!(
            api = target.address,
            "the agent's token goes to the platform in the clear: name an https:// address (docs/guides/tls.md)"
        );
    }
    let client = Client::connect(target)?;
    let ended = footplate_service::run(options(&config), async |context: Context| {
        let broker = connect_node(&config, &node).await;
        let broker: Arc<dyn Broker> = Arc::new(broker.map_err(|error| failure(Exit::Unavailable, error))?);
        let work = data.part("agent").map_err(|error| failure(Exit::Refused, error))?;
        let mut agent = agent_config(&config, node.clone(), work, false).map_err(|error| failure(Exit::Usage, error))?;
        agent.platform_address = Some(config.get(&knobs::AGENT_API));
        // The read side of workers goes to the same address.
        agent.worker_defaults.extend(ca.map(|file| ("FOOTPLATE_CA".to_owned(), file.display().to_string())));
        let blobs = blob_access(&config, &client, &context).map_err(|error| failure(Exit::Usage, error))?;
        let shutdown = context.shutdown.token();
        context.supervisor.spawn("agent", async move { footplate_executor_agent::run(agent, broker, blobs, shutdown).await });
        Ok::<(), anyhow::Error>(())
    })
    .await;
    telemetry.flush();
    exit_of(ended)
}
