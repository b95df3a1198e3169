//! `agent`: the one process of the platform on a GPU node.

use crate::{
    args::ServiceArgs,
    context::Context,
    output::{Exit, Failure},
    platform::{self, join::Join},
};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate agent --nats nats://broker:4222 --data /var/lib/footplate
  footplate agent --node n17 --slots 2
  footplate agent --join gpu-1.join --data /var/lib/footplate";

/// Run the agent of a GPU node
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of this node (default: the host's)
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// CPU slots that this machine offers when it has no GPU
    #[arg(long, value_name = "COUNT")]
    pub slots: Option<u32>,
    /// The file that `footplate node token` made: this node's name, its secrets, and where the platform is
    #[arg(long, value_name = "FILE")]
    pub join: Option<PathBuf>,
    /// Settings.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Runs until it is told to stop.
///
/// # Errors
/// Everything that keeps it from starting, or from stopping in good order.
pub async fn run(args: Args, _: Context) -> anyhow::Result<Exit> {
    let mut more = Vec::new();
    if let Some(node) = args.node {
        more.push(("agent.node", node));
    }
    if let Some(slots) = args.slots {
        more.push(("agent.slots", slots.to_string()));
    }
    let mut service = args.service;
    if let Some(file) = &args.join {
        let join = Join::read(file).map_err(Failure::usage)?;
        let data = platform::load(&service, &more).map_err(|error| Failure::usage(error.to_string()))?;
        let data = platform::knobs::data_folder(&data).map_err(|error| Failure::usage(error.to_string()))?;
        // Before the others, so that what is said besides wins.
        service.settings.splice(0..0, join.settings(&data).map_err(|error| Failure::new(Exit::Failed, error))?);
    }
    let config = platform::load(&service, &more).map_err(|error| Failure::usage(error.to_string()))?;
    platform::agent::run_agent(config).await
}
