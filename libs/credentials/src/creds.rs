//! A user's credentials as the file that every NATS client reads.

use crate::jwt::{JwtError, decode};
use crate::key::Key;
use serde_json::Value;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// A user: what was said of it, and its secret. Printing it shows the public half alone.
#[derive(Clone)]
pub struct UserCreds {
    key: Key,
    token: String,
}

impl fmt::Debug for UserCreds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserCreds").field(&self.key.public()).finish()
    }
}

impl UserCreds {
    pub(crate) fn new(key: Key, token: String) -> Self {
        Self { key, token }
    }

    /// The user's public key: what a revocation names.
    pub fn public(&self) -> &str {
        self.key.public()
    }

    /// What was said of it, signed.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The text of a credentials file.
    pub fn to_text(&self) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             The seed below is a secret: whoever holds it is this user.\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            self.token,
            self.key.seed(),
        )
    }

    /// Writes a credentials file that its owner alone reads. It appears whole or not at all, in place of an older one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_secret(path, &self.to_text())
    }
}

/// Whom a credentials file is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownUser {
    /// The user's public key.
    pub user: String,
    /// The public key of its account.
    pub account: String,
    /// The prefix of reply subjects where it may hear answers; `None` where any will do.
    pub inbox_prefix: Option<String>,
}

/// Whom a credentials file is of, by the token in it.
///
/// # Errors
/// When there is no token in it, or one that is not to be believed.
pub fn user_of(creds_text: &str) -> Result<KnownUser, JwtError> {
    let token = creds_text.lines().map(str::trim).find(|line| line.starts_with("ey")).ok_or(JwtError("there is none in the file"))?;
    let said = decode(token)?;
    let allowed = said.claims["sub"]["allow"].as_array().map(Vec::as_slice).unwrap_or_default();
    let inboxes = allowed.iter().filter_map(Value::as_str).filter_map(|subject| subject.strip_suffix(".>"));
    let inbox_prefix = inboxes.filter(|prefix| prefix.starts_with("_INBOX")).map(str::to_owned).next();
    let account = said.claims["issuer_account"].as_str().map_or(said.issuer, str::to_owned);
    Ok(KnownUser { user: said.subject, account, inbox_prefix })
}

/// Writes a file that its owner alone reads; durable, and whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    write_durably(path, text, 0o600)
}

/// Writes a file of that mode, whatever the process masks; durable, and whole or not at all.
pub(crate) fn write_durably(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let unique: [u8; 8] = footplate_clock::entropy();
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file is named"))?;
    let staged = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), data_encoding::HEXLOWER.encode(&unique)));
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&staged, path)?;
        sync_folder(path.parent())
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&staged)))
}

/// Makes what was done to a folder's names durable.
pub(crate) fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;

    #[test]
    fn where_answers_may_go_stands_in_the_file() {
        let home = tempfile::tempdir().unwrap();
        let operator = crate::Operator::create(home.path()).unwrap();
        let prefix = |subscribe: &[&str]| {
            let access = crate::Access::new(["a"], subscribe.iter().copied());
            user_of(&operator.platform_user("n1", &access, 7, None).to_text()).unwrap().inbox_prefix
        };
        assert_eq!(prefix(&["fp.assigned.n1", "_INBOX_n1.>"]).as_deref(), Some("_INBOX_n1"));
        assert_eq!(prefix(&[">"]), None);
        assert!(user_of("nothing").is_err());
    }

    #[test]
    fn a_file_of_credentials_is_read_by_its_owner_alone_and_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.creds");
        std::fs::write(&path, "old").unwrap();
        let creds = UserCreds::new(Key::from_entropy(KeyKind::User, [3; 32]), "a.b.c".to_owned());
        creds.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), creds.to_text());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(async_nats::ConnectOptions::with_credentials(&creds.to_text()).is_ok(), "a client reads it");
    }
}
