//! The operator's folder: a seed a file, made whole or not at all, and the list of who is revoked.

use crate::creds::{sync_folder, write_durably, write_secret};
use crate::key::{Key, KeyError, KeyKind};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The longest file that is read as a seed.
const SEED_FILE_MAX: u64 = 4_096;
/// The longest list of revocations that is read.
const REVOKED_FILE_MAX: u64 = 16 << 20;
/// Who is revoked: an account, a user and a second, a line each.
const REVOKED: &str = "revoked";

/// A file of the folder, and what its key is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeedFile {
    pub(crate) name: &'static str,
    pub(crate) kind: KeyKind,
}

pub(crate) const OPERATOR: SeedFile = SeedFile { name: "operator.seed", kind: KeyKind::Operator };
pub(crate) const SYSTEM: SeedFile = SeedFile { name: "system-account.seed", kind: KeyKind::Account };
pub(crate) const SYSTEM_USER: SeedFile = SeedFile { name: "system-user.seed", kind: KeyKind::User };
pub(crate) const PLATFORM: SeedFile = SeedFile { name: "platform-account.seed", kind: KeyKind::Account };
pub(crate) const PLATFORM_SIGNING: SeedFile = SeedFile { name: "platform-signing.seed", kind: KeyKind::Account };

const SEED_FILES: [SeedFile; 5] = [OPERATOR, SYSTEM, SYSTEM_USER, PLATFORM, PLATFORM_SIGNING];

/// Why the operator's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Some of it is missing. Keys are never made anew beside others: streams and credentials hang on them.
    #[error("the operator folder {folder} is not whole: {missing} not there; put back what it held, or give another folder")]
    NotWhole {
        /// Which.
        folder: String,
        /// What is missing.
        missing: String,
    },
    /// There is none.
    #[error("there is no operator folder at {0}; make one with `footplate nats init {0}`")]
    Absent(String),
    /// It is there already.
    #[error("there is an operator folder at {0} already; it is used as it is, and never made anew")]
    Exists(String),
    /// It cannot be read or written.
    #[error("the operator folder: {path} {what}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What could not be done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A file holds no such key.
    #[error("the operator folder: {0}")]
    Key(#[from] KeyError),
    /// A line of the revocations is none.
    #[error("{path}, line {line}: not a revocation; allowed: an account key, a user key, seconds since 1970")]
    Revocation {
        /// The file.
        path: String,
        /// The line.
        line: usize,
    },
}

fn io_error<'a>(path: &'a Path, what: &'static str) -> impl Fn(io::Error) -> FolderError + use<'a> {
    move |source| FolderError::Io { path: path.display().to_string(), what, source }
}

/// Revoked users of each account, with the second of the newest revocation.
pub(crate) type Revoked = BTreeMap<String, BTreeMap<String, i64>>;

