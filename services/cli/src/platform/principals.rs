//! The tokens that whoever starts the platform vouches for: of the local user and this machine's agent in `up`, of the first admin in a
//! deployment. Every other one is made by someone who has one.

use footplate_clock::entropy;
use footplate_credentials::write_secret;
use footplate_registry_server::Bootstrap;
use footplate_types::{Digest, PrincipalId, PrincipalKind};
use std::path::Path;

/// Whom the token in the file of a deployment stands for.
pub const FIRST_ADMIN: &str = "service:bootstrap";
/// How tokens begin, so that whoever looks for secrets finds them.
const PREFIX: &str = "fp_";
/// The fewest characters of a token that somebody thought of.
const TOKEN_MIN: usize = 32;
/// What a line of a deployment's file is.
const LINE_FORM: &str =
    "a token of 32 or more characters, as `openssl rand -hex 32` gives, or sha256: and its digest; then a blank and node:NAME for a node's";

/// What the registry is to know from the start about the holder of a token.
pub fn vouched(principal: PrincipalId, token: &str, is_admin: bool) -> Bootstrap {
    Bootstrap { principal, token: Digest::of(token.as_bytes()), is_admin, project: None }
}

/// The principals that a deployment's file vouches for: a line each, a token (or `sha256:` and its digest), and whom it stands for:
/// `service:bootstrap`, who is an admin of the platform and is meant where nobody is named, or a node.
///
/// # Errors
/// A file that cannot be read, or a line that vouches for no one, or for no token that is hard to guess.
pub fn vouched_in(file: &Path) -> Result<Vec<Bootstrap>, String> {
    let path = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("bootstrap: {path} cannot be read: {error}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let read = |(index, line): (usize, &str)| vouched_by(line).map_err(|told| format!("bootstrap: {path}, line {}: {told}", index + 1));
    let vouched: Vec<Bootstrap> = lines.map(read).collect::<Result<_, _>>()?;
    if vouched.is_empty() { Err(format!("bootstrap: {path} vouches for nobody; allowed: {LINE_FORM}")) } else { Ok(vouched) }
}

fn vouched_by(line: &str) -> Result<Bootstrap, String> {
    let (token, who) = line.trim().split_once(' ').unwrap_or((line.trim(), FIRST_ADMIN));
    let digest = match token.strip_prefix("sha256:") {
        Some(digest) => Digest::parse(digest).map_err(|_| format!("no digest; allowed: {LINE_FORM}"))?,
        None if token.len() >= TOKEN_MIN && token.bytes().all(|byte| byte.is_ascii_graphic()) => Digest::of(token.as_bytes()),
        None => return Err(format!("no token that is hard to guess; allowed: {LINE_FORM}")),
    };
    let principal = PrincipalId::parse(who.trim()).map_err(|error| error.to_string())?;
    let is_admin = principal.as_str() == FIRST_ADMIN;
    if !is_admin && !matches!(principal.kind(), Some(PrincipalKind::Node(_))) {
        return Err(format!("{principal} is neither {FIRST_ADMIN} nor a node; others are made by an admin: `footplate user create`"));
    }
    Ok(Bootstrap { principal, token: digest, is_admin, project: None })
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
    // Whole or not at all: a token that was cut off would be one that is easier to guess.
    write_secret(file, &format!("{token}\n")).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
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
    fn a_deployments_file_vouches_for_an_admin_and_nodes_by_tokens_that_are_hard_to_guess() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("first");
        assert!(vouched_in(&file).unwrap_err().contains("cannot be read"));
        let strong = "f".repeat(64);
        for (text, told) in [
            (String::new(), "vouches for nobody"),
            ("admin".to_owned(), "line 1: no token that is hard to guess"),
            (format!("# first\n{strong}\npassword1234 node:n1\n"), "line 3: no token that is hard to guess"),
            (format!("{strong} user:ada"), "line 1: user:ada is neither service:bootstrap nor a node"),
            ("sha256:abc".to_owned(), "no digest"),
        ] {
            std::fs::write(&file, &text).unwrap();
            let refused = vouched_in(&file).unwrap_err();
            assert!(refused.contains(told), "{text:?}: {refused}");
        }
        let digest = Digest::of(strong.as_bytes());
        std::fs::write(&file, format!("{strong}\n\nsha256:{digest} node:n1\n")).unwrap();
        let vouched = vouched_in(&file).unwrap();
        let told: Vec<_> = vouched.iter().map(|one| (one.principal.as_str(), one.token, one.is_admin)).collect();
        assert_eq!(told, [(FIRST_ADMIN, digest, true), ("node:n1", digest, false)]);
    }
}
