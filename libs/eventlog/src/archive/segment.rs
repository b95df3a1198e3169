//! A segment: a piece of the ledger as it stood in the broker, sealed and chained to the one before. Pure: what is stored where is decided by
//! others.

use super::frame::{self, FrameError};
use crate::port::Stored;
use bytes::Bytes;
use footplate_types::{Digest, Timestamp};
use serde::{Deserialize, Serialize};

/// The first line of a segment.
const FORM: &str = "footplate segment 1\n";
/// A segment is sealed when its body has this many bytes.
pub const SEGMENT_BYTES: usize = 16 << 20;
/// The longest body that is read: the bound, and one event of the greatest size with its headers beyond it.
const BODY_MAX: usize = SEGMENT_BYTES + (4 << 20);

/// What a segment says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its place in the chain, from 1.
    pub number: u32,
    /// When the ledger was made that it is of.
    pub ledger: Timestamp,
    /// The first sequence that it covers: the one after the segment before.
    pub first: u64,
    /// The last sequence that it covers.
    pub last: u64,
    /// How many messages it holds: fewer than it covers where some had gone before it was written.
    pub count: u64,
    /// The digest of the segment before; absent of the first.
    pub previous: Option<Digest>,
}

/// A link of the chain, as the index keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What the segment says of itself.
    #[serde(flatten)]
    pub head: Head,
    /// The segment's own digest.
    pub digest: Digest,
    /// The size of the sealed segment.
    pub bytes: u64,
    /// When the broker stored its last message.
    pub ends: Timestamp,
}

/// Why a segment cannot be used. Each names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Its bytes are not what was written.
    #[error("segment {name} of the ledger is damaged: {why}")]
    Damaged {
        /// Which.
        name: String,
        /// In what way.
        why: String,
    },
    /// It is whole, and does not belong where it stands.
    #[error("segment {name} of the ledger does not follow the one before: its {field} is {found}, must be {wanted}")]
    Unchained {
        /// Which.
        name: String,
        /// What differs.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it must say.
        wanted: String,
    },
    /// The chain names it and it is not there.
    #[error("segment {name} of the ledger is missing")]
    Missing {
        /// Which.
        name: String,
    },
}

/// The name of the segment that begins at `first`: names sort as the ledger does, and who writes the same place twice meets the first.
pub fn name(ledger: Timestamp, first: u64) -> String {
    format!("{}/{first:020}", ledger.as_nanos())
}

/// Collects messages until they are sealed. Bounded: it is [`Builder::is_full`] soon after its bound.
#[derive(Debug)]
pub struct Builder {
    head: Head,
    body: Vec<u8>,
    ends: Timestamp,
    bytes_max: usize,
}

impl Builder {
    /// Begins the segment after `before` of a ledger; it is full at `bytes_max` bytes or soon after.
    pub fn after(ledger: Timestamp, before: Option<&Entry>, bytes_max: usize) -> Self {
        let first = before.map_or(1, |entry| entry.head.last + 1);
        let number = before.map_or(1, |entry| entry.head.number + 1);
        let previous = before.map(|entry| entry.digest);
        let head = Head { number, ledger, first, last: first - 1, count: 0, previous };
        Self { head, body: Vec::new(), ends: Timestamp::default(), bytes_max: bytes_max.clamp(1, SEGMENT_BYTES) }
    }

    /// The sequence to read on from.
    pub fn next(&self) -> u64 {
        self.head.last + 1
    }

    /// The sequence that it begins at.
    pub fn first(&self) -> u64 {
        self.head.first
    }

    /// Whether it is to be sealed.
    pub fn is_full(&self) -> bool {
        self.body.len() >= self.bytes_max
    }

    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.head.count == 0
    }

    /// Takes the next message in. One that is not after the last is left out.
    pub fn push(&mut self, stored: &Stored) {
        if stored.sequence <= self.head.last {
            return;
        }
        self.head.last = stored.sequence;
        self.head.count += 1;
        self.ends = stored.recorded_at;
        write(&mut self.body, stored);
    }

    /// Seals what was taken in.
    ///
    /// # Errors
    /// A body that cannot be compressed.
    pub fn seal(&self) -> Result<(Entry, Bytes), SegmentError> {
        let sealed = frame::seal(FORM, &self.head, &self.body);
        let (bytes, digest) = sealed.map_err(|error| damaged(&name(self.head.ledger, self.head.first), &error))?;
        Ok((Entry { head: self.head.clone(), digest, bytes: bytes.len() as u64, ends: self.ends }, bytes))
    }
}

fn write(body: &mut Vec<u8>, stored: &Stored) {
    body.extend_from_slice(&stored.sequence.to_le_bytes());
    body.extend_from_slice(&stored.recorded_at.as_nanos().to_le_bytes());
    put(body, stored.subject.as_bytes());
    body.extend_from_slice(&(stored.headers.len() as u32).to_le_bytes());
    for (name, value) in &stored.headers {
        put(body, name.as_bytes());
        put(body, value.as_bytes());
    }
    put(body, &stored.payload);
}

/// A digest over all of a message: two of one digest are the same in every byte.
pub(super) fn fingerprint(stored: &Stored) -> Digest {
    let mut bytes = Vec::with_capacity(stored.payload.len() + 1_024);
    write(&mut bytes, stored);
    Digest::of(&bytes)
}

fn put(body: &mut Vec<u8>, part: &[u8]) {
    body.extend_from_slice(&(part.len() as u32).to_le_bytes());
    body.extend_from_slice(part);
}

