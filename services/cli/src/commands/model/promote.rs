//! `model promote`: has an approved version serve, or moves a version to another stage.

use super::{Done, about, written};
use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model promote digits 3 --reason 'better on rare classes'
  footplate model promote digits 4 --stage staging
  footplate model promote digits 3 --stage none

Production needs an approval, holds one version, and takes the former one out with the same event. If someone else changes what serves at the
same moment, one of you is refused (exit code 4) and told by whom.";

/// Have an approved version serve, or move a version to another stage
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// Number of the version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub version: VersionNumber,
    /// Where to
    #[arg(long, value_name = "STAGE", value_parser = ["none", "staging", "production"], ignore_case = true, default_value = "production")]
    pub stage: String,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Promotes it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let v1::VersionRequest { project, model, version, reason, request_id, seen } =
        about(&client, &args.model, args.version, args.reason.clone());
    let message = v1::MoveVersionRequest { project, model, version, stage: args.stage.clone(), reason, request_id, seen };
    let answer = call!(client, registry.move_version(message))?;
    let done = Done::with(args.version, format!("is in stage {}", args.stage.to_ascii_lowercase()));
    written(&ctx, &client, &args.model, done, answer.sequence).await
}
