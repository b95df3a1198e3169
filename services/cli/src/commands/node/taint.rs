//! `node taint`, and what it shares with `node untaint`.

use super::ANSWER;
use crate::{
    call,
    context::Context,
    output::{Exit, Failure, tell},
};
use footplate_api::v1;
use footplate_types::{NodeName, Taint};

const EXAMPLES: &str = "\
Examples:
  footplate node taint n17 dedicated=vision
  footplate node taint n17 flaky --reason 'falls off the bus once a day'";

/// Keep off a node jobs that do not tolerate a taint; what runs there goes on
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the node
    #[arg(value_name = "NODE", value_parser = NodeName::parse)]
    pub node: NodeName,
    /// The taints, each key=value or a key alone; jobs name those that they do not mind in placement.tolerations
    #[arg(required = true, value_name = "TAINT", value_parser = Taint::parse)]
    pub taints: Vec<Taint>,
    /// Why, for the record and for whoever looks at the node
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Asks for each in turn.
///
/// # Errors
/// No such node, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for taint in &args.taints {
        let answer = call!(client, within ANSWER, nodes.taint_node(request(&args.node, &taint.to_string(), &args.reason)))?;
        show(&ctx, &args.node, &taint.to_string(), &answer, "has the taint")?;
    }
    Ok(Exit::Done)
}

pub(super) fn request(node: &NodeName, taint: &str, reason: &str) -> v1::NodeRequest {
    v1::NodeRequest {
        name: node.to_string(),
        reason: reason.to_owned(),
        taint: taint.to_owned(),
        request_id: footplate_clock::request_id().to_string(),
        wait: true,
        ..v1::NodeRequest::default()
    }
}

/// Tells what came of it; a refusal is a failure.
pub(super) fn show(ctx: &Context, node: &NodeName, taint: &str, answer: &v1::NodeRequestResponse, done: &str) -> anyhow::Result<()> {
    if !answer.refused.is_empty() {
        return Err(Failure::new(Exit::Refused, format!("{node}: {}", answer.refused)).into());
    }
    if !answer.answered {
        let sequence = answer.sequence;
        tell(format!("{node}: the request is recorded (ledger sequence {sequence}) and will be answered when the inventory leads again"));
    }
    let data = serde_json::json!({"name": node.to_string(), "taint": taint, "sequence": answer.sequence});
    ctx.output.one(node.as_str(), &data, &format!("{node} {done} {taint}\n"))?;
    Ok(())
}
