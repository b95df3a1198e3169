//! Verbs of `subscription`: who follows a project's events at the broker, with a NATS client of their own.

pub mod create;
pub mod delete;
pub mod list;

use footplate_api::v1::Subscription;

/// What a subscriber needs to know, in lines.
pub(crate) fn told(subscription: &Subscription) -> String {
    let mut text = String::new();
    for (key, value) in [
        ("broker", &subscription.broker_address),
        ("stream", &subscription.stream),
        ("consumer", &subscription.consumer),
        ("events", &subscription.filter),
        ("ends", &subscription.expires_at),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{key:<10}{value}\n"));
        }
    }
    text
}
