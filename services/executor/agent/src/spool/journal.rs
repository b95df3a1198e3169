//! The writing side of a spool: blocking, one owner at a time.

use super::{
    SpoolError, SpoolOptions,
    frame::{self, Parsed},
    segment::{Index, Segment, first_of},
};
use bytes::Bytes;
use footplate_types::SpoolId;
use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const ID_FILE: &str = "id";

/// The files of one spool, opened for appending.
pub(super) struct Journal {
    dir: PathBuf,
    options: SpoolOptions,
    file: File,
    /// Highest offset on disk.
    durable: u64,
    index: Arc<Mutex<Index>>,
    /// Locked: one journal a folder. The kernel frees it when this is gone, however that came.
    _lock: File,
}

impl Journal {
    pub(super) fn open(dir: &Path, options: SpoolOptions, mint: impl FnOnce() -> SpoolId) -> Result<(SpoolId, Self), SpoolError> {
        fs::create_dir_all(dir).map_err(|error| SpoolError::disk("create folder", &error))?;
        let lock = lock(dir)?;
        let id = open_id(dir, mint)?;
        let mut firsts: Vec<u64> = fs::read_dir(dir)
            .map_err(|error| SpoolError::disk("list", &error))?
            .filter_map(|entry| first_of(&entry.ok()?.path()))
            .collect();
        firsts.sort_unstable();
        let mut index = Index::default();
        for (at, first) in firsts.iter().enumerate() {
            let mut segment = Segment::new(dir, *first);
            match firsts.get(at + 1) {
                Some(next) => {
                    segment.last = next - 1;
                    segment.bytes = fs::metadata(&segment.path).map_err(|error| SpoolError::disk("look at", &error))?.len();
                }
                None => recover_tail(&mut segment, options.max_record_bytes)?,
            }
            index.segments.push_back(segment);
        }
        if index.segments.is_empty() {
            index.segments.push_back(create_segment(dir, 1)?.1);
        }
        let active = index.segments.back().map(|segment| (segment.path.clone(), segment.last));
        let (path, durable) = active.ok_or(SpoolError::Closed)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(|error| SpoolError::disk("open", &error))?;
        Ok((id, Self { dir: dir.to_owned(), options, file, durable, index: Arc::new(Mutex::new(index)), _lock: lock }))
    }

    pub(super) fn index(&self) -> Arc<Mutex<Index>> {
        self.index.clone()
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    fn locked(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes every group that fits and syncs once. One answer a group: its last offset, or why it was refused.
    pub(super) fn commit(&mut self, groups: Vec<Vec<Bytes>>) -> Vec<Result<u64, SpoolError>> {
        let mut held = self.locked().bytes();
        let mut buffer = Vec::new();
        let mut starts = Vec::new();
        let mut next = self.durable;
        let mut answers = Vec::with_capacity(groups.len());
        for group in groups {
            let size: u64 = group.iter().map(|payload| frame::framed_bytes(payload.len())).sum();
            if held + size > self.options.max_bytes {
                answers.push(Err(SpoolError::Full { held, most: self.options.max_bytes }));
                continue;
            }
            held += size;
            for payload in group {
                next += 1;
                starts.push((next, buffer.len() as u64));
                frame::encode(&mut buffer, next, self.durable, &payload);
            }
            answers.push(Ok(next));
        }
        if buffer.is_empty() {
            return answers;
        }
        if let Err(error) = self.write(&buffer, next, &starts) {
            for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(error.clone());
            }
        }
        answers
    }

    fn write(&mut self, buffer: &[u8], last: u64, starts: &[(u64, u64)]) -> Result<(), SpoolError> {
        let active_bytes = self.locked().segments.back().map_or(0, |segment| segment.bytes);
        if active_bytes > 0 && active_bytes + buffer.len() as u64 > self.options.segment_bytes {
            self.rotate()?;
        }
        let written = self.file.write_all(buffer).and_then(|()| if self.options.sync { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            let failed = SpoolError::disk("append", &error);
            // What the system holds of these bytes is unknown after a failed write or sync: cut them off and never append to this file again.
            let keep = self.locked().segments.back().map_or(0, |segment| segment.bytes);
            let _ = self.file.set_len(keep);
            if keep > 0 {
                let _ = self.rotate();
            }
            return Err(failed);
        }
        self.durable = last;
        if let Some(segment) = self.locked().segments.back_mut() {
            let base = segment.bytes;
            for (offset, position) in starts {
                segment.mark(*offset, base + position);
            }
            segment.bytes += buffer.len() as u64;
            segment.last = last;
        }
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), SpoolError> {
        let (file, segment) = create_segment(&self.dir, self.durable + 1)?;
        self.file = file;
        self.locked().segments.push_back(segment);
        Ok(())
    }

    /// Deletes every segment that holds nothing above `up_to`. The newest file stays, since its name keeps the count.
    pub(super) fn trim(&mut self, up_to: u64) -> Result<(), SpoolError> {
        let used_up = self.locked().segments.back().is_some_and(|segment| segment.bytes > 0 && segment.last <= up_to);
        if used_up {
            self.rotate()?;
        }
        loop {
            let gone = {
                let mut index = self.locked();
                let oldest = index.segments.len() > 1 && index.segments.front().is_some_and(|segment| segment.last <= up_to);
                if oldest { index.segments.pop_front() } else { None }
            };
            let Some(segment) = gone else { return Ok(()) };
            fs::remove_file(&segment.path).map_err(|error| SpoolError::disk("remove segment", &error))?;
        }
    }
}

fn lock(dir: &Path) -> Result<File, SpoolError> {
    let refused = |error: &std::io::Error| SpoolError::disk("lock", error);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(dir.join("lock")).map_err(|error| refused(&error))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SpoolError::InUse),
        Err(error) => Err(refused(&error.into())),
    }
}

