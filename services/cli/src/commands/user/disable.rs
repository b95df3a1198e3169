//! `user disable`.

use super::{Ask, ask};
use crate::{context::Context, output::Exit};
use footplate_types::PrincipalId;

const EXAMPLES: &str = "\
Examples:
  footplate user disable user:ada --reason 'left the team'";

/// Shut principals out: none of their tokens is taken any more, whatever roles they keep
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Who
    #[arg(required = true, value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principals: Vec<PrincipalId>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for each in turn.
///
/// # Errors
/// No such principal, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    ask(&ctx, &args.principals, &args.reason, Ask::Disable).await
}
