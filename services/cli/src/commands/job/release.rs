//! `job release`.

use super::{Ask, ask};
use crate::{context::Context, output::Exit};

const EXAMPLES: &str = "\
Examples:
  footplate job release 0190f3a2
  footplate job release $(footplate ps -q --queue night)";

/// Let held jobs start again
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids of runs, or unique prefixes of them
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for each in turn.
///
/// # Errors
/// No such run, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    ask(&ctx, &args.runs, &args.reason, Ask::Release).await
}
