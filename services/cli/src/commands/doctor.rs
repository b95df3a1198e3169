//! `doctor`: looks whether everything that the platform needs is there and set as it should be.

use crate::{
    args::ServiceArgs,
    context::Context,
    output::{Exit, Failure},
};

const EXAMPLES: &str = "\
Examples:
  footplate doctor
  footplate doctor --nats nats://broker:4222 -o json";

/// Look whether everything that the platform needs is there and set as it should be
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Settings.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Runs until it is told to stop.
///
/// # Errors
/// Everything that keeps it from starting, or from stopping in good order.
pub async fn run(_: Args, _: Context) -> anyhow::Result<Exit> {
    Err(Failure::new(Exit::Failed, "the services are not linked into this binary").into())
}
