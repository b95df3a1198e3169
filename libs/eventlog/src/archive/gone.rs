//! What has left the broker: lists of aggregates whose events stand in segments alone. A list is written before anything is removed.

use super::frame::{self, FrameError};
use bytes::Bytes;
use footplate_types::{Digest, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The first line of a list.
const FORM: &str = "footplate gone 1\n";
/// The longest list that is read.
const BODY_MAX: usize = 16 << 20;

/// An aggregate that leaves the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leaving {
    /// Its subject.
    pub(super) subject: String,
    /// The last sequence of it that leaves.
    pub(super) through: u64,
    /// How many events leave.
    pub(super) events: u64,
    /// The first segment that holds one of them.
    pub(super) first_segment: u32,
    /// The last one.
    pub(super) last_segment: u32,
    /// Whether only these events are lacking, which a hand removed, and the others up to `through` stay in the broker.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) lacking: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    ledger: Timestamp,
    number: u32,
    count: usize,
    events: u64,
}

/// The name of a list of a ledger.
pub(super) fn name(ledger: Timestamp, number: u32) -> String {
    format!("{}/gone/{number:010}", ledger.as_nanos())
}

/// Seals a list.
pub(super) fn seal(ledger: Timestamp, number: u32, list: &[Leaving]) -> Result<Bytes, FrameError> {
    let head = Head { ledger, number, count: list.len(), events: list.iter().map(|leaving| leaving.events).sum() };
    let body = serde_json::to_vec(list).map_err(|error| FrameError::Content(error.to_string()))?;
    if body.len() > BODY_MAX {
        return Err(FrameError::Content(format!("it has {} bytes, and none over {BODY_MAX} is read", body.len())));
    }
    frame::seal(FORM, &head, &body).map(|(bytes, _)| bytes)
}

/// Reads a list, which must be the one of that ledger and number.
pub(super) fn open(ledger: Timestamp, number: u32, bytes: &[u8]) -> Result<Vec<Leaving>, FrameError> {
    let (head, body, _) = frame::open::<Head>(FORM, bytes, BODY_MAX)?;
    let list: Vec<Leaving> = serde_json::from_slice(&body).map_err(|error| FrameError::Content(error.to_string()))?;
    if (head.ledger, head.number, head.count) != (ledger, number, list.len()) {
        return Err(FrameError::Content("it is another list".to_owned()));
    }
    Ok(list)
}

/// Where the events of an aggregate that has left are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) through: u64,
    pub(super) first_segment: u32,
    pub(super) last_segment: u32,
    /// How many of its events are named, where others up to `through` still stand in the broker.
    pub(super) lacking: Option<u64>,
}

/// All that has left, by the first bytes of each subject's digest: a fraction of what the broker kept of it. Two subjects of one digest cost a look
/// into segments that hold nothing of one of them, no more.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone {
    places: HashMap<u64, Place>,
    events: u64,
    horizon: u64,
}

impl Gone {
    pub(super) fn add(&mut self, list: &[Leaving]) {
        for leaving in list {
            let new = Place {
                through: leaving.through,
                first_segment: leaving.first_segment,
                last_segment: leaving.last_segment,
                lacking: Some(0),
            };
            let place = self.places.entry(key(&leaving.subject)).or_insert(new);
            place.through = place.through.max(new.through);
            place.first_segment = place.first_segment.min(new.first_segment);
            place.last_segment = place.last_segment.max(new.last_segment);
            place.lacking = place.lacking.filter(|_| leaving.lacking).map(|known| known + leaving.events);
            self.events += leaving.events;
            self.horizon = self.horizon.max(leaving.through);
        }
    }

    pub(super) fn place(&self, subject: &str) -> Option<Place> {
        if self.places.is_empty() {
            return None;
        }
        self.places.get(&key(subject)).copied()
    }

    /// How many events have left or may leave at any moment.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// How many aggregates.
    pub(super) fn aggregates(&self) -> u64 {
        self.places.len() as u64
    }

    /// The highest sequence among them.
    pub(super) fn horizon(&self) -> u64 {
        self.horizon
    }
}

fn key(subject: &str) -> u64 {
    let digest = Digest::of(subject.as_bytes());
    digest.as_bytes().iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte))
}
