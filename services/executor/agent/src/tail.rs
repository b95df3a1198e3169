//! Following a member's log files into the spool. Bytes are bytes: nothing is decoded, no line is waited for, nothing here can hold up a
//! training, which writes into its files whether or not anybody reads them.

use crate::{
    durable,
    record::{self, LogRecord},
    socket::patiently,
    spool::Spool,
};
use footplate_events::{facts::LogStream, messages::MemberRef};
use footplate_types::Rank;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes of one chunk.
const CHUNK_BYTES: usize = 256 << 10;

/// One file and how far it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Followed {
    rank: Rank,
    stream: LogStream,
    path: PathBuf,
    taken: u64,
}

/// The log files of one member.
#[derive(Debug)]
pub(crate) struct Tail {
    of: MemberRef,
    positions: Positions,
    files: Vec<Followed>,
}

type Taken = Vec<(Rank, LogStream, u64)>;

/// How far a member's logs were taken, to be known without waiting for whoever takes them.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    path: PathBuf,
    taken: Arc<Mutex<Taken>>,
    /// Held while the file is written: every spool's trimming asks for it, and an older value must not follow a newer one.
    writing: Arc<Mutex<()>>,
}

impl Positions {
    fn set(&self, files: &[Followed]) {
        let taken = files.iter().map(|file| (file.rank, file.stream, file.taken)).collect();
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = taken;
    }

    /// Makes known without the spool's entries what was taken; before they may be forgotten.
    pub(crate) fn write(&self) -> io::Result<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        durable::write_json_while_there(&self.path, &taken)
    }
}

impl Tail {
    /// Follows these files of the member in `dir`, from where they were taken up to before.
    pub(crate) fn open(of: MemberRef, dir: &Path, files: Vec<(Rank, LogStream, PathBuf)>) -> io::Result<Self> {
        let path = dir.join("log-positions.json");
        let known: Taken = durable::read_json(&path)?.unwrap_or_default();
        let taken = |rank, stream| known.iter().find(|(r, s, _)| (*r, *s) == (rank, stream)).map_or(0, |(.., taken)| *taken);
        let follow = |(rank, stream, path)| Followed { rank, stream, path, taken: taken(rank, stream) };
        let files: Vec<Followed> = files.into_iter().map(follow).collect();
        let positions = Positions { path, taken: Arc::default(), writing: Arc::default() };
        positions.set(&files);
        Ok(Self { of, positions, files })
    }

    /// How far the logs were taken, also while they are being taken.
    pub(crate) fn positions(&self) -> Positions {
        self.positions.clone()
    }

    /// Learns from an entry of the spool what had been taken.
    pub(crate) fn recover(&mut self, record: &LogRecord, bytes: u64) {
        for file in self.files.iter_mut().filter(|file| (file.rank, file.stream) == (record.rank, record.stream)) {
            file.taken = file.taken.max(record.at + bytes);
        }
        self.positions.set(&self.files);
    }

    /// Takes what is new, at most one chunk a file. `false` when nothing was.
    pub(crate) async fn pump(&mut self, spool: &Spool) -> bool {
        let mut moved = false;
        for at in 0..self.files.len() {
            let file = &mut self.files[at];
            let chunk = match read_chunk(&file.path, file.taken) {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(%error, path = %file.path.display(), "log file");
                    continue;
                }
            };
            if chunk.is_empty() {
                continue;
            }
            let header = LogRecord { of: self.of.clone(), rank: file.rank, stream: file.stream, at: file.taken };
            let entry = record::pack(&header, &chunk);
            if patiently(|| spool.append(entry.clone())).await.is_none() {
                return false;
            }
            file.taken += chunk.len() as u64;
            self.positions.set(&self.files);
            moved = true;
        }
        moved
    }
}

impl Tail {
    /// Whether there is anything that was not taken, or that cannot be read.
    pub(crate) fn has_rest(&self) -> bool {
        self.files.iter().any(|file| match std::fs::metadata(&file.path) {
            Ok(metadata) => metadata.len() > file.taken,
            Err(error) => error.kind() != io::ErrorKind::NotFound || file.taken > 0,
        })
    }
}

fn read_chunk(path: &Path, at: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let waiting = file.metadata()?.len().saturating_sub(at);
    let mut chunk = vec![0u8; CHUNK_BYTES.min(usize::try_from(waiting).unwrap_or(CHUNK_BYTES))];
    let count = file.read_at(&mut chunk, at)?;
    chunk.truncate(count);
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::SpoolOptions;
    use footplate_types::{AttemptNumber, MemberIndex, ProjectName, RunId};

    fn of() -> MemberRef {
        let project = ProjectName::parse("vision").unwrap();
        MemberRef { project, run: RunId::from_bytes([1; 16]), attempt: AttemptNumber(1), member: MemberIndex(0) }
    }

    async fn bytes(spool: &Spool) -> Vec<u8> {
        let entries = spool.read_from(1, usize::MAX).await.unwrap();
        let mut next = 0;
        let mut all = Vec::new();
        for entry in entries {
            let (header, body) = record::unpack::<LogRecord>(&entry.payload).unwrap();
            assert_eq!(header.at, next, "no gap and no overlap");
            next += body.len() as u64;
            all.extend_from_slice(&body);
        }
        all
    }

    #[tokio::test]
    async fn every_byte_is_taken_once_across_restarts_and_trims() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.out");
        let files = vec![(Rank(0), LogStream::Stdout, log.clone())];
        let spool = Spool::open(&dir.path().join("spool"), SpoolOptions::default(), footplate_clock::spool_id).unwrap();
        let mut tail = Tail::open(of(), dir.path(), files.clone()).unwrap();
        assert!(!tail.pump(&spool).await, "no file yet");
        let mut written = vec![0xffu8; 300_000];
        written.extend_from_slice(b"no newline");
        std::fs::write(&log, &written).unwrap();
        while tail.pump(&spool).await {}
        assert_eq!(bytes(&spool).await, written);

        // A restart before the positions were written: the spool's own entries tell.
        let mut again = Tail::open(of(), dir.path(), files.clone()).unwrap();
        for entry in spool.read_from(1, usize::MAX).await.unwrap() {
            let (header, body) = record::unpack::<LogRecord>(&entry.payload).unwrap();
            again.recover(&header, body.len() as u64);
        }
        assert!(!again.pump(&spool).await);
        again.positions().write().unwrap();
        spool.trim(spool.durable()).await.unwrap();
        let mut third = Tail::open(of(), dir.path(), files).unwrap();
        assert!(!third.pump(&spool).await, "positions are known without the entries");
        std::fs::write(&log, [written.as_slice(), b"more"].concat()).unwrap();
        assert!(third.pump(&spool).await);
        let entries = spool.read_from(1, usize::MAX).await.unwrap();
        assert_eq!(record::unpack::<LogRecord>(&entries[0].payload).unwrap().1.as_ref(), b"more");
    }

    #[test]
    fn positions_that_many_write_at_once_are_whole_and_those_of_a_forgotten_member_are_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("member");
        std::fs::create_dir(&folder).unwrap();
        let files = vec![(Rank(0), LogStream::Stdout, folder.join("0.out"))];
        let positions = Tail::open(of(), &folder, files.clone()).unwrap().positions();
        let write = || (0..25).for_each(|_| positions.write().unwrap());
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(write))));
        Tail::open(of(), &folder, files).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        positions.write().unwrap();
    }
}
