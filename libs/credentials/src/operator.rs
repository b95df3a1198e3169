//! The operator of a platform's broker: who may say who is who.

use crate::claims::{self, Access, AccountClaims, AccountLimits, Export, Shared};
use crate::creds::UserCreds;
use crate::folder::{Folder, FolderError, OPERATOR, PLATFORM, PLATFORM_SIGNING, SYSTEM, SYSTEM_USER};
use crate::jwt::{Statement, encode};
use crate::key::{Key, KeyKind};
use crate::project::ProjectAccount;
use footplate_types::ProjectName;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// The prefix of the system user's answers: nobody else of its account may read them.
pub(crate) const SYSTEM_INBOX: &str = "_INBOX_.system";

/// What the platform's account lends to the accounts of projects, to those alone that hold its word for a project's part of it: the
/// consumers that feed their mirrors, what these say about their flow, and what they deliver. One list for all projects, so that a new
/// project changes nothing here.
pub(crate) const EXPORTS: [Export; 3] = [
    Export { name: "mirrors", subject: "$JS.API.CONSUMER.CREATE.LEDGER.*.fp.ledger.>", kind: Shared::Service },
    Export { name: "flow of mirrors", subject: "$JS.FC.LEDGER.>", kind: Shared::Service },
    Export { name: "what mirrors get", subject: "fp.deliver.>", kind: Shared::Stream },
];

/// A user that was revoked: every token of its that was issued then or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The account's public key.
    pub account: String,
    /// The user's public key.
    pub user: String,
    /// The second.
    pub at: i64,
}

/// The keys of a platform, read from their folder.
#[derive(Clone, Debug)]
pub struct Operator {
    folder: Folder,
    operator: Key,
    system: Key,
    system_user: Key,
    platform: Key,
    platform_signing: Key,
}

