//! `model propose`: says that a version may serve, for someone else to approve.

use super::{Done, about, written};
use crate::{call, context::Context, output::Exit};
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model propose digits 3 --reason 'val/acc 0.94 against 0.91'";

/// Propose that a version may serve; someone else approves it
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

/// Proposes it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let answer = call!(client, registry.propose_version(about(&client, &args.model, args.version, args.reason.clone())))?;
    written(&ctx, &client, &args.model, Done::with(args.version, "proposed"), answer.sequence).await
}
