//! `queue set`: makes a queue, or changes it; what is not given stays as it is.

use crate::{
    call,
    context::{Context, SEEN},
    output::{Exit, Failure, tell},
};
use footplate_api::v1;
use footplate_types::{Millis, QueueName};

const EXAMPLES: &str = "\
Examples:
  footplate queue set night --weight 2 --quota-gpus 16
  footplate queue set night --quota-slots none --hold
  footplate queue set vision --guarantee-gpus 32 --quota-gpus 64
  footplate queue set vision --small-first 1h
  footplate queue set cars --parent vision --weight 2 --guarantee-gpus 16
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
    /// The most GPUs that its jobs hold at once: 0 lets none start, `none` takes the limit away
    #[arg(long, value_name = "COUNT", conflicts_with = "no_quota")]
    pub quota_gpus: Option<Limit>,
    /// The most CPU slots that its jobs hold at once: 0 lets none start, `none` takes the limit away
    #[arg(long, value_name = "COUNT", conflicts_with = "no_quota")]
    pub quota_slots: Option<Limit>,
    /// The queue above it, whose quota holds for it too and of whose share it is a part; `none` puts it at the top
    #[arg(long, value_name = "QUEUE", value_parser = parent)]
    pub parent: Option<String>,
    /// GPUs that are its own: what others borrow of them they give back as soon as its jobs need them; 0 for none
    #[arg(long, value_name = "COUNT")]
    pub guarantee_gpus: Option<u32>,
    /// CPU slots that are its own, likewise
    #[arg(long, value_name = "COUNT")]
    pub guarantee_slots: Option<u32>,
    /// Small jobs first: how long a job yields to those of equal priority that are half its size (its GPUs or slots times `limits.max_duration`), such as
    /// `1h`; `none` for the order of submission
    #[arg(long, value_name = "TIME", value_parser = small_first)]
    pub small_first: Option<Millis>,
    /// Take both quotas away
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

/// The name of a queue, or empty for the word `none`.
fn parent(text: &str) -> Result<String, String> {
    match text {
        "none" => Ok(String::new()),
        name => QueueName::parse(name).map(|name| name.to_string()).map_err(|invalid| invalid.to_string()),
    }
}

/// A time, or 0 for the word `none`.
fn small_first(text: &str) -> Result<Millis, String> {
    match text {
        "none" | "0" => Ok(Millis(0)),
        time => Millis::parse(time).map_err(|invalid| invalid.to_string()),
    }
}

/// A quota of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most so many.
    Of(u32),
    /// As many as there are.
    None,
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" | "unlimited" => Ok(Self::None),
            number => number.parse().map(Self::Of).map_err(|_| "a whole number, or none".to_owned()),
        }
    }
}

impl Limit {
    const fn count(self) -> Option<u32> {
        match self {
            Self::Of(count) => Some(count),
            Self::None => None,
        }
    }
}

/// What is asked of the quotas: whether to clear both first, then what each is set to. To take one away alone, the other is set to what it is.
fn quotas(args: &Args, now: impl Fn() -> (Option<u32>, Option<u32>)) -> (bool, Option<u32>, Option<u32>) {
    let (gpus, slots) = (args.quota_gpus, args.quota_slots);
    if ![gpus, slots].contains(&Some(Limit::None)) {
        return (args.no_quota, gpus.and_then(Limit::count), slots.and_then(Limit::count));
    }
    let (gpus_now, slots_now) = now();
    (true, gpus.map_or(gpus_now, Limit::count), slots.map_or(slots_now, Limit::count))
}

/// Writes the change.
///
/// # Errors
/// Nothing to change, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let flag = |on: bool, off: bool| if on { Some(true) } else { off.then_some(false) };
    let name = args.queue.to_string();
    let takes_one_away = [args.quota_gpus, args.quota_slots].contains(&Some(Limit::None));
    let known = if takes_one_away { call!(client, queues.list_queues(v1::ListQueuesRequest { at_least: 0 }))?.queues } else { Vec::new() };
    let now = || known.iter().find(|queue| queue.name == name).map_or((None, None), |queue| (queue.quota_gpus, queue.quota_slots));
    let (clear_quota, quota_gpus, quota_slots) = quotas(&args, now);
    let message = v1::SetQueueRequest {
        name: name.clone(),
        weight: args.weight,
        quota_gpus,
        quota_slots,
        held: flag(args.hold, args.release),
        closed: flag(args.close, args.open),
        clear_quota,
        request_id: footplate_clock::request_id().to_string(),
        parent: args.parent.clone(),
        guarantee_gpus: args.guarantee_gpus,
        guarantee_slots: args.guarantee_slots,
        small_first_ms: args.small_first.map(|time| time.0),
    };
    let amounts = [args.weight, args.guarantee_gpus, args.guarantee_slots];
    let quotas = [args.quota_gpus, args.quota_slots];
    let nothing = amounts == [None; 3] && quotas == [None; 2] && !args.no_quota && args.parent.is_none() && args.small_first.is_none();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, QueueVerb, Verb};
    use clap::Parser as _;

    fn asked(words: &[&str]) -> (bool, Option<u32>, Option<u32>) {
        let cli = Cli::try_parse_from(["footplate", "queue", "set", "night"].iter().chain(words)).unwrap();
        match cli.verb {
            Verb::Queue(QueueVerb::Set(args)) => quotas(&args, || (Some(8), Some(4))),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_quota_is_taken_away_alone_and_zero_is_a_quota() {
        assert_eq!(asked(&["--quota-slots", "none"]), (true, Some(8), None));
        assert_eq!(asked(&["--quota-slots", "none", "--quota-gpus", "2"]), (true, Some(2), None));
        assert_eq!(asked(&["--quota-slots", "0"]), (false, None, Some(0)));
        assert_eq!(asked(&["--no-quota"]), (true, None, None));
        assert!(Cli::try_parse_from(["footplate", "queue", "set", "night", "--quota-slots", "few"]).is_err());
    }
}
