//! The account of a project: a mirror of its own part of the ledger, and users who read it.

use crate::claims::{self, Access, AccountClaims, AccountLimits, Import, Shared};
use crate::creds::UserCreds;
use crate::folder::FolderError;
use crate::jwt::{Statement, encode};
use crate::key::{Key, KeyKind};
use crate::operator::{EXPORTS, Operator};
use footplate_types::ProjectName;
use serde_json::{Value, json};

/// The mirror's name in a project's account: a subscriber need not know that it is one.
pub const MIRROR: &str = "LEDGER";
/// What mirrors get is delivered under this, each project's under its name.
pub const DELIVER_PREFIX: &str = "fp.deliver";
/// The way from a project's account to the platform's JetStream.
const API_PREFIX: &str = "JS.FP.API";
/// The prefix of the answers to whoever makes the mirror.
pub(crate) const KEEPER_INBOX: &str = "_INBOX_.keeper";
/// How long the user that makes a mirror is good for.
const KEEPER_SECONDS: i64 = 300;

/// How much a project's mirror may take. What no longer fits is dropped from its beginning: a mirror is a copy, and never holds up the
/// ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorLimits {
    /// Bytes on disk, of each replica.
    pub bytes: u64,
    /// Replicas: those of the ledger.
    pub replicas: u32,
    /// Consumers of all its subscribers.
    pub consumers: u32,
}

impl Default for MirrorLimits {
    /// One server; some hundred thousand events.
    fn default() -> Self {
        Self { bytes: 64 << 20, replicas: 1, consumers: 1_000 }
    }
}

/// A project's account.
#[derive(Clone, Debug)]
pub struct ProjectAccount {
    project: ProjectName,
    key: Key,
}

impl ProjectAccount {
    pub(crate) fn new(project: ProjectName, key: Key) -> Self {
        Self { project, key }
    }

    /// Its public key.
    pub fn public(&self) -> &str {
        self.key.public()
    }

    /// Whose it is.
    pub fn project(&self) -> &ProjectName {
        &self.project
    }

    /// What the mirror takes of the ledger.
    pub fn filter(&self) -> String {
        format!("fp.ledger.{}.>", self.project)
    }

    fn deliver(&self) -> String {
        format!("{DELIVER_PREFIX}.{}", self.project)
    }

    /// Its token: what it takes from the platform's account is its own project's part, each with that account's word for it.
    ///
    /// # Errors
    /// When the revocations cannot be read.
    pub fn token(&self, operator: &Operator, limits: &MirrorLimits, now: i64) -> Result<String, FolderError> {
        let [mirrors, flow, delivered] = &EXPORTS;
        let import = |name, subject: String, local_subject: Option<String>, kind: Shared| Import {
            name,
            token: operator.activation(self.public(), &self.project, &subject, kind, now),
            subject,
            local_subject,
            kind,
            account: operator.platform_account().to_owned(),
        };
        let asked = format!("CONSUMER.CREATE.LEDGER.*.{}", self.filter());
        let imports = [
            import(mirrors.name, format!("$JS.API.{asked}"), Some(format!("{API_PREFIX}.{asked}")), mirrors.kind),
            import(flow.name, flow.subject.to_owned(), None, flow.kind),
            import(delivered.name, format!("{}.>", self.deliver()), None, delivered.kind),
        ];
        let revoked = operator.revoked_of(self.public())?;
        let limits = AccountLimits::Bounded {
            disk_bytes: limits.bytes.saturating_mul(u64::from(limits.replicas)),
            streams: 1,
            consumers: limits.consumers,
        };
        let claims = AccountClaims { limits, signing_keys: &[], exports: &[], imports: &imports, revoked: &revoked };
        Ok(operator.account_token(self.public(), self.project.as_str(), &claims, now))
    }

    /// The mirror, as JetStream's JSON.
    pub(crate) fn mirror(&self, limits: &MirrorLimits) -> Value {
        json!({
            "name": MIRROR,
            "mirror": {
                "name": "LEDGER",
                "filter_subject": self.filter(),
                "external": { "api": API_PREFIX, "deliver": self.deliver() },
            },
            "retention": "limits",
            "discard": "old",
            "storage": "file",
            "max_msgs": -1,
            "max_bytes": limits.bytes,
            "max_age": 0,
            "max_consumers": limits.consumers,
            "num_replicas": limits.replicas,
            "allow_direct": true,
            // As the ledger's own: compressed blocks of a replicated stream may not survive two kills in a row.
            "compression": if limits.replicas <= 1 { "s2" } else { "none" },
        })
    }

