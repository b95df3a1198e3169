//! `node untaint`.

use super::{
    ANSWER,
    taint::{request, show},
};
use crate::{call, context::Context, output::Exit};
use footplate_types::{NodeName, Toleration};

const EXAMPLES: &str = "\
Examples:
  footplate node untaint n17 dedicated=vision
  footplate node untaint n17 dedicated";

/// Take taints off a node that operators have set
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the node
    #[arg(value_name = "NODE", value_parser = NodeName::parse)]
    pub node: NodeName,
    /// The taints, each key=value, or a key alone for all with that key
    #[arg(required = true, value_name = "TAINT", value_parser = Toleration::parse)]
    pub taints: Vec<Toleration>,
}

/// Asks for each in turn.
///
/// # Errors
/// No such node or taint, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for taint in &args.taints {
        let answer = call!(client, within ANSWER, nodes.untaint_node(request(&args.node, &taint.to_string(), "")))?;
        show(&ctx, &args.node, &taint.to_string(), &answer, "has no longer the taint")?;
    }
    Ok(Exit::Done)
}
