//! What the broker of `up` has stored: the streams of each account under its name. Never removes a stream.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The account of a server without accounts, as all were before there was an operator.
const GLOBAL: &str = "$G";

/// Why what is stored cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The keys that it hangs on are gone.
    #[error(
        "streams of the account {account} lie in {store}, and the keys in {keys} that reach them are gone; put back that folder (it is part \
         of every copy of the data folder), or give another folder with --data"
    )]
    KeysGone {
        /// The account.
        account: String,
        /// Where its streams lie.
        store: String,
        /// Where the keys have to be.
        keys: String,
    },
    /// There is a second ledger: an older Footplate ran over the folder in between.
    #[error(
        "there are streams in {old} and in {new}: an older Footplate has run over this data folder in between and begun another ledger; move away \
         the one that is not wanted, or give another folder with --data"
    )]
    Two {
        /// What the older one wrote.
        old: String,
        /// What there was before.
        new: String,
    },
    /// The disk.
    #[error("the broker's store: {path} {what}: {source}")]
    Io {
        /// What.
        path: String,
        /// What could not be done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn io_error<'a>(path: &'a Path, what: &'static str) -> impl Fn(io::Error) -> StoreError + use<'a> {
    move |source| StoreError::Io { path: path.display().to_string(), what, source }
}

fn accounts(store: &Path) -> PathBuf {
    store.join("jetstream")
}

/// The names in a folder; none where there is no folder.
fn names(path: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(path, "cannot be read")(error)),
    };
    let read: Result<Vec<_>, io::Error> = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    read.map_err(io_error(path, "cannot be read"))
}

fn has_streams(account: &Path) -> Result<bool, StoreError> {
    Ok(!names(&account.join("streams"))?.is_empty())
}

/// Refuses a store with streams of any account: for the moment before new keys are made.
pub(super) fn refuse_accounts(store: &Path, keys: &Path) -> Result<(), StoreError> {
    let folder = accounts(store);
    for account in names(&folder)?.into_iter().filter(|account| account.starts_with('A')) {
        if has_streams(&folder.join(&account))? {
            return Err(StoreError::KeysGone { account, store: store.display().to_string(), keys: keys.display().to_string() });
        }
    }
    Ok(())
}

/// What a server without accounts has stored becomes the account's, in one step: the format of a stream does not name its account.
pub(super) fn adopt_streams(store: &Path, account: &str) -> Result<(), StoreError> {
    let folder = accounts(store);
    let (old, new) = (folder.join(GLOBAL), folder.join(account));
    if !has_streams(&old)? {
        return Ok(());
    }
    if has_streams(&new)? {
        return Err(StoreError::Two { old: old.display().to_string(), new: new.display().to_string() });
    }
    if new.exists() {
        // Without streams there is nothing in it but what the server makes by itself.
        fs::remove_dir_all(&new).map_err(io_error(&new, "cannot be replaced"))?;
    }
    fs::rename(&old, &new).map_err(io_error(&old, "cannot be given to the platform's account"))?;
    fs::File::open(&folder).and_then(|folder| folder.sync_all()).map_err(io_error(&folder, "cannot be made durable"))?;
    tracing::info!(account, "what the broker had stored belongs to the platform's own account from now on");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stream(store: &Path, account: &str) {
        fs::create_dir_all(store.join("jetstream").join(account).join("streams/LEDGER")).unwrap();
    }

    #[test]
    fn older_streams_are_taken_over_once_and_never_over_others() {
        let store = tempfile::tempdir().unwrap();
        adopt_streams(store.path(), "AX").unwrap();
        stream(store.path(), GLOBAL);
        fs::create_dir_all(store.path().join("jetstream/AX/streams")).unwrap();
        adopt_streams(store.path(), "AX").unwrap();
        assert!(store.path().join("jetstream/AX/streams/LEDGER").is_dir() && !store.path().join("jetstream/$G").exists());
        adopt_streams(store.path(), "AX").unwrap();
        stream(store.path(), GLOBAL);
        let refused = adopt_streams(store.path(), "AX").unwrap_err().to_string();
        assert!(refused.contains("$G") && refused.contains("AX"), "{refused}");
    }

    #[test]
    fn new_keys_are_refused_over_streams_that_hang_on_others() {
        let store = tempfile::tempdir().unwrap();
        let keys = Path::new("/data/operator");
        stream(store.path(), GLOBAL);
        refuse_accounts(store.path(), keys).unwrap();
        stream(store.path(), "AX");
        let refused = refuse_accounts(store.path(), keys).unwrap_err().to_string();
        assert!(refused.contains("AX") && refused.contains("/data/operator"), "{refused}");
    }
}
