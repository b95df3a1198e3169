//! `model alias`: has an alias name a version, or nothing.

use super::{Done, written};
use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{AliasName, ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model alias digits champion 3
  footplate model alias digits champion --remove

An alias moves with one event: models:/digits@champion names the old version or the new one, never none or both.";

/// Have an alias name a version, or nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// The alias: letters, digits, _ and -
    #[arg(value_name = "ALIAS", value_parser = AliasName::parse)]
    pub alias: AliasName,
    /// Number of the version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse, required_unless_present = "remove", conflicts_with = "remove")]
    pub version: Option<VersionNumber>,
    /// Take the alias away
    #[arg(long)]
    pub remove: bool,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Sets or removes it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let (project, model, alias) = (client.project().to_owned(), args.model.to_string(), args.alias.to_string());
    let (reason, request_id) = (args.reason, footplate_clock::request_id().to_string());
    let (done, sequence) = match args.version {
        Some(version) => {
            let message = v1::SetAliasRequest { project, model, alias: alias.clone(), version: version.0, reason, request_id, seen: 0 };
            let answer = call!(client, registry.set_alias(message))?;
            (Done::with(version, format!("is named {alias}")), answer.sequence)
        }
        None => {
            let message = v1::RemoveAliasRequest { project, model, alias: alias.clone(), reason, request_id, seen: 0 };
            let answer = call!(client, registry.remove_alias(message))?;
            (Done { version: None, what: format!("has no alias {alias} any more") }, answer.sequence)
        }
    };
    written(&ctx, &client, &args.model, done, sequence).await
}
