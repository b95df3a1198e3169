//! `model archive`: retires a version.

use super::{Done, written};
use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model archive digits 1
  footplate model archive digits 1 --free-aliases --reason 'superseded'

What serves is not archived, and what aliases name only together with them. `footplate model promote MODEL VERSION --stage none` brings it
back.";

/// Retire a version
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// Number of the version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub version: VersionNumber,
    /// Take the aliases that name it away with it
    #[arg(long)]
    pub free_aliases: bool,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Archives it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let message = v1::ArchiveVersionRequest {
        project: client.project().to_owned(),
        model: args.model.to_string(),
        version: args.version.0,
        free_aliases: args.free_aliases,
        reason: args.reason,
        request_id: footplate_clock::request_id().to_string(),
        seen: 0,
    };
    let answer = call!(client, registry.archive_version(message))?;
    written(&ctx, &client, &args.model, Done::with(args.version, "archived"), answer.sequence).await
}
