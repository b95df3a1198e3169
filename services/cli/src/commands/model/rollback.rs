//! `model rollback`: has serve again what served before.

use super::{Done, written};
use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model rollback digits --reason 'latency doubled'
  footplate model rollback digits --to 1

Without --to what served just before serves again; rolling back a roll-back brings back what it took away. Nothing is forgotten:
`footplate model show` lists what has served.";

/// Have serve again what served before
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// A version that has served, instead of the one before
    #[arg(long, value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub to: Option<VersionNumber>,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Rolls back.
///
/// # Errors
/// Nothing served before, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let message = v1::RollBackModelRequest {
        project: client.project().to_owned(),
        model: args.model.to_string(),
        to: args.to.map_or(0, |version| version.0),
        reason: args.reason,
        request_id: footplate_clock::request_id().to_string(),
        seen: 0,
    };
    let answer = call!(client, registry.roll_back_model(message))?;
    let done = Done::with(VersionNumber(answer.version), "serves again");
    written(&ctx, &client, &args.model, done, answer.sequence).await
}
