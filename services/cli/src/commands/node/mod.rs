//! Verbs of `node`: machines and their GPUs.

pub mod cordon;
pub mod drain;
pub mod list;
pub mod taint;
pub mod token;
pub mod uncordon;
pub mod untaint;

use crate::{
    call,
    context::{Context, SEEN},
    output::{Exit, Failure, tell},
};
use footplate_api::{Client, v1};
use footplate_types::NodeName;
use std::time::Duration;

/// How long the leader may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Which request is made.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Cordon,
    Uncordon,
    Drain,
}

/// Whether the node holds nothing any more; a view that is late does not say so.
async fn is_drained(client: &Client, name: &str, sequence: u64) -> bool {
    let asked = v1::GetNodeRequest { name: name.to_owned(), at_least: sequence };
    let answer = call!(client, within SEEN, nodes.get_node(asked));
    answer.is_ok_and(|answer| answer.node.is_some_and(|node| node.state == "drained"))
}

/// Asks for each node in turn.
async fn ask(ctx: &Context, nodes: &[NodeName], reason: &str, ask: Ask) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for node in nodes {
        let name = node.to_string();
        let message = v1::NodeRequest {
            name: name.clone(),
            reason: reason.to_owned(),
            request_id: footplate_clock::request_id().to_string(),
            wait: true,
            ..v1::NodeRequest::default()
        };
        let (answer, word) = match ask {
            Ask::Cordon => (call!(client, within ANSWER, nodes.cordon_node(message))?, "cordoned"),
            Ask::Uncordon => (call!(client, within ANSWER, nodes.uncordon_node(message))?, "uncordoned"),
            Ask::Drain => {
                let answer = call!(client, within ANSWER, nodes.drain_node(message))?;
                let word = if is_drained(&client, &name, answer.sequence).await { "drained" } else { "draining" };
                (answer, word)
            }
        };
        if !answer.refused.is_empty() {
            return Err(Failure::new(Exit::Refused, format!("{name}: {}", answer.refused)).into());
        }
        if !answer.answered {
            tell(format!(
                "{name}: the request is recorded (ledger sequence {}) and will be answered when the inventory leads again",
                answer.sequence
            ));
        }
        ctx.output.one(&name, &serde_json::json!({"name": name, "sequence": answer.sequence}), &format!("{name} {word}\n"))?;
    }
    Ok(Exit::Done)
}
