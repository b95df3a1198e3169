//! Append-only spools: what the agent said or took over is on disk before it is acknowledged, and stays until SETTLED covers it.
//!
//! Records have offsets 1, 2, 3, ... Many appenders share one fsync. A crash may tear the records whose append had not returned;
//! it never loses one whose append had. A spool is bounded: when full it refuses, and says so; it never drops what it holds.

mod frame;
mod journal;
mod segment;

use bytes::Bytes;
use footplate_types::SpoolId;
use journal::Journal;
use segment::Index;
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::{mpsc, oneshot, watch};

/// Appends that may wait for one commit.
const QUEUE_MOST: usize = 1024;
/// Payload bytes of one commit.
const BATCH_BYTES_MOST: usize = 4 << 20;

/// What a spool may take and how hard it tries to keep it.
#[derive(Clone, Copy, Debug)]
pub struct SpoolOptions {
    /// Bytes on disk above which appends are refused.
    pub max_bytes: u64,
    /// Bytes after which a new segment file is begun; trimming frees whole segments.
    pub segment_bytes: u64,
    /// Payload bytes of one record at most.
    pub max_record_bytes: usize,
    /// Whether an append waits for the disk. `false` only for declared nodes of load tests, which have nothing to lose.
    pub sync: bool,
}

impl Default for SpoolOptions {
    fn default() -> Self {
        Self { max_bytes: 1 << 30, segment_bytes: 8 << 20, max_record_bytes: 1 << 20, sync: true }
    }
}

/// Why a spool did not take or give a record.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpoolError {
    /// The bound is reached: try again once the platform has settled what is held.
    #[error("spool holds {held} of {most} bytes and takes no more until what it holds is settled")]
    Full {
        /// Bytes held.
        held: u64,
        /// The bound.
        most: u64,
    },
    /// The disk below is full: try again once there is room.
    #[error("disk full under the spool")]
    DiskFull,
    /// The record can never fit.
    #[error("record of {bytes} bytes is above the limit of {most}")]
    TooLarge {
        /// Its payload bytes.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The file system refused.
    #[error("spool {doing}: {message}")]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        message: String,
    },
    /// Another owner has the folder.
    #[error("the spool's folder is in use")]
    InUse,
    /// The spool's task has ended (shutdown).
    #[error("spool is closed")]
    Closed,
}

impl SpoolError {
    fn disk(doing: &'static str, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::StorageFull {
            return Self::DiskFull;
        }
        Self::Disk { doing, message: error.to_string() }
    }
}

/// A record read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset, from 1.
    pub offset: u64,
    /// What was appended.
    pub payload: Bytes,
}

enum Command {
    Append(Vec<Bytes>, oneshot::Sender<Result<u64, SpoolError>>),
    Trim(u64, oneshot::Sender<Result<(), SpoolError>>),
}

/// A handle to one spool folder; clones share it.
#[derive(Clone)]
pub struct Spool {
    id: SpoolId,
    options: SpoolOptions,
    index: Arc<Mutex<Index>>,
    commands: mpsc::Sender<Command>,
    durable: watch::Receiver<u64>,
}

impl Spool {
    /// Opens the spool in `dir`, creating it with an id from `mint` when it is not there. Cuts a torn tail.
    ///
    /// Must be called inside a tokio runtime. Refused while another owner has the folder; one that has just ended in this process may still
    /// be at its last commit.
    pub fn open(dir: &Path, options: SpoolOptions, mint: impl FnOnce() -> SpoolId) -> Result<Self, SpoolError> {
        let (id, journal) = Journal::open(dir, options, mint)?;
        let index = journal.index();
        let (durable_sender, durable) = watch::channel(journal.durable());
        let (commands, receiver) = mpsc::channel(QUEUE_MOST);
        tokio::spawn(commit_loop(journal, receiver, durable_sender));
        Ok(Self { id, options, index, commands, durable })
    }

