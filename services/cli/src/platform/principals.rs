//! The tokens that whoever starts the platform vouches for: of the local user and this machine's agent in `up`, of the first admin in a
//! deployment. Every other one is made by someone who has one.

use footplate_clock::entropy;
use footplate_registry_server::Bootstrap;
use footplate_types::{Digest, PrincipalId};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Whom the token in the file of a deployment stands for.
pub const FIRST_ADMIN: &str = "service:bootstrap";
/// How tokens begin, so that whoever looks for secrets finds them.
const PREFIX: &str = "fp_";
/// The fewest characters of a token that somebody thought of.
const TOKEN_MIN: usize = 32;

/// What the registry is to know from the start about the holder of a token.
pub fn vouched(principal: PrincipalId, token: &str, is_admin: bool) -> Bootstrap {
    Bootstrap { principal, token: Digest::of(token.as_bytes()), is_admin, project: None }
}

/// The first admin of a deployment, by the token in a file.
///
/// # Errors
/// A file that cannot be read, or that holds no token that is hard to guess.
pub fn first_admin(file: &Path) -> Result<Bootstrap, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("bootstrap: {} cannot be read: {error}", file.display()))?;
    let token = text.trim();
    if token.len() < TOKEN_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let path = file.display();
        return Err(format!(
            "bootstrap: {path} holds no token; allowed: one line of {TOKEN_MIN} or more printable characters without blanks, as `openssl rand -hex 32` gives"
        ));
    }
    let principal = PrincipalId::parse(FIRST_ADMIN).map_err(|error| error.to_string())?;
    Ok(vouched(principal, token, true))
}

/// The token in `file`, made when it is not there.
///
/// # Errors
/// A file that cannot be read or written.
pub fn local_token(file: &Path) -> Result<String, String> {
    match std::fs::read_to_string(file) {
        Ok(token) if !token.trim().is_empty() => return Ok(token.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
    }
    let token = format!("{PREFIX}{}", Digest::from_bytes(entropy()));
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", file.display());
    // Whole or not at all: a token that was cut off would be one that is easier to guess.
    let fresh = file.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut out = options.create(true).mode(0o600).write(true).truncate(true).open(&fresh).map_err(failed)?;
    out.write_all(format!("{token}\n").as_bytes()).and_then(|()| out.sync_all()).map_err(failed)?;
    std::fs::rename(&fresh, file).map_err(failed)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_local_token_is_made_once_and_is_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let token = local_token(&file).unwrap();
        assert_eq!(local_token(&file).unwrap(), token);
        assert!(token.starts_with("fp_") && token.len() == 67, "{token}");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "\n").unwrap();
        assert_ne!(local_token(&file).unwrap(), token, "an empty file is none");
    }

    #[test]
    fn a_first_admins_token_is_not_easily_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("first");
        assert!(first_admin(&file).unwrap_err().contains("cannot be read"));
        for weak in ["", "admin", "password1234", "a long sentence that has blanks in it, many"] {
            std::fs::write(&file, weak).unwrap();
            assert!(first_admin(&file).unwrap_err().contains("holds no token"), "{weak}");
        }
        let token = "f".repeat(64);
        std::fs::write(&file, format!("{token}\n")).unwrap();
        let admin = first_admin(&file).unwrap();
        assert_eq!((admin.principal.as_str(), admin.token, admin.is_admin), (FIRST_ADMIN, Digest::of(token.as_bytes()), true));
    }
}
