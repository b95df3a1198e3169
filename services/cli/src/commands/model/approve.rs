//! `model approve`: the second pair of eyes.

use super::{Done, about, written};
use crate::{call, context::Context, output::Exit};
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model approve digits 3 --reason 'checked the confusion matrix'";

/// Approve the proposal of a version: not one of your own, unless you are alone in the project
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

/// Approves it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let answer = call!(client, registry.approve_version(about(&client, &args.model, args.version, args.reason.clone())))?;
    written(&ctx, &client, &args.model, Done::with(args.version, "approved"), answer.sequence).await
}
