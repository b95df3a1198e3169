//! Durable consumers of a project's mirror, ready for a subscriber to fetch from.

use crate::keeper::{Answer, Keeper, code};
use crate::mirror::MirrorError;
use crate::operator::Operator;
use crate::project::MIRROR;
use crate::servers::Servers;
use footplate_types::{Invalid, ProjectName};
use serde_json::json;

/// The longest name of a consumer.
const NAME_MAX: usize = 63;
/// How long a subscriber has to acknowledge before an event comes to it again.
const ACK_WAIT_NANOS: u64 = 60 * 1_000_000_000;

/// Where a new consumer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At the first event that the mirror holds.
    First,
    /// At what comes after it was made.
    New,
    /// At a sequence of the ledger, or the next one after it.
    At(u64),
}

/// A durable consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its name.
    pub name: String,
    /// Which subjects: within the project's own; `None` for all of them.
    pub filter: Option<String>,
    /// Where it begins.
    pub begin: Begin,
}

impl Subscription {
    fn check(&self, project: &ProjectName) -> Result<(), Invalid> {
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.bytes().all(in_name) {
            return Err(Invalid::new("subscription.name", &self.name, format!("1 to {NAME_MAX} characters of A-Z, a-z, 0-9, - and _")));
        }
        let own = format!("fp.ledger.{project}.");
        let filter = self.filter.as_deref().unwrap_or(">");
        let rest = filter.strip_prefix(&own);
        let whole = |rest: &str| !rest.is_empty() && rest.split('.').all(|token| !token.is_empty() && !token.contains(char::is_whitespace));
        if self.filter.is_some() && !rest.is_some_and(whole) {
            return Err(Invalid::new("subscription.filter", filter, format!("a subject or wildcard under {own}")));
        }
        Ok(())
    }

    fn request(&self) -> serde_json::Value {
        let mut config = json!({
            "name": self.name, "durable_name": self.name, "ack_policy": "explicit", "ack_wait": ACK_WAIT_NANOS, "replay_policy": "instant",
        });
        if let Some(filter) = &self.filter {
            config["filter_subject"] = json!(filter);
        }
        match self.begin {
            Begin::First => config["deliver_policy"] = json!("all"),
            Begin::New => config["deliver_policy"] = json!("new"),
            Begin::At(sequence) => {
                config["deliver_policy"] = json!("by_start_sequence");
                config["opt_start_seq"] = json!(sequence.max(1));
            }
        }
        json!({ "stream_name": MIRROR, "config": config, "action": "create" })
    }
}

/// Sees to it that a durable consumer is there; one of that name which is there already stays as it is, with its place. The project's
/// mirror has to be there ([`crate::ensure_project_mirror`]).
///
/// # Errors
/// When the name or the filter is none, or JetStream refuses it or does not answer in time.
pub async fn ensure_consumer(
    servers: impl Into<Servers>,
    operator: &Operator,
    project: &ProjectName,
    subscription: &Subscription,
    now: i64,
) -> Result<(), MirrorError> {
    let servers = servers.into();
    subscription.check(project)?;
    let keeper = Keeper::connect(&servers, operator, project, now).await?;
    let made = ensure(&keeper, subscription).await;
    keeper.close().await;
    made
}

async fn ensure(keeper: &Keeper, subscription: &Subscription) -> Result<(), MirrorError> {
    let name = &subscription.name;
    let answer = match keeper.ask(&format!("CONSUMER.INFO.{MIRROR}.{name}"), "").await? {
        Answer::Refused { code: code::CONSUMER_NOT_FOUND, .. } => {
            // A filter in the request has to stand in its subject, too.
            let filter = subscription.filter.iter().map(|filter| format!(".{filter}")).collect::<String>();
            keeper.ask(&format!("CONSUMER.CREATE.{MIRROR}.{name}{filter}"), &subscription.request().to_string()).await?
        }
        there => there,
    };
    keeper.done(answer, None).map(|_| ())
}

/// Removes a durable consumer, and its place with it; one that is not there is no failure.
///
/// # Errors
/// When JetStream refuses it or does not answer in time.
pub async fn remove_consumer(
    servers: impl Into<Servers>,
    operator: &Operator,
    project: &ProjectName,
    name: &str,
    now: i64,
) -> Result<(), MirrorError> {
    let servers = servers.into();
    Subscription { name: name.to_owned(), filter: None, begin: Begin::New }.check(project)?;
    let keeper = Keeper::connect(&servers, operator, project, now).await?;
    let removed = match keeper.ask(&format!("CONSUMER.DELETE.{MIRROR}.{name}"), "").await {
        Ok(Answer::Refused { code: code::CONSUMER_NOT_FOUND, .. }) => Ok(()),
        Ok(answer) => keeper.done(answer, None).map(|_| ()),
        Err(error) => Err(error),
    };
    keeper.close().await;
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_filter_that_is_none_is_refused_by_what_is_allowed() {
        let vision = ProjectName::parse("vision").unwrap();
        let told = |name: &str, filter: Option<&str>| {
            let subscription = Subscription { name: name.to_owned(), filter: filter.map(str::to_owned), begin: Begin::First };
            subscription.check(&vision).err().map(|invalid| invalid.to_string())
        };
        assert_eq!(told("team-1", None), None);
        assert_eq!(told("team-1", Some("fp.ledger.vision.model-version.>")), None);
        for (name, filter, field) in [
            ("", None, "subscription.name"),
            ("a.b", None, "subscription.name"),
            ("a b", None, "subscription.name"),
            ("a>", None, "subscription.name"),
            ("a", Some("fp.ledger.audio.>"), "subscription.filter"),
            ("a", Some("fp.ledger.vision."), "subscription.filter"),
            ("a", Some("fp.ledger.vision.a..b"), "subscription.filter"),
            ("a", Some("fp.ledger.vision.a b"), "subscription.filter"),
            ("a", Some(">"), "subscription.filter"),
        ] {
            assert!(told(name, filter).is_some_and(|text| text.contains(field) && text.contains("allowed")), "{name:?} {filter:?}");
        }
    }
}