fn damaged(name: &str, error: &FrameError) -> SegmentError {
    SegmentError::Damaged { name: name.to_owned(), why: error.to_string() }
}

/// A segment that was read, its messages unpacked as they are asked for.
#[derive(Debug)]
pub struct Segment {
    entry: Entry,
    body: Bytes,
    /// Sequence and place in the body of each message.
    places: Vec<(u64, usize)>,
}

impl Segment {
    /// Reads a sealed segment and looks whether it follows `before` (the first of a ledger when there is none).
    ///
    /// # Errors
    /// Bytes that were changed in any way, and a segment of another place.
    pub fn open(ledger: Timestamp, before: Option<&Entry>, bytes: &[u8]) -> Result<Self, SegmentError> {
        let first = before.map_or(1, |entry| entry.head.last + 1);
        let name = name(ledger, first);
        let (head, body, digest) = frame::open::<Head>(FORM, bytes, BODY_MAX).map_err(|error| damaged(&name, &error))?;
        follows(&name, ledger, before, &head)?;
        let content = |why: &str| SegmentError::Damaged { name: name.clone(), why: why.to_owned() };
        let mut places = Vec::with_capacity(usize::try_from(head.count).unwrap_or(0).min(BODY_MAX / 16));
        let mut at = 0;
        let mut last = head.first - 1;
        let mut ends = Timestamp::default();
        while at < body.len() {
            let (stored, next) = message(&body, at).ok_or_else(|| content("a message in it has no end"))?;
            if stored.sequence <= last || stored.sequence > head.last {
                return Err(content("its messages are not in order"));
            }
            places.push((stored.sequence, at));
            (last, ends, at) = (stored.sequence, stored.recorded_at, next);
        }
        if places.len() as u64 != head.count {
            return Err(content("it holds another number of messages than it says"));
        }
        Ok(Self { entry: Entry { head, digest, bytes: bytes.len() as u64, ends }, body, places })
    }

    /// Its link of the chain.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Its messages from sequence `from` on.
    pub fn messages(&self, from: u64) -> impl Iterator<Item = Stored> + '_ {
        self.matching(from, |_| true)
    }

    /// Those of them whose subject `wanted` takes.
    pub fn matching<'a>(&'a self, from: u64, wanted: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = Stored> + 'a {
        let begin = self.places.partition_point(|(sequence, _)| *sequence < from);
        let raw = self.places[begin..].iter().filter_map(|(_, at)| message(&self.body, *at).map(|(raw, _)| raw));
        raw.filter(move |raw| wanted(raw.subject)).map(|raw| raw.stored())
    }
}

/// Whether a head stands rightly after `before`.
pub(super) fn follows(name: &str, ledger: Timestamp, before: Option<&Entry>, head: &Head) -> Result<(), SegmentError> {
    let first = before.map_or(1, |entry| entry.head.last + 1);
    let number = before.map_or(1, |entry| entry.head.number + 1);
    let previous = before.map(|entry| entry.digest);
    let shown = |digest: Option<Digest>| digest.map_or("none".to_owned(), |digest| digest.to_string());
    let wrong = |field, found: String, wanted: String| Err(SegmentError::Unchained { name: name.to_owned(), field, found, wanted });
    if head.ledger != ledger {
        return wrong("ledger", head.ledger.to_string(), ledger.to_string());
    }
    if head.previous != previous {
        return wrong("previous digest", shown(head.previous), shown(previous));
    }
    if head.first != first {
        return wrong("first sequence", head.first.to_string(), first.to_string());
    }
    if head.number != number {
        return wrong("number", head.number.to_string(), number.to_string());
    }
    if head.last < head.first || head.count > head.last - head.first + 1 {
        return wrong("last sequence", head.last.to_string(), format!("at least {}", head.first + head.count.max(1) - 1));
    }
    Ok(())
}

/// A message as it lies in the body.
struct Raw<'a> {
    sequence: u64,
    recorded_at: Timestamp,
    subject: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    payload: &'a [u8],
}

impl Raw<'_> {
    /// A copy: one small message that somebody keeps must not keep the whole body.
    fn stored(self) -> Stored {
        Stored {
            sequence: self.sequence,
            subject: self.subject.to_owned(),
            headers: self.headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            payload: Bytes::copy_from_slice(self.payload),
            recorded_at: self.recorded_at,
        }
    }
}

/// The message at a place, and the place of the next.
fn message(body: &[u8], at: usize) -> Option<(Raw<'_>, usize)> {
    let mut at = at;
    let mut take = |most: usize| -> Option<&[u8]> {
        let from = at;
        at = at.checked_add(most)?;
        body.get(from..at)
    };
    let sequence = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let nanos = i64::from_le_bytes(take(8)?.try_into().ok()?);
    let subject = text(&mut take)?;
    let count = length(&mut take)?;
    let mut headers = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        headers.push((text(&mut take)?, text(&mut take)?));
    }
    let most = length(&mut take)?;
    let payload = take(most)?;
    Some((Raw { sequence, recorded_at: Timestamp::from_nanos(nanos), subject, headers, payload }, at))
}

fn length<'a>(take: &mut impl FnMut(usize) -> Option<&'a [u8]>) -> Option<usize> {
    let bytes = take(4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

fn text<'a>(take: &mut impl FnMut(usize) -> Option<&'a [u8]>) -> Option<&'a str> {
    let most = length(take)?;
    std::str::from_utf8(take(most)?).ok()
}
