//! The data folder: one process at a time, only its user may read it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A data folder that this process holds; released when dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    // Held for its lock alone.
    _lock: File,
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// Another process holds it.
    #[error("the data folder {path} is in use by process {holder}; stop that one, or give another folder with --data")]
    InUse {
        /// The folder.
        path: String,
        /// The process that holds it.
        holder: String,
    },
    /// It cannot be made or written.
    #[error("the data folder {path} cannot be used: {reason}; give a folder that you may write with --data")]
    Unusable {
        /// The folder.
        path: String,
        /// Why.
        reason: String,
    },
}

/// Whether a process holds this folder now.
pub fn is_held(path: &Path) -> bool {
    // Shared and given back at once: it stands in the way of nobody but who takes the folder at this very moment.
    let Ok(lock) = File::open(path.join("lock")) else { return false };
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}

impl DataFolder {
    /// Takes a folder, made when absent.
    ///
    /// # Errors
    /// When it is in use or cannot be used.
    pub fn take(path: &Path) -> Result<Self, DataFolderError> {
        let unusable = |error: std::io::Error| DataFolderError::Unusable { path: path.display().to_string(), reason: error.to_string() };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        let mut lock =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path.join("lock")).map_err(unusable)?;
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = lock.read_to_string(&mut holder);
            return Err(DataFolderError::InUse { path: path.display().to_string(), holder: holder.trim().to_owned() });
        }
        lock.set_len(0).map_err(unusable)?;
        writeln!(lock, "{}", std::process::id()).map_err(unusable)?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it, made when absent.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn part(&self, name: &str) -> Result<PathBuf, DataFolderError> {
        let path = self.path.join(name);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| DataFolderError::Unusable { path: path.display().to_string(), reason: error.to_string() })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_and_free_again_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let held = DataFolder::take(folder.path()).unwrap();
        let refused = DataFolder::take(folder.path()).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()) && refused.contains("--data"), "{refused}");
        assert!(is_held(folder.path()));
        drop(held);
        assert!(!is_held(folder.path()) && !is_held(&folder.path().join("absent")));
        DataFolder::take(folder.path()).unwrap();
    }

    #[test]
    fn a_path_that_is_a_file_is_refused_with_what_to_do() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = DataFolder::take(file.path()).unwrap_err().to_string();
        assert!(refused.contains("--data"), "{refused}");
    }
}
