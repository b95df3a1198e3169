//! What could not be delivered and is kept for a person to look at: entries that the broker refused for good, and files of which this node
//! has the only copy.
//!
//! A bounded folder: for a newer one the oldest goes, with a warning and counted in the node's series.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

/// How much of what could not be delivered is kept.
#[derive(Clone, Copy, Debug)]
pub struct AsideLimits {
    /// Entries and folders.
    pub count_most: usize,
    /// Bytes of all of them; the newest is kept even when it alone has more.
    pub bytes_most: u64,
}

impl Default for AsideLimits {
    fn default() -> Self {
        Self { count_most: 1_000, bytes_most: 64 << 30 }
    }
}

/// The folder of what could not be delivered.
#[derive(Debug)]
pub(crate) struct Aside {
    dir: PathBuf,
    limits: AsideLimits,
    dropped: AtomicU64,
    /// One addition at a time.
    turn: Mutex<()>,
}

impl Aside {
    pub(crate) fn new(work: &Path, limits: AsideLimits) -> Self {
        Self { dir: work.join("refused"), limits, dropped: AtomicU64::new(0), turn: Mutex::default() }
    }

    /// Whether something is kept under this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    /// Keeps bytes. Blocking.
    pub(crate) fn keep_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.keep(name, |to| crate::durable::write(to, bytes))
    }

    /// Takes a folder over. Blocking.
    pub(crate) fn keep_folder(&self, name: &str, from: &Path) -> io::Result<()> {
        self.keep(name, |to| fs::rename(from, to))
    }

    /// How many were dropped for newer ones since the agent's start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn keep(&self, name: &str, put: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        fs::create_dir_all(&self.dir)?;
        let to = self.dir.join(name);
        put(&to)?;
        self.trim(&to);
        Ok(())
    }

    /// Drops the oldest until the bounds hold; never `newest`.
    fn trim(&self, newest: &Path) {
        let mut kept: Vec<(SystemTime, PathBuf, u64)> = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path(), bytes_of(&entry.path()))))
            .collect();
        kept.sort();
        let (mut count, mut bytes) = (kept.len(), kept.iter().map(|(_, _, bytes)| bytes).sum::<u64>());
        for (_, path, size) in kept.iter().filter(|(_, path, _)| path != newest) {
            if count <= self.limits.count_most && bytes <= self.limits.bytes_most {
                return;
            }
            if let Err(error) = remove(path) {
                tracing::warn!(%error, path = %path.display(), "what was refused long ago cannot be dropped");
                continue;
            }
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(path = %path.display(), bytes = size, kept = count - 1, "what was refused long ago is dropped for something newer");
            (count, bytes) = (count - 1, bytes.saturating_sub(*size));
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Bytes of a file, or of everything below a folder; links are not followed.
fn bytes_of(path: &Path) -> u64 {
    let (mut bytes, mut open) = (0, vec![path.to_owned()]);
    while let Some(path) = open.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())));
        } else {
            bytes += metadata.len();
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{collections::BTreeSet, time::Duration};

    /// Keeps one, as of `second`.
    fn keep(aside: &Aside, name: &str, bytes: usize, second: u64) {
        aside.keep_bytes(name, &vec![0; bytes]).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        fs::File::options().append(true).open(aside.dir.join(name)).unwrap().set_modified(at).unwrap();
    }

    fn names(aside: &Aside) -> BTreeSet<String> {
        fs::read_dir(&aside.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let work = tempfile::tempdir().unwrap();
        let aside = Aside::new(work.path(), AsideLimits { count_most: 2, bytes_most: 1_000 });
        for (second, name) in ["d", "c", "b", "a"].into_iter().enumerate() {
            keep(&aside, name, 1, second as u64);
        }
        assert_eq!((names(&aside), aside.dropped()), (["a", "b"].map(str::to_owned).into(), 2));
        assert!(aside.has("a") && !aside.has("d"));
    }

    #[test]
    fn bytes_count_those_below_folders_and_the_newest_stays_however_large() {
        let work = tempfile::tempdir().unwrap();
        let aside = Aside::new(work.path(), AsideLimits { count_most: 100, bytes_most: 100 });
        keep(&aside, "old", 10, 1);
        let staged = work.path().join("staged");
        fs::create_dir_all(staged.join("deep")).unwrap();
        fs::write(staged.join("deep/weights"), vec![0; 95]).unwrap();
        aside.keep_folder("member", &staged).unwrap();
        assert_eq!((names(&aside), aside.dropped()), (["member".to_owned()].into(), 1));
        keep(&aside, "huge", 1_000, u64::from(u32::MAX));
        assert_eq!((names(&aside), aside.dropped()), (["huge".to_owned()].into(), 2));
        assert!(aside.dir.join("huge").metadata().unwrap().len() == 1_000);
    }
}
