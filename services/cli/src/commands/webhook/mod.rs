//! Verbs of `webhook`: a project's events, posted to an address.

pub mod create;
pub mod delete;
pub mod list;
pub mod replay;
pub mod resume;
pub mod show;
pub mod test;

use crate::{context::Context, output::Exit};
use footplate_api::v1::{Webhook, WriteResponse};
use footplate_types::WebhookName;

/// A webhook that is there, and why something is done with it.
#[derive(Clone, Debug, clap::Args)]
pub struct WithReason {
    /// Its name
    #[arg(value_name = "NAME", value_parser = WebhookName::parse)]
    pub name: WebhookName,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Tells that it is done.
fn done(ctx: &Context, name: &WebhookName, answer: &WriteResponse, told: &str) -> anyhow::Result<Exit> {
    let data = serde_json::json!({"name": name, "sequence": answer.sequence});
    ctx.output.one(name.as_str(), &data, &format!("{name} {told}\n"))?;
    Ok(Exit::Done)
}

/// What a webhook is doing, in a word or two.
fn state(webhook: &Webhook) -> String {
    match webhook.failing_sequence {
        0 => webhook.state.clone(),
        at => format!("{} at {at}", webhook.state),
    }
}

/// The types that it is for, in words.
fn types(webhook: &Webhook) -> String {
    if webhook.types.is_empty() { "all".to_owned() } else { webhook.types.join(" ") }
}
