//! `node uncordon`.

use super::{Ask, ask};
use crate::{context::Context, output::Exit};
use footplate_types::NodeName;

const EXAMPLES: &str = "\
Examples:
  footplate node uncordon n17
  footplate node uncordon n17 n18";

/// Let new work start on nodes again
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Names of nodes
    #[arg(required = true, value_name = "NODE", value_parser = NodeName::parse)]
    pub nodes: Vec<NodeName>,
    /// Why, for the record and for whoever looks at the node
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for each in turn.
///
/// # Errors
/// No such node, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    ask(&ctx, &args.nodes, &args.reason, Ask::Uncordon).await
}