    /// The user that makes and mends the mirror and its consumers: for a few minutes, and for that alone.
    pub(crate) fn keeper(&self, now: i64) -> UserCreds {
        let api = [
            "INFO",
            "STREAM.INFO.LEDGER",
            "STREAM.CREATE.LEDGER",
            "STREAM.UPDATE.LEDGER",
            "CONSUMER.CREATE.LEDGER.>",
            "CONSUMER.INFO.LEDGER.*",
            "CONSUMER.DELETE.LEDGER.*",
        ];
        let publish = api.map(|asked| format!("$JS.API.{asked}"));
        self.user("keeper", &Access::new(publish, [format!("{KEEPER_INBOX}.>")]), now, Some(now + KEEPER_SECONDS))
    }

    /// A new subscriber: it reads the mirror, makes and removes consumers of it, fetches and acknowledges. It publishes nothing, changes no
    /// stream, and sees no other account. Its seed is in what comes back and nowhere else.
    pub fn subscriber(&self, name: &str, now: i64, expires_at: Option<i64>) -> UserCreds {
        self.user(name, &Self::subscriber_access(), now, expires_at)
    }

    /// What a subscriber may do.
    pub fn subscriber_access() -> Access {
        let api = [
            "INFO",
            "STREAM.NAMES",
            "STREAM.LIST",
            "STREAM.INFO.LEDGER",
            "STREAM.MSG.GET.LEDGER",
            "DIRECT.GET.LEDGER",
            "DIRECT.GET.LEDGER.>",
            "CONSUMER.NAMES.LEDGER",
            "CONSUMER.LIST.LEDGER",
            "CONSUMER.CREATE.LEDGER",
            "CONSUMER.CREATE.LEDGER.>",
            "CONSUMER.DURABLE.CREATE.LEDGER.*",
            "CONSUMER.INFO.LEDGER.*",
            "CONSUMER.DELETE.LEDGER.*",
            "CONSUMER.MSG.NEXT.LEDGER.*",
        ];
        let publish = api.iter().map(|asked| format!("$JS.API.{asked}")).chain(["$JS.ACK.LEDGER.>".to_owned()]);
        Access::new(publish, ["_INBOX.>"])
    }

    /// A new user of the account who may do what is said.
    pub fn user(&self, name: &str, access: &Access, now: i64, expires_at: Option<i64>) -> UserCreds {
        let key = Key::generate(KeyKind::User);
        let statement = Statement { subject: key.public(), name, issued_at: now, expires_at, kind: "user" };
        let token = encode(&self.key, &statement, claims::user(access, None));
        UserCreds::new(key, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jwt::decode;

    #[test]
    fn a_projects_account_takes_its_own_part_of_the_ledger_and_holds_the_platforms_word_for_it() {
        let home = tempfile::tempdir().unwrap();
        let operator = Operator::create(home.path()).unwrap();
        let vision = operator.project(&ProjectName::parse("vision").unwrap());
        let said = decode(&vision.token(&operator, &MirrorLimits::default(), 7).unwrap()).unwrap();
        let imports = said.claims["imports"].as_array().unwrap();
        let subjects: Vec<&str> = imports.iter().map(|import| import["subject"].as_str().unwrap()).collect();
        let wanted = ["$JS.API.CONSUMER.CREATE.LEDGER.*.fp.ledger.vision.>", "$JS.FC.LEDGER.>", "fp.deliver.vision.>"];
        assert_eq!(subjects, wanted);
        for import in imports {
            let word = decode(import["token"].as_str().unwrap()).unwrap();
            assert_eq!((word.subject.as_str(), &word.claims["subject"]), (vision.public(), &import["subject"]));
        }
        assert_ne!(vision.public(), operator.project(&ProjectName::parse("audio").unwrap()).public());
        assert_eq!(vision.public(), operator.project(&ProjectName::parse("vision").unwrap()).public());
    }
}
