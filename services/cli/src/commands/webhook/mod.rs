//! Verbs of `webhook`: a project's events, posted to an address.

pub mod create;
pub mod delete;
pub mod list;
pub mod replay;
pub mod resume;
pub mod show;
pub mod test;

use footplate_api::v1::Webhook;

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