/// The folder itself.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    /// Whether there is one, whole or not: an empty folder is none.
    pub(crate) fn is_there(path: &Path) -> Result<bool, FolderError> {
        match fs::read_dir(path) {
            Ok(mut entries) => Ok(entries.next().is_some()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error(path, "cannot be read")(error)),
        }
    }

    /// Makes one with new keys. They lie in a folder beside it until all of them are durable.
    pub(crate) fn create(path: &Path) -> Result<Self, FolderError> {
        if Self::is_there(path)? {
            return Err(FolderError::Exists(path.display().to_string()));
        }
        let unwritable = || io_error(path, "cannot be made");
        let name = path.file_name().ok_or_else(|| unwritable()(io::Error::new(io::ErrorKind::InvalidInput, "no folder is named")))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(unwritable())?;
        let unique: [u8; 8] = footplate_clock::entropy();
        let staged = parent.join(format!(".{}.{}", name.to_string_lossy(), data_encoding::HEXLOWER.encode(&unique)));
        let make = || {
            fs::DirBuilder::new().mode(0o700).create(&staged)?;
            for file in SEED_FILES {
                write_secret(&staged.join(file.name), &format!("{}\n", Key::generate(file.kind).seed()))?;
            }
            fs::rename(&staged, path)?;
            sync_folder(Some(parent))
        };
        make().map_err(|error| {
            let _ = fs::remove_dir_all(&staged);
            // Another has made it meanwhile.
            if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) {
                return FolderError::Exists(path.display().to_string());
            }
            unwritable()(error)
        })?;
        Self::open(path)
    }

    /// Takes the one that is there.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        if !Self::is_there(path)? {
            return Err(FolderError::Absent(path.display().to_string()));
        }
        let missing: Vec<&str> = SEED_FILES.iter().map(|file| file.name).filter(|name| !path.join(name).exists()).collect();
        if missing.is_empty() {
            return Ok(Self { path: path.to_owned() });
        }
        Err(FolderError::NotWhole { folder: path.display().to_string(), missing: missing.join(", ") })
    }

    pub(crate) fn seed(&self, file: SeedFile) -> Result<Key, FolderError> {
        let path = self.path.join(file.name);
        let text = read_bounded(&path, SEED_FILE_MAX).map_err(io_error(&path, "cannot be read"))?;
        Ok(Key::from_seed(file.kind, &path.display().to_string(), &text)?)
    }

    pub(crate) fn revoked(&self) -> Result<Revoked, FolderError> {
        let path = self.path.join(REVOKED);
        let text = match read_bounded(&path, REVOKED_FILE_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io_error(&path, "cannot be read")(error)),
        };
        let mut revoked = Revoked::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = || FolderError::Revocation { path: path.display().to_string(), line: index + 1 };
            let words: Vec<&str> = line.split(' ').collect();
            let [account, user, at] = words.as_slice() else { return Err(wrong()) };
            let at: i64 = at.parse().map_err(|_| wrong())?;
            Key::check_public(KeyKind::Account, "", account).map_err(|_| wrong())?;
            Key::check_public(KeyKind::User, "", user).map_err(|_| wrong())?;
            let newest = revoked.entry((*account).to_owned()).or_default().entry((*user).to_owned()).or_insert(at);
            *newest = at.max(*newest);
        }
        Ok(revoked)
    }

    /// Adds a revocation, durably. Two who do so at once both succeed.
    pub(crate) fn revoke(&self, account: &str, user: &str, at: i64) -> Result<(), FolderError> {
        let held = fs::File::open(&self.path).map_err(io_error(&self.path, "cannot be read"))?;
        held.lock().map_err(io_error(&self.path, "cannot be locked"))?;
        let mut revoked = self.revoked()?;
        let newest = revoked.entry(account.to_owned()).or_default().entry(user.to_owned()).or_insert(at);
        *newest = at.max(*newest);
        let lines = revoked.iter().flat_map(|(account, users)| users.iter().map(move |(user, at)| format!("{account} {user} {at}\n")));
        let path = self.path.join(REVOKED);
        // No secret: whoever signs, the registry in its container as well as an operator beside it, has to read it, whoever wrote it last.
        write_durably(&path, &lines.collect::<String>(), 0o644).map_err(io_error(&path, "cannot be written"))
    }
}

fn read_bounded(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {most} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_folder_is_made_once_and_only_its_owner_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/operator");
        let made = Folder::create(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert!(SEED_FILES.iter().all(|file| mode(&path.join(file.name)) == 0o600));
        let seed = made.seed(OPERATOR).unwrap();
        assert!(matches!(Folder::create(&path), Err(FolderError::Exists(_))));
        assert_eq!(Folder::open(&path).unwrap().seed(OPERATOR).unwrap().public(), seed.public());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn an_empty_folder_is_taken_and_one_that_is_not_whole_is_refused_by_name() {
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(Folder::open(home.path()), Err(FolderError::Absent(_))));
        Folder::create(home.path()).unwrap();
        fs::remove_file(home.path().join("platform-account.seed")).unwrap();
        let refused = Folder::open(home.path()).unwrap_err().to_string();
        assert!(refused.contains("platform-account.seed") && refused.contains("put back"), "{refused}");
        assert!(matches!(Folder::create(home.path()), Err(FolderError::Exists(_))), "nothing is made anew beside other keys");
        fs::write(home.path().join("platform-account.seed"), "SUxx\n").unwrap();
        let refused = Folder::open(home.path()).unwrap().seed(PLATFORM).unwrap_err().to_string();
        assert!(refused.contains("platform-account.seed") && !refused.contains("SUxx"), "{refused}");
    }

    #[test]
    fn revocations_are_kept_and_the_newest_counts() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::create(home.path()).unwrap();
        let account = folder.seed(PLATFORM).unwrap();
        let user = Key::from_entropy(KeyKind::User, [4; 32]);
        for at in [5, 9, 7] {
            folder.revoke(account.public(), user.public(), at).unwrap();
            let mode = fs::metadata(home.path().join(REVOKED)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o644, "whoever signs has to read it, whoever wrote it");
        }
        assert_eq!(folder.revoked().unwrap()[account.public()][user.public()], 9);
        fs::write(home.path().join(REVOKED), "nobody nothing 7\n").unwrap();
        let refused = folder.revoked().unwrap_err().to_string();
        assert!(refused.contains("line 1"), "{refused}");
    }
}
