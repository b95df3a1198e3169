//! `agent`: the one process of the platform on a GPU node.

use crate::{
    args::ServiceArgs,
    context::Context,
    output::{Exit, Failure},
    platform,
};

const EXAMPLES: &str = "\
Examples:
  footplate agent --nats nats://broker:4222 --data /var/lib/footplate
  footplate agent --node n17 --slots 2";

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
    let config = platform::load(&args.service, &more).map_err(|error| Failure::usage(error.to_string()))?;
    platform::agent::run_agent(config).await
}
