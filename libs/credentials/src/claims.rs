//! What is said of an operator, an account and a user, as nats-server reads it.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// No limit, as nats-server writes it; zero would mean *none at all*.
const UNLIMITED: i64 = -1;
/// Everything, as a subject.
const EVERYTHING: &str = ">";

/// What somebody may publish to and subscribe to. What is not named is refused: an empty list allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// May publish to.
    pub publish: Vec<String>,
    /// May subscribe to.
    pub subscribe: Vec<String>,
}

impl Access {
    /// From two lists.
    pub fn new(publish: impl IntoIterator<Item = impl Into<String>>, subscribe: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { publish: publish.into_iter().map(Into::into).collect(), subscribe: subscribe.into_iter().map(Into::into).collect() }
    }
}

/// nats-server takes a user without lists for one who may do everything, so that an empty list has to be a denial.
fn permission(allowed: &[String]) -> Value {
    if allowed.is_empty() { json!({ "deny": [EVERYTHING] }) } else { json!({ "allow": allowed }) }
}

/// What an account may take of JetStream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountLimits {
    /// Nothing.
    NoJetStream,
    /// As much as the server has.
    Unlimited,
    /// So much.
    Bounded {
        /// Bytes on disk, of all its streams and replicas.
        disk_bytes: u64,
        /// Streams.
        streams: u32,
        /// Consumers, of all its streams.
        consumers: u32,
    },
}

impl AccountLimits {
    fn claims(self) -> Value {
        let mut limits = json!({
            "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED,
            "imports": UNLIMITED, "exports": UNLIMITED, "wildcards": true, "conn": UNLIMITED, "leaf": 0,
        });
        match self {
            Self::NoJetStream => {}
            Self::Unlimited => {
                for field in ["mem_storage", "disk_storage", "streams", "consumer"] {
                    limits[field] = json!(UNLIMITED);
                }
            }
            Self::Bounded { disk_bytes, streams, consumers } => {
                limits["disk_storage"] = json!(disk_bytes);
                limits["streams"] = json!(streams);
                limits["consumer"] = json!(consumers);
                limits["max_bytes_required"] = json!(true);
            }
        }
        limits
    }
}

/// Something that an account lends to those who hold a token of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) name: &'static str,
    pub(crate) subject: &'static str,
    pub(crate) kind: Shared,
}

/// How something is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// Messages that flow out.
    Stream,
    /// Requests that flow in, each answered by any number of messages.
    Service,
}

impl Shared {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Service => "service",
        }
    }
}

impl Export {
    fn claims(&self) -> Value {
        let mut claims = json!({ "name": self.name, "subject": self.subject, "type": self.kind.as_str(), "token_req": true });
        if self.kind == Shared::Service {
            claims["response_type"] = json!("Stream");
        }
        claims
    }
}

/// Something that an account takes from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) name: &'static str,
    pub(crate) subject: String,
    pub(crate) local_subject: Option<String>,
    pub(crate) kind: Shared,
    /// Whose it is.
    pub(crate) account: String,
    /// That account's word that it may.
    pub(crate) token: String,
}

impl Import {
    fn claims(&self) -> Value {
        let mut claims = json!({
            "name": self.name, "subject": self.subject, "account": self.account, "token": self.token, "type": self.kind.as_str(),
        });
        if let Some(local) = &self.local_subject {
            claims["local_subject"] = json!(local);
        }
        claims
    }
}

/// What is said of an account.
#[derive(Clone, Debug)]
pub(crate) struct AccountClaims<'a> {
    pub(crate) limits: AccountLimits,
    pub(crate) signing_keys: &'a [&'a str],
    pub(crate) exports: &'a [Export],
    pub(crate) imports: &'a [Import],
    /// Users whose tokens of that second and before do not hold any more.
    pub(crate) revoked: &'a BTreeMap<String, i64>,
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl AccountClaims<'_> {
    pub(crate) fn claims(&self) -> Map<String, Value> {
        object(json!({
            "imports": self.imports.iter().map(Import::claims).collect::<Vec<_>>(),
            "exports": self.exports.iter().map(Export::claims).collect::<Vec<_>>(),
            "limits": self.limits.claims(),
            "signing_keys": self.signing_keys,
            "revocations": self.revoked,
            "default_permissions": { "pub": {}, "sub": {} },
        }))
    }
}

/// What is said of the operator.
pub(crate) fn operator(system_account: &str) -> Map<String, Value> {
    object(json!({ "system_account": system_account }))
}

/// What is said of a user; `account` where a signing key says it in the account's name.
pub(crate) fn user(access: &Access, account: Option<&str>) -> Map<String, Value> {
    let mut claims = object(json!({
        "pub": permission(&access.publish), "sub": permission(&access.subscribe),
        "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED,
        // Neither a leaf server nor another protocol: they would bring more than one user's rights.
        "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
    }));
    if let Some(account) = account {
        claims.insert("issuer_account".to_owned(), json!(account));
    }
    claims
}

/// An exporting account's word that another may import a subject.
pub(crate) fn activation(subject: &str, kind: Shared, account: &str) -> Map<String, Value> {
    object(json!({ "subject": subject, "kind": kind.as_str(), "issuer_account": account }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_allows_nothing() {
        let claims = user(&Access::new(["a"], [] as [&str; 0]), None);
        assert_eq!(claims["pub"], json!({ "allow": ["a"] }));
        assert_eq!(claims["sub"], json!({ "deny": [">"] }));
    }

    #[test]
    fn an_account_without_jetstream_names_no_storage() {
        let limits = AccountLimits::NoJetStream.claims();
        assert!(limits.get("disk_storage").is_none() && limits["conn"] == json!(-1));
        let bounded = AccountLimits::Bounded { disk_bytes: 10, streams: 1, consumers: 5 }.claims();
        assert_eq!((&bounded["disk_storage"], &bounded["max_bytes_required"]), (&json!(10), &json!(true)));
    }
}