impl Operator {
    /// Makes a folder with new keys: folder and files are their owner's alone, and there whole or not at all.
    ///
    /// # Errors
    /// When there is one already, or it cannot be written.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        Self::of(Folder::create(path)?)
    }

    /// Takes the folder that is there.
    ///
    /// # Errors
    /// When there is none, it is not whole, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Self::of(Folder::open(path)?)
    }

    /// Takes the folder that is there, or makes one.
    ///
    /// # Errors
    /// When it is not whole, or cannot be read or written.
    pub fn open_or_create(path: &Path) -> Result<Self, FolderError> {
        if !Folder::is_there(path)? {
            match Self::create(path) {
                Err(FolderError::Exists(_)) => {}
                made => return made,
            }
        }
        Self::open(path)
    }

    fn of(folder: Folder) -> Result<Self, FolderError> {
        Ok(Self {
            operator: folder.seed(OPERATOR)?,
            system: folder.seed(SYSTEM)?,
            system_user: folder.seed(SYSTEM_USER)?,
            platform: folder.seed(PLATFORM)?,
            platform_signing: folder.seed(PLATFORM_SIGNING)?,
            folder,
        })
    }

    /// Where its keys lie.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// The platform account's public key: streams lie under this name in the broker's store.
    pub fn platform_account(&self) -> &str {
        self.platform.public()
    }

    /// The system account's public key.
    pub fn system_account(&self) -> &str {
        self.system.public()
    }

    /// The operator's own token, for the server's configuration.
    pub fn token(&self, now: i64) -> String {
        let claims = claims::operator(self.system.public());
        let subject = self.operator.public();
        encode(&self.operator, &Statement { subject, name: "footplate", issued_at: now, expires_at: None, kind: "operator" }, claims)
    }

    /// The system account's token.
    pub fn system_token(&self, now: i64) -> String {
        let revoked = BTreeMap::new();
        let limits = AccountLimits::NoJetStream;
        let claims = AccountClaims { limits, signing_keys: &[], exports: &[], imports: &[], revoked: &revoked };
        self.account_token(self.system.public(), "SYS", &claims, now)
    }

    /// The platform account's token: as much of JetStream as there is, and whoever was revoked.
    ///
    /// # Errors
    /// When the revocations cannot be read.
    pub fn platform_token(&self, now: i64) -> Result<String, FolderError> {
        let revoked = self.revoked_of(self.platform.public())?;
        let signing_keys = [self.platform_signing.public()];
        let limits = AccountLimits::Unlimited;
        let claims = AccountClaims { limits, signing_keys: &signing_keys, exports: &EXPORTS, imports: &[], revoked: &revoked };
        Ok(self.account_token(self.platform.public(), "FP", &claims, now))
    }

    /// The user that tells a server about accounts, and may do nothing else.
    pub fn system_user(&self, now: i64) -> UserCreds {
        let access = Access::new(
            ["$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"],
            [format!("{SYSTEM_INBOX}.>")],
        );
        let claims = claims::user(&access, None);
        let subject = self.system_user.public();
        let statement = Statement { subject, name: "system", issued_at: now, expires_at: None, kind: "user" };
        UserCreds::new(self.system_user.clone(), encode(&self.system, &statement, claims))
    }

    /// A new user of the platform's account. Its seed is in what comes back and nowhere else.
    pub fn platform_user(&self, name: &str, access: &Access, now: i64, expires_at: Option<i64>) -> UserCreds {
        let key = Key::generate(KeyKind::User);
        let claims = claims::user(access, Some(self.platform.public()));
        let statement = Statement { subject: key.public(), name, issued_at: now, expires_at, kind: "user" };
        let token = encode(&self.platform_signing, &statement, claims);
        UserCreds::new(key, token)
    }

    /// The account of a project: the same keys whenever it is asked for, as they are derived from the operator's.
    pub fn project(&self, project: &ProjectName) -> ProjectAccount {
        ProjectAccount::new(project.clone(), self.operator.derive(KeyKind::Account, &format!("account of project {project}")))
    }

    /// Records that every token which a user holds by now is void. It takes effect at a server when the account's token is pushed to it
    /// ([`crate::Resolver::push`]), or at the server's next start from a configuration made after this.
    ///
    /// # Errors
    /// When a key is none, or the revocation cannot be written.
    pub fn revoke(&self, revocation: &Revocation) -> Result<(), FolderError> {
        Key::check_public(KeyKind::Account, "the account to revoke in", &revocation.account)?;
        Key::check_public(KeyKind::User, "the user to revoke", &revocation.user)?;
        self.folder.revoke(&revocation.account, &revocation.user, revocation.at)
    }

    pub(crate) fn revoked_of(&self, account: &str) -> Result<BTreeMap<String, i64>, FolderError> {
        Ok(self.folder.revoked()?.remove(account).unwrap_or_default())
    }

    pub(crate) fn account_token(&self, subject: &str, name: &str, claims: &AccountClaims<'_>, now: i64) -> String {
        encode(&self.operator, &Statement { subject, name, issued_at: now, expires_at: None, kind: "account" }, claims.claims())
    }

    /// The platform account's word that a project's account may import a subject.
    pub(crate) fn activation(&self, to: &str, project: &ProjectName, subject: &str, kind: Shared, now: i64) -> String {
        let claims = claims::activation(subject, kind, self.platform.public());
        let statement = Statement { subject: to, name: project.as_str(), issued_at: now, expires_at: None, kind: "activation" };
        encode(&self.platform_signing, &statement, claims)
    }

    /// A request to forget accounts, which a server takes from its operator alone.
    pub(crate) fn deletion(&self, accounts: &[&str], now: i64) -> String {
        let claims = match json!({ "accounts": accounts }) {
            serde_json::Value::Object(claims) => claims,
            _ => serde_json::Map::new(),
        };
        let subject = self.operator.public();
        encode(&self.operator, &Statement { subject, name: "forget", issued_at: now, expires_at: None, kind: "generic" }, claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jwt::decode;
    use crate::project::DELIVER_PREFIX;

    const NOW: i64 = 1_750_000_000;

    #[test]
    fn every_token_is_signed_by_whom_it_must_be() {
        let home = tempfile::tempdir().unwrap();
        let operator = Operator::create(&home.path().join("operator")).unwrap();
        let own = decode(&operator.token(NOW)).unwrap();
        assert_eq!(own.issuer, own.subject);
        assert_eq!(own.claims["system_account"], operator.system_account());
        let platform = decode(&operator.platform_token(NOW).unwrap()).unwrap();
        assert_eq!((platform.issuer, platform.subject.as_str()), (own.issuer.clone(), operator.platform_account()));
        let user = operator.platform_user("tracker", &Access::new(["a"], ["b"]), NOW, Some(NOW + 60));
        let said = decode(user.token()).unwrap();
        assert_eq!(said.issuer, platform.claims["signing_keys"][0].as_str().unwrap());
        assert_eq!((said.claims["issuer_account"].as_str(), said.expires_at), (Some(operator.platform_account()), Some(NOW + 60)));
        assert_eq!(decode(operator.system_user(NOW).token()).unwrap().issuer, operator.system_account());
        let deletion = decode(&operator.deletion(&["A"], NOW)).unwrap();
        assert_eq!((deletion.issuer, deletion.claims["accounts"][0].as_str()), (own.issuer, Some("A")));
    }

    #[test]
    fn who_is_revoked_stands_in_the_accounts_token_from_then_on() {
        let home = tempfile::tempdir().unwrap();
        let operator = Operator::create(home.path()).unwrap();
        let user = operator.platform_user("n1", &Access::default(), NOW, None);
        let account = operator.platform_account().to_owned();
        operator.revoke(&Revocation { account: account.clone(), user: user.public().to_owned(), at: NOW + 1 }).unwrap();
        let said = decode(&Operator::open(home.path()).unwrap().platform_token(NOW + 1).unwrap()).unwrap();
        assert_eq!(said.claims["revocations"][user.public()], NOW + 1);
        let refused = operator.revoke(&Revocation { account, user: "n1".to_owned(), at: NOW }).unwrap_err().to_string();
        assert!(refused.contains("the user to revoke"), "{refused}");
    }

    #[test]
    fn what_is_delivered_to_mirrors_is_what_is_exported() {
        assert_eq!(EXPORTS[2].subject, format!("{DELIVER_PREFIX}.>"));
    }
}
