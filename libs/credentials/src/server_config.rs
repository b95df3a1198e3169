//! What a nats-server has to be told: its operator, and where it keeps the tokens of accounts.

use crate::folder::FolderError;
use crate::operator::Operator;
use std::fmt::Write as _;
use std::path::Path;

/// How often servers of a cluster compare what they know of accounts, a digest at a time: for so long one that was away may let in a user
/// who was revoked meanwhile.
const COMPARE_EVERY: &str = "10s";

/// The part of a nats-server's configuration that says who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    text: String,
}

impl ServerConfig {
    /// For a server that keeps what it knows of accounts in `accounts`, a folder of its own.
    ///
    /// # Errors
    /// When the revocations cannot be read.
    pub fn new(operator: &Operator, accounts: &Path, now: i64) -> Result<Self, FolderError> {
        let mut text = String::new();
        // Of two tokens of an account a server that starts keeps the one that was issued later, and of the same second the one in its
        // configuration: what it is told from now on has to stand.
        let before = now - 1;
        let _ = write!(
            text,
            "operator: {}\nsystem_account: {}\nresolver {{\n  type: full\n  dir: {:?}\n  allow_delete: true\n  interval: \
             {COMPARE_EVERY:?}\n}}\n\
             resolver_preload {{\n  {}: {}\n  {}: {}\n}}\n",
            operator.token(now),
            operator.system_account(),
            accounts.display().to_string(),
            operator.system_account(),
            operator.system_token(before),
            operator.platform_account(),
            operator.platform_token(before)?,
        );
        Ok(Self { text })
    }

    /// As nats-server reads it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_tokens_and_no_seed() {
        let home = tempfile::tempdir().unwrap();
        let operator = Operator::create(home.path()).unwrap();
        let config = ServerConfig::new(&operator, Path::new("/var/lib/nats/accounts"), 7).unwrap();
        assert!(config.as_str().contains("dir: \"/var/lib/nats/accounts\"") && config.as_str().contains(operator.platform_account()));
        let seeds = std::fs::read_dir(home.path()).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        for seed in seeds {
            assert!(!config.as_str().contains(seed.trim()));
        }
    }
}
