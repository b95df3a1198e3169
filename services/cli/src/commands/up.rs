//! `up`: all services, an agent and a broker of its own, in one process.

use crate::{
    args::{ListenArgs, ServiceArgs},
    context::Context,
    output::{Exit, Failure},
    platform,
};

const EXAMPLES: &str = "\
Examples:
  footplate up
  footplate up --data ~/footplate --slots 4 --listen 127.0.0.1:7450
  footplate up --listen 0.0.0.0:7450 --tls-certificate lab.pem --tls-key lab.key
  footplate up --blobs s3://footplate/team --set blobs.endpoint=https://minio.example:9000";

/// Run everything on this machine: all services, an agent, and a nats-server of its own
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The port.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// CPU slots that this machine offers when it has no GPU
    #[arg(long, value_name = "COUNT")]
    pub slots: Option<u32>,
    /// Series store, scylla://HOST:PORT/KEYSPACE; else in the data folder
    #[arg(long, value_name = "URL")]
    pub series: Option<String>,
    /// Settings.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Runs until it is told to stop.
///
/// # Errors
/// Everything that keeps it from starting, or from stopping in good order.
pub async fn run(args: Args, _: Context) -> anyhow::Result<Exit> {
    let mut more = args.listen.settings();
    if let Some(slots) = args.slots {
        more.push(("agent.slots", slots.to_string()));
    }
    if let Some(series) = args.series {
        more.push(("series", series));
    }
    let config = platform::load(&args.service, &more).map_err(|error| Failure::usage(error.to_string()))?;
    platform::up::up(config).await
}