fn open_id(dir: &Path, mint: impl FnOnce() -> SpoolId) -> Result<SpoolId, SpoolError> {
    let path = dir.join(ID_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => SpoolId::parse(text.trim()).map_err(|error| SpoolError::Disk { doing: "read id", message: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = mint();
            crate::durable::write(&path, id.to_string().as_bytes()).map_err(|error| SpoolError::disk("write id", &error))?;
            Ok(id)
        }
        Err(error) => Err(SpoolError::disk("read id", &error)),
    }
}

fn create_segment(dir: &Path, first: u64) -> Result<(File, Segment), SpoolError> {
    let segment = Segment::new(dir, first);
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&segment.path)
        .and_then(|file| file.set_len(0).map(|()| file))
        .map_err(|error| SpoolError::disk("create segment", &error))?;
    crate::durable::sync_dir(dir).map_err(|error| SpoolError::disk("sync folder", &error))?;
    Ok((file, segment))
}

/// Walks the newest segment, cuts a torn tail, and keeps whatever was acknowledged.
fn recover_tail(segment: &mut Segment, longest: usize) -> Result<(), SpoolError> {
    let bytes = fs::read(&segment.path).map_err(|error| SpoolError::disk("read tail", &error))?;
    let mut at = 0;
    while at < bytes.len() {
        if let Parsed::Frame(frame, end) = frame::parse(&bytes, at, longest) {
            segment.mark(frame.offset, at as u64);
            segment.last = frame.offset;
            at = end;
            continue;
        }
        match acknowledged_behind(&bytes, at, segment.last + 1, longest) {
            Some(next) => {
                tracing::error!(segment = %segment.path.display(), at, next, "damaged record in the middle of a spool: skipped");
                at = next;
            }
            None => break,
        }
    }
    segment.bytes = at as u64;
    if at < bytes.len() {
        tracing::warn!(segment = %segment.path.display(), cut = bytes.len() - at, "torn tail cut; none of it had been acknowledged");
        let file = OpenOptions::new().write(true).open(&segment.path).map_err(|error| SpoolError::disk("open tail", &error))?;
        file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(|error| SpoolError::disk("cut tail", &error))?;
    }
    Ok(())
}

/// Where to go on behind a bad frame that was acknowledged: a later frame proves it by its `durable`.
fn acknowledged_behind(bytes: &[u8], at: usize, missing: u64, longest: usize) -> Option<usize> {
    let next = frame::find_next(bytes, at, longest)?;
    let mut look = next;
    while let Parsed::Frame(frame, end) = frame::parse(bytes, look, longest) {
        if frame.durable >= missing {
            return Some(next);
        }
        look = end;
    }
    None
}
