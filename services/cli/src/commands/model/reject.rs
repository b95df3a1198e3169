//! `model reject`: no, for now.

use super::{Done, about, written};
use crate::{call, context::Context, output::Exit};
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model reject digits 3 --reason 'too slow'";

/// Reject the proposal of a version, or withdraw your own
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// Number of the version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub version: VersionNumber,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Rejects it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let answer = call!(client, registry.reject_version(about(&client, &args.model, args.version, args.reason.clone())))?;
    written(&ctx, &client, &args.model, Done::with(args.version, "rejected"), answer.sequence).await
}
