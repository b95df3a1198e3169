//! Which files are never captured because of their name: the stated list of secret-looking names, and how a person lets one pass.
//!
//! The rule holds for tracked and untracked files alike; only `source.allow` lets a name pass. It looks at names, never at contents.

use super::ignore::Rules;

/// The list, in the syntax of `.gitignore`; a line with `!` is an exception. Documented word for word in the job file's reference.
pub const SECRET_NAMES: &str = "\
.env
.env.*
!.env.example
!.env.sample
!.env.template
!.env.dist
*.pem
*.p12
*.pfx
*.jks
*.keystore
*.kdbx
id_rsa*
id_dsa*
id_ecdsa*
id_ed25519*
!id_*.pub
.netrc
_netrc
.pgpass
.pypirc
.git-credentials
.htpasswd
credentials*.json
client_secret*.json
service-account*.json
service_account*.json
**/.aws/credentials
**/.docker/config.json
**/.kube/config
";

/// Decides which paths look like secrets.
#[derive(Debug)]
pub struct SecretNames {
    list: Rules,
    allowed: Rules,
}

impl SecretNames {
    /// The stated list, less what `allow` (patterns as in `.gitignore`) lets pass.
    pub fn new(allow: &[String]) -> Self {
        Self { list: Rules::parse(b"", SECRET_NAMES.as_bytes()), allowed: Rules::parse(b"", allow.join("\n").as_bytes()) }
    }

    /// Whether the file at `path` must not leave this machine. Names are compared without regard to case.
    pub fn refuses(&self, path: &[u8]) -> bool {
        let folded = path.to_ascii_lowercase();
        self.list.says(&folded, false) == Some(true) && !self.allowed.ignores(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_list_are_refused_at_every_depth_and_in_any_case() {
        let names = SecretNames::new(&[]);
        for path in [".env", "a/.env.local", "KEY.PEM", "x/id_rsa", "conf/credentials-prod.json", "home/.aws/credentials", "a/.ENV"] {
            assert!(names.refuses(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn harmless_neighbours_pass() {
        let names = SecretNames::new(&[]);
        for path in [".env.example", "id_rsa.pub", "environment.py", ".env/bin/python", "credentials.md", "tokens.json"] {
            assert!(!names.refuses(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn an_allowed_name_passes_and_only_that_one() {
        let names = SecretNames::new(&["certs/ca.pem".to_owned()]);
        assert!(!names.refuses(b"certs/ca.pem"));
        assert!(names.refuses(b"certs/key.pem"));
    }
}
