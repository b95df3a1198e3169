//! One member's queue of what was staged and waits to be stored, in the order in which it was acknowledged.
//!
//! The queue is the staging folder: what counts there is on disk, however long the store is away. Only its head is in memory.

use super::upload::{DONE_FILE, OP_FILE, StagedOp, Upload};
use crate::durable;
use std::{
    collections::{BTreeSet, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Staged ops that are held in memory; those behind them are read from the staging folder when their turn comes.
pub(super) const HELD_MOST: usize = 32;

/// The queue.
pub(crate) struct Uploads {
    staged: PathBuf,
    head: Mutex<Head>,
    /// Staged ops that are neither stored nor refused for good, in memory or on disk.
    pending: watch::Sender<usize>,
    added: Notify,
    closed: CancellationToken,
}

#[derive(Default)]
struct Head {
    held: VecDeque<Upload>,
    /// More wait on disk, behind those that are held: whatever comes next stays there too, lest it overtake them.
    more_on_disk: bool,
    /// Folders that stay though they are not stored: their files were refused for good.
    staying: BTreeSet<PathBuf>,
}

impl Head {
    fn push(&mut self, upload: Upload) {
        if self.more_on_disk || self.held.len() >= HELD_MOST {
            self.more_on_disk = true;
        } else {
            self.held.push_back(upload);
        }
    }
}

impl Uploads {
    /// An empty queue over the folder of what a member has staged.
    pub(crate) fn new(staged: PathBuf) -> Self {
        Self { staged, head: Mutex::default(), pending: watch::Sender::new(0), added: Notify::new(), closed: CancellationToken::new() }
    }

    /// The folder.
    pub(crate) fn staged(&self) -> &Path {
        &self.staged
    }

    fn locked(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a staged op count from now on: writes its file, does `counted`, and has it wait its turn. Blocking.
    pub(crate) fn add(&self, upload: Upload, counted: impl FnOnce()) -> io::Result<()> {
        // Held over the write: who looks into the folder meanwhile must find either neither, or the file and its place in the queue.
        let mut head = self.locked();
        if let Err(error) = upload.op.write(&upload.dir) {
            let _ = fs::remove_file(upload.dir.join(OP_FILE));
            return Err(error);
        }
        counted();
        head.push(upload);
        self.pending.send_modify(|count| *count += 1);
        self.added.notify_one();
        Ok(())
    }

    /// Has what was staged before a restart wait its turn, before anything else is added.
    pub(crate) fn restore(&self, staged: Vec<Upload>) {
        let mut head = self.locked();
        self.pending.send_modify(|count| *count += staged.len());
        staged.into_iter().for_each(|upload| head.push(upload));
        self.added.notify_one();
    }

    /// How many have not ended.
    pub(crate) fn pending(&self) -> usize {
        *self.pending.borrow()
    }

    /// Waits until none is pending.
    pub(crate) async fn all_ended(&self) {
        // The sender is this very queue's: it cannot be gone.
        let _ = self.pending.subscribe().wait_for(|count| *count == 0).await;
    }

    /// The one that `next` gave is stored, or refused for good.
    pub(crate) fn ended(&self) {
        self.pending.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// The files in `dir` are refused for good and stay: it is not their turn again.
    pub(crate) fn stays(&self, dir: PathBuf) {
        self.locked().staying.insert(dir);
    }

    /// No more will be added.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Waits for the next one; `None` once the queue is closed.
    pub(crate) async fn next(self: &Arc<Self>) -> Option<Upload> {
        loop {
            if self.closed.is_cancelled() {
                return None;
            }
            let uploads = self.clone();
            if let Ok(Some(upload)) = tokio::task::spawn_blocking(move || uploads.take()).await {
                return Some(upload);
            }
            tokio::select! {
                () = self.closed.cancelled() => return None,
                () = self.added.notified() => {}
            }
        }
    }

    /// The first in line. Blocking.
    fn take(&self) -> Option<Upload> {
        let mut head = self.locked();
        while head.held.is_empty() && head.more_on_disk {
            let waiting = self.listed(&head.staying);
            head.more_on_disk = waiting.len() > HELD_MOST;
            for (_, _, dir) in waiting.into_iter().take(HELD_MOST) {
                match durable::read_json::<StagedOp>(&dir.join(OP_FILE)) {
                    Ok(Some(op)) => head.held.push_back(Upload { dir, op }),
                    // The next start of the agent looks at it again.
                    Ok(None) | Err(_) => {
                        tracing::error!(dir = %dir.display(), "a staged op cannot be read and stays where it is");
                        head.staying.insert(dir);
                    }
                }
            }
        }
        head.held.pop_front()
    }

    /// What counts in the folder and is not stored, oldest first.
    fn listed(&self, staying: &BTreeSet<PathBuf>) -> Vec<(SystemTime, u64, PathBuf)> {
        let mut waiting: Vec<_> = fs::read_dir(&self.staged)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|dir| !staying.contains(dir) && !dir.join(DONE_FILE).exists())
            .filter_map(|dir| Some((fs::metadata(dir.join(OP_FILE)).ok()?.modified().ok()?, op_number(&dir), dir)))
            .collect();
        waiting.sort();
        waiting
    }

    /// How many are held in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.locked().held.len()
    }
}

/// The number of the op in its session: the end of its folder's name.
fn op_number(dir: &Path) -> u64 {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}
