//! `subscription delete`.

use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::SubscriptionName;

const EXAMPLES: &str = "\
Examples:
  footplate -p vision subscription delete serving --reason 'the team moved on'";

/// Take subscriptions back: their credentials are void, what is connected with them ends, their consumers go
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Their names
    #[arg(required = true, value_name = "NAME", value_parser = SubscriptionName::parse)]
    pub names: Vec<SubscriptionName>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Takes each back in turn.
///
/// # Errors
/// No such subscription, a refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for name in &args.names {
        let request_id = footplate_clock::request_id().to_string();
        let project = client.project().to_owned();
        let asked = v1::DeleteSubscriptionRequest { project, name: name.to_string(), reason: args.reason.clone(), request_id };
        let answer = call!(client, subscriptions.delete_subscription(asked))?;
        let data = serde_json::json!({"name": name, "sequence": answer.sequence});
        ctx.output.one(name.as_str(), &data, &format!("{name} is taken back\n"))?;
    }
    Ok(Exit::Done)
}
