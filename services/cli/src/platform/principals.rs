//! Tokens and whom they stand for, in a file: SHA-256 of the token and the principal, a line each. `up` makes one for the local user.

use footplate_api::{Refusal, reason};
use footplate_clock::entropy;
use footplate_types::{Digest, PrincipalId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The known tokens. Kept as digests: whoever reads the file learns no token.
#[derive(Clone, Debug, Default)]
pub struct Principals(BTreeMap<Digest, PrincipalId>);

impl Principals {
    /// Reads a file of tokens; one that is not there has none.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is none.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        let mut known = BTreeMap::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
            let wrong =
                |what: &str| format!("{}, line {}: {what}; allowed: SHA-256 of a token, a blank, a principal", path.display(), index + 1);
            let (digest, principal) = line.trim().split_once(' ').ok_or_else(|| wrong("not a pair"))?;
            let digest = Digest::parse(digest).map_err(|_| wrong("not a digest"))?;
            known.insert(digest, PrincipalId::parse(principal.trim()).map_err(|_| wrong("not a principal"))?);
        }
        Ok(Self(known))
    }

    /// Everyone who is no node: the members of every project.
    pub fn people(&self) -> BTreeSet<PrincipalId> {
        self.0.values().filter(|principal| !principal.is_node()).cloned().collect()
    }

    /// Whom a token stands for.
    ///
    /// # Errors
    /// A token that is missing or not known.
    pub fn of(&self, token: Option<&str>) -> Result<PrincipalId, Refusal> {
        let token = token.ok_or_else(|| Refusal::new(&reason::TOKEN_MISSING, "the call carries no token"))?;
        let known = self.0.get(&Digest::of(token.as_bytes()));
        known.cloned().ok_or_else(|| Refusal::new(&reason::TOKEN_UNKNOWN, "the token is not known here"))
    }
}

/// The token in `file`, made and added to the known ones (in `tokens`) when it is not there.
///
/// # Errors
/// Files that cannot be read or written.
pub fn local_token(file: &Path, tokens: &Path, principal: &PrincipalId) -> Result<String, String> {
    let write = |path: &Path, text: &str, fresh: bool| -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{} cannot be written: {error}", path.display());
        let mut options = std::fs::OpenOptions::new();
        options.create(true).mode(0o600).write(true).append(!fresh).truncate(fresh);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)
    };
    let token = match std::fs::read_to_string(file) {
        Ok(token) if !token.trim().is_empty() => token.trim().to_owned(),
        Ok(_) => new_token(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => new_token(),
        Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
    };
    if Principals::read(tokens)?.of(Some(&token)).is_err() {
        write(tokens, &format!("{} {principal}\n", Digest::of(token.as_bytes())), false)?;
        write(file, &format!("{token}\n"), true)?;
    }
    Ok(token)
}

fn new_token() -> String {
    format!("fp_{}", Digest::from_bytes(entropy()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_local_token_is_made_once_and_known() {
        let folder = tempfile::tempdir().unwrap();
        let (file, tokens) = (folder.path().join("token"), folder.path().join("tokens"));
        let me = PrincipalId::parse("local:me").unwrap();
        let token = local_token(&file, &tokens, &me).unwrap();
        assert_eq!(local_token(&file, &tokens, &me).unwrap(), token);
        let known = Principals::read(&tokens).unwrap();
        assert_eq!(known.of(Some(&token)).unwrap(), me);
        assert_eq!(known.of(Some("fp_other")).unwrap_err().reason, "TOKEN_UNKNOWN");
        assert_eq!(known.of(None).unwrap_err().reason, "TOKEN_MISSING");
        assert!(!std::fs::read_to_string(&tokens).unwrap().contains(&token));
    }

    #[test]
    fn nodes_are_no_members_and_two_tokens_are_one_person() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        let lines = [("a", "local:me"), ("b", "node:n1"), ("c", "local:me"), ("d", "ci")];
        let text: String = lines.iter().map(|(token, who)| format!("{} {who}\n", Digest::of(token.as_bytes()))).collect();
        std::fs::write(&tokens, text).unwrap();
        let people = Principals::read(&tokens).unwrap().people();
        assert_eq!(people.iter().map(PrincipalId::as_str).collect::<Vec<_>>(), ["ci", "local:me"]);
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        std::fs::write(&tokens, "# a comment\nabc local:me\n").unwrap();
        let refused = Principals::read(&tokens).unwrap_err();
        assert!(refused.contains("line 2"), "{refused}");
    }
}
