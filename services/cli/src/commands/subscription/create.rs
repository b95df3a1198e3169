//! `subscription create`.

use super::told;
use crate::{
    context::Context,
    output::{Exit, SecretFile},
};
use footplate_api::{json, v1};
use footplate_types::{Millis, SubscriptionName};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate subscription create serving --aggregate model --out serving.creds
  footplate -p vision subscription create audit --from 1 --expires 365d --out audit.creds";

/// Give a team credentials and a durable consumer of the project's events, for any NATS client
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name, and its consumer's: a-z, 0-9 and -
    #[arg(value_name = "NAME", value_parser = SubscriptionName::parse)]
    pub name: SubscriptionName,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
    /// Only events of this kind of thing: model, model-version, run, job, sweep, ...
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    pub aggregate: String,
    /// Begin at this sequence of the ledger (1 for all that is kept); else at what comes next
    #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// When the credentials end, from now, such as 365d; never when not given
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse)]
    pub expires: Option<Millis>,
    /// File for the credentials, for your eyes alone; they are told once
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Makes it, and keeps its credentials.
///
/// # Errors
/// A refusal, a file that cannot be written, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let file = SecretFile::reserve(&args.out)?;
    let client = ctx.client()?;
    let asked = v1::CreateSubscriptionRequest {
        project: client.project().to_owned(),
        name: args.name.to_string(),
        description: args.description,
        aggregate: args.aggregate,
        from_sequence: args.from.unwrap_or_default(),
        expires_in_s: args.expires.map_or(0, |span| span.0.div_ceil(1_000)),
    };
    // Asked once alone: a repeat could not tell the credentials again.
    let made = client.once(client.subscriptions().create_subscription(asked)).await?;
    file.keep(&made.broker_credentials)?;
    let subscription = made.subscription.unwrap_or_default();
    let mut data = json::to_value(&subscription);
    if let Some(data) = data.as_object_mut() {
        data.insert("credentials".to_owned(), serde_json::json!(args.out.display().to_string()));
    }
    let text = format!(
        "{}credentials are in {file}\nnext: nats --server {} --creds {file} consumer next {} {}\n",
        told(&subscription),
        subscription.broker_address,
        subscription.stream,
        subscription.consumer,
        file = args.out.display(),
    );
    ctx.output.one(args.name.as_str(), &data, &text)?;
    Ok(Exit::Done)
}
