//! What is told once and has to be kept: the place is made before the secret is, so that none is made that cannot be kept.

use super::{Exit, Failure};
use footplate_credentials::write_secret;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file that is there for a secret, for its owner's eyes alone; gone again unless it is kept.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    is_kept: bool,
}

impl SecretFile {
    /// Makes the file.
    ///
    /// # Errors
    /// One that is there already, or that cannot be written.
    pub fn reserve(path: &Path) -> Result<Self, Failure> {
        match std::fs::File::options().write(true).create_new(true).mode(0o600).open(path) {
            Ok(_) => Ok(Self { path: path.to_owned(), is_kept: false }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Failure::usage(format!("{} is there already; name another file, or take that one away", path.display())))
            }
            Err(error) => Err(unwritten(path, &error)),
        }
    }

    /// Puts the secret into it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(mut self, secret: &str) -> Result<(), Failure> {
        write_secret(&self.path, secret).map_err(|error| unwritten(&self.path, &error))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Empty, and of no use to anyone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_place_is_the_owners_alone_never_anothers_and_gone_when_it_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.creds");
        drop(SecretFile::reserve(&path).unwrap());
        assert!(!path.exists());
        SecretFile::reserve(&path).unwrap().keep("secret").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = SecretFile::reserve(&path).unwrap_err();
        assert!(refused.to_string().contains("is there already"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret");
        let prepared = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &prepared).unwrap();
        assert!(SecretFile::reserve(&prepared).is_err(), "a link that somebody prepared leads nowhere");
    }
}
