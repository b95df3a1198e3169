//! `queue set`: makes a queue, or changes it; what is not given stays as it is.

use crate::{
    call,
    context::{Context, SEEN},
    output::{Exit, Failure, tell},
};
use footplate_api::v1;
use footplate_types::QueueName;

const EXAMPLES: &str = "\
Examples:
  footplate queue set night --weight 2 --quota-gpus 16
  footplate queue set night --hold
  footplate queue set night --no-quota --release";

/// Make a queue, or change it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the queue: a-z, 0-9 and -
    #[arg(value_name = "QUEUE", value_parser = QueueName::parse)]
    pub queue: QueueName,
    /// Its share against other queues
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub weight: Option<u32>,
    /// The most GPUs that its jobs hold at once
    #[arg(long, value_name = "COUNT", conflicts_with = "no_quota")]
    pub quota_gpus: Option<u32>,
    /// The most CPU slots that its jobs hold at once
    #[arg(long, value_name = "COUNT", conflicts_with = "no_quota")]
    pub quota_slots: Option<u32>,
    /// Take its quotas away
    #[arg(long)]
    pub no_quota: bool,
    /// Start nothing more from it
    #[arg(long, conflicts_with = "release")]
    pub hold: bool,
    /// Start its jobs again
    #[arg(long)]
    pub release: bool,
    /// Take no more jobs into it
    #[arg(long, conflicts_with = "open")]
    pub close: bool,
    /// Take jobs into it again
    #[arg(long)]
    pub open: bool,
}

/// Writes the change.
///
/// # Errors
/// Nothing to change, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let flag = |on: bool, off: bool| if on { Some(true) } else { off.then_some(false) };
    let name = args.queue.to_string();
    let message = v1::SetQueueRequest {
        name: name.clone(),
        weight: args.weight,
        quota_gpus: args.quota_gpus,
        quota_slots: args.quota_slots,
        held: flag(args.hold, args.release),
        closed: flag(args.close, args.open),
        clear_quota: args.no_quota,
        request_id: footplate_clock::request_id().to_string(),
    };
    let nothing = args.weight.is_none() && args.quota_gpus.is_none() && args.quota_slots.is_none() && !args.no_quota;
    if nothing && message.held.is_none() && message.closed.is_none() {
        let known = call!(client, queues.list_queues(v1::ListQueuesRequest { at_least: 0 }))?.queues;
        if known.iter().any(|queue| queue.name == name) {
            return Err(
                Failure::usage(format!("nothing to change about {name}; give --weight, --quota-gpus, --quota-slots, --hold, ...")).into()
            );
        }
    }
    let answer = call!(client, queues.set_queue(message))?;
    // Whoever lists next sees it.
    let seen = v1::ListQueuesRequest { at_least: answer.sequence };
    if let Err(error) = call!(client, within SEEN, queues.list_queues(seen)) {
        tell(format!("note: it is written, and will be shown a little later ({error})"));
    }
    ctx.output.one(&name, &serde_json::json!({"name": name, "sequence": answer.sequence}), &format!("{name} set\n"))?;
    Ok(Exit::Done)
}