    /// The id of this spool's life.
    pub fn id(&self) -> SpoolId {
        self.id
    }

    /// Appends one record; when this returns its offset the record is on disk.
    pub async fn append(&self, payload: impl Into<Bytes>) -> Result<u64, SpoolError> {
        self.append_all(vec![payload.into()]).await
    }

    /// Appends several records side by side, all or none; returns the offset of the last.
    pub async fn append_all(&self, payloads: Vec<Bytes>) -> Result<u64, SpoolError> {
        if let Some(large) = payloads.iter().find(|payload| payload.len() > self.options.max_record_bytes) {
            return Err(SpoolError::TooLarge { bytes: large.len(), most: self.options.max_record_bytes });
        }
        if payloads.is_empty() {
            return Ok(self.durable());
        }
        let (sender, receiver) = oneshot::channel();
        self.commands.send(Command::Append(payloads, sender)).await.map_err(|_| SpoolError::Closed)?;
        receiver.await.map_err(|_| SpoolError::Closed)?
    }

    /// Forgets records up to `up_to` (whole segments at a time).
    pub async fn trim(&self, up_to: u64) -> Result<(), SpoolError> {
        let (sender, receiver) = oneshot::channel();
        self.commands.send(Command::Trim(up_to, sender)).await.map_err(|_| SpoolError::Closed)?;
        receiver.await.map_err(|_| SpoolError::Closed)?
    }

    /// Durable records from `offset` on, in order, about `max_bytes` of payload at most (at least one record when there is one).
    pub async fn read_from(&self, offset: u64, max_bytes: usize) -> Result<Vec<Record>, SpoolError> {
        let index = self.index.clone();
        let longest = self.options.max_record_bytes;
        let read = tokio::task::spawn_blocking(move || segment::read_from(&index, offset, max_bytes, longest));
        read.await.map_err(|_| SpoolError::Closed)?
    }

    /// The highest offset that is on disk; 0 when nothing was ever appended.
    pub fn durable(&self) -> u64 {
        *self.durable.borrow()
    }

    /// Follows [`Spool::durable`].
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.durable.clone()
    }

    /// Bytes held on disk.
    pub fn held_bytes(&self) -> u64 {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    /// Whether a record may not fit before something is forgotten.
    pub fn is_full(&self) -> bool {
        self.held_bytes() + frame::framed_bytes(self.options.max_record_bytes) > self.options.max_bytes
    }

    /// The lowest offset still held (one past the highest when empty).
    pub fn first(&self) -> u64 {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).first()
    }
}

async fn commit_loop(mut journal: Journal, mut commands: mpsc::Receiver<Command>, durable: watch::Sender<u64>) {
    while let Some(first) = commands.recv().await {
        let mut batch = Vec::new();
        let mut answers = Vec::new();
        let mut trim = None;
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(command) = next.take() {
            match command {
                Command::Append(payloads, answer) => {
                    bytes += payloads.iter().map(Bytes::len).sum::<usize>();
                    batch.push(payloads);
                    answers.push(answer);
                }
                Command::Trim(up_to, answer) => trim = Some((up_to, answer)),
            }
            if bytes < BATCH_BYTES_MOST && trim.is_none() {
                next = commands.try_recv().ok();
            }
        }
        let trim_to = trim.as_ref().map(|(up_to, _)| *up_to);
        let work = tokio::task::spawn_blocking(move || {
            let appended = journal.commit(batch);
            let trimmed = trim_to.map(|up_to| journal.trim(up_to));
            (journal, appended, trimmed)
        });
        let Ok((back, appended, trimmed)) = work.await else { return };
        journal = back;
        durable.send_if_modified(|known| std::mem::replace(known, journal.durable()) != journal.durable());
        for (answer, result) in answers.into_iter().zip(appended) {
            let _ = answer.send(result);
        }
        if let (Some((_, answer)), Some(result)) = (trim, trimmed) {
            let _ = answer.send(result);
        }
    }
}
