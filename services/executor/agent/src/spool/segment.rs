//! Which segment files a spool has, where records stand in them, and how they are read. Never writes.

use super::{
    Record, SpoolError,
    frame::{self, Parsed},
};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Bytes between two remembered positions.
const MARK_EVERY_BYTES: u64 = 64 << 10;
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// One segment: a file named after its first offset.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) first: u64,
    /// The highest offset in it; `first - 1` when empty.
    pub(super) last: u64,
    pub(super) path: PathBuf,
    /// Bytes that are on disk for certain.
    pub(super) bytes: u64,
    /// Some offsets and where their frames begin.
    pub(super) marks: BTreeMap<u64, u64>,
}

impl Segment {
    pub(super) fn new(dir: &Path, first: u64) -> Self {
        Self { first, last: first - 1, path: dir.join(format!("{first:020}.seg")), bytes: 0, marks: BTreeMap::new() }
    }

    pub(super) fn mark(&mut self, offset: u64, position: u64) {
        let far = self.marks.values().next_back().is_none_or(|last| position >= last + MARK_EVERY_BYTES);
        if far {
            self.marks.insert(offset, position);
        }
    }

    /// Where to begin reading for `offset`.
    fn position(&self, offset: u64) -> u64 {
        self.marks.range(..=offset).next_back().map_or(0, |(_, position)| *position)
    }
}

/// The first offset in a segment's file name.
pub(super) fn first_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".seg")?;
    name.parse().ok().filter(|first| *first > 0)
}

/// A segment as it was when it was looked up; it may have grown or gone since.
struct Found {
    path: PathBuf,
    position: u64,
    bytes: u64,
    first: u64,
    last: u64,
}

/// Every segment of a spool, oldest first; the last one is being written.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) segments: VecDeque<Segment>,
}

impl Index {
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    pub(super) fn first(&self) -> u64 {
        self.segments.front().map_or(1, |segment| segment.first)
    }

    /// The segment that holds `offset` or, when that is gone, the next one.
    fn find(&self, offset: u64) -> Option<Found> {
        let segment = self.segments.iter().find(|segment| segment.last >= offset && segment.bytes > 0)?;
        let position = segment.position(offset);
        Some(Found { path: segment.path.clone(), position, bytes: segment.bytes, first: segment.first, last: segment.last })
    }

    fn remember(&mut self, first: u64, offset: u64, position: u64) {
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.first == first) {
            segment.marks.insert(offset, position);
        }
    }
}

pub(super) fn read_from(index: &Mutex<Index>, offset: u64, max_bytes: usize, longest: usize) -> Result<Vec<Record>, SpoolError> {
    let locked = || index.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = Vec::new();
    let mut taken = 0;
    let mut wanted = offset.max(1);
    while taken < max_bytes {
        let Some(found) = locked().find(wanted) else { break };
        let before = out.len();
        let file = match File::open(&found.path) {
            Ok(file) => file,
            // Trimmed between the look and the open: what follows is in a later segment.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if locked().find(wanted).is_some_and(|again| again.path == found.path) {
                    return Err(SpoolError::disk("open for reading", &error));
                }
                continue;
            }
            Err(error) => return Err(SpoolError::disk("open for reading", &error)),
        };
        let stopped = read_segment(&file, &found, wanted, max_bytes - taken, longest, &mut out)?;
        taken += out[before..].iter().map(|record| record.payload.len().max(1)).sum::<usize>();
        if let Some((next, position)) = stopped {
            locked().remember(found.first, next, position);
            break;
        }
        wanted = found.last + 1;
    }
    Ok(out)
}

/// Reads records at or above `wanted`. Returns where to go on (offset, position) when `max_bytes` was reached before the end.
fn read_segment(
    file: &File,
    found: &Found,
    wanted: u64,
    max_bytes: usize,
    longest: usize,
    out: &mut Vec<Record>,
) -> Result<Option<(u64, u64)>, SpoolError> {
    let mut taken = 0;
    let mut position = found.position;
    let mut window = READ_BYTES;
    while position < found.bytes {
        let length = window.min((found.bytes - position) as usize);
        let mut buffer = vec![0u8; length];
        file.read_exact_at(&mut buffer, position).map_err(|error| SpoolError::disk("read", &error))?;
        let mut at = 0;
        while at < buffer.len() {
            match frame::parse(&buffer, at, longest) {
                Parsed::Frame(frame, end) => {
                    if frame.offset >= wanted {
                        if taken >= max_bytes {
                            return Ok(Some((frame.offset, position + at as u64)));
                        }
                        taken += frame.payload.len().max(1);
                        out.push(Record { offset: frame.offset, payload: frame.payload });
                    }
                    at = end;
                }
                Parsed::Short => break,
                Parsed::Bad => at = frame::find_next(&buffer, at, longest).unwrap_or(buffer.len()),
            }
        }
        if at == 0 && position + length as u64 >= found.bytes {
            break;
        }
        // A frame longer than the window: widen; else slide.
        window = if at == 0 { window * 2 } else { READ_BYTES };
        position += at as u64;
    }
    Ok(None)
}
