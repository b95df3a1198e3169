//! `serve`: one service of the platform.

use crate::{
    args::{ListenArgs, ServiceArgs},
    context::Context,
    output::{Exit, Failure},
    platform::{self, Service, run::run_services},
};

const EXAMPLES: &str = "\
Examples:
  footplate serve scheduler --nats nats://broker:4222
  footplate serve tracker --config /etc/footplate/tracker.toml --blobs s3://footplate/team
  footplate serve registry --nats nats://broker:4222 --listen 0.0.0.0:7450 --insecure";

/// Run one service
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The service
    #[arg(value_name = "SERVICE", value_parser = ["tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry"])]
    pub name: String,
    /// The port.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Address of the admin pages: health, metrics, configuration
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
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
    if let Some(admin) = args.admin {
        more.push(("admin.listen", admin));
    }
    if let Some(series) = args.series {
        more.push(("series", series));
    }
    let config = platform::load(&args.service, &more).map_err(|error| Failure::usage(error.to_string()))?;
    let service = Service::parse(&args.name).ok_or_else(|| Failure::usage(format!("no service called {:?}", args.name)))?;
    run_services(config, &[service], service.as_str()).await
}
