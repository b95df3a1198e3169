//! One stream in memory: sequences, expectations, limits.

use crate::port::{Bounds, Expect, Message, Page, PublishError, Stored, StreamName, subject_matches};
use footplate_types::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};

/// How long a message id is remembered, where de-duplication is on.
const DUPLICATE_WINDOW_MS: u64 = 120_000;

/// What an append did.
pub(super) struct Appended {
    pub(super) last: u64,
    pub(super) stored: Vec<Stored>,
}

pub(super) struct Log {
    created: Timestamp,
    one_a_subject: bool,
    messages: BTreeMap<u64, Stored>,
    last: u64,
    subjects: HashMap<String, u64>,
    ids: HashMap<String, (u64, Timestamp)>,
    bytes: u64,
}

impl Log {
    pub(super) fn new(name: StreamName, created: Timestamp) -> Self {
        Self {
            created,
            one_a_subject: name.keeps_last_only(),
            messages: BTreeMap::new(),
            last: 0,
            subjects: HashMap::new(),
            ids: HashMap::new(),
            bytes: 0,
        }
    }

    /// Stores all or none.
    pub(super) fn append(&mut self, messages: &[(Message, Expect)], now: Timestamp, deduplicate: bool) -> Result<Appended, PublishError> {
        if deduplicate && let Some(known) = self.duplicate(messages, now) {
            // A lone copy is acknowledged with the first one's place, a batch with a copy in it is refused.
            return match messages.len() {
                1 => Ok(Appended { last: known, stored: Vec::new() }),
                _ => Err(PublishError::Refused("the batch holds a message that is stored already".to_owned())),
            };
        }
        let mut written: HashSet<&str> = HashSet::new();
        for (message, expect) in messages {
            let (looked_at, expected) = match expect {
                Expect::Any => (None, 0),
                Expect::Subject(sequence) => (Some(message.subject.as_str()), *sequence),
                Expect::Other { subject, sequence } => (Some(subject.as_str()), *sequence),
            };
            if let Some(subject) = looked_at
                && (written.contains(subject) || self.last_sequence(subject) != expected)
            {
                return Err(PublishError::Conflict);
            }
            written.insert(&message.subject);
        }
        let stored = messages.iter().map(|(message, _)| self.push(message, now)).collect();
        Ok(Appended { last: self.last, stored })
    }

    fn duplicate(&self, messages: &[(Message, Expect)], now: Timestamp) -> Option<u64> {
        messages.iter().find_map(|(message, _)| {
            let (sequence, at) = self.ids.get(message_id(message)?)?;
            (now.millis_since(*at) < DUPLICATE_WINDOW_MS).then_some(*sequence)
        })
    }

    fn push(&mut self, message: &Message, now: Timestamp) -> Stored {
        self.last += 1;
        let stored = Stored {
            sequence: self.last,
            subject: message.subject.clone(),
            headers: message.headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            payload: message.payload.clone(),
            recorded_at: now,
        };
        if let Some(id) = message_id(message) {
            self.ids.insert(id.to_owned(), (self.last, now));
        }
        let before = self.subjects.insert(stored.subject.clone(), self.last);
        if self.one_a_subject
            && let Some(old) = before.and_then(|sequence| self.messages.remove(&sequence))
        {
            self.bytes -= size(&old);
        }
        self.bytes += size(&stored);
        self.messages.insert(self.last, stored.clone());
        stored
    }

    fn last_sequence(&self, subject: &str) -> u64 {
        self.subjects.get(subject).copied().unwrap_or(0)
    }

    pub(super) fn last_on(&self, subject: &str) -> Option<Stored> {
        self.subjects.get(subject).and_then(|sequence| self.messages.get(sequence)).cloned()
    }

    pub(super) fn page(&self, filter: &str, from: u64, most: usize) -> Page {
        let mut matching = self.messages.range(from..).map(|(_, stored)| stored).filter(|stored| subject_matches(filter, &stored.subject));
        let messages: Vec<Stored> = matching.by_ref().take(most).cloned().collect();
        let next = matching.next().map(|stored| stored.sequence);
        Page { messages, next }
    }

    /// At most `most` messages of several filters, from `from` on.
    pub(super) fn matching(&self, filters: &[String], from: u64, most: usize) -> Vec<Stored> {
        let wanted = |stored: &&Stored| crate::port::any_matches(filters, &stored.subject);
        self.messages.range(from..).map(|(_, stored)| stored).filter(wanted).take(most).cloned().collect()
    }

    /// The message at a sequence, to see whether it is still the one that was read.
    pub(super) fn stamp(&self, sequence: u64) -> Option<Timestamp> {
        self.messages.get(&sequence).map(|stored| stored.recorded_at)
    }

    pub(super) fn bounds(&self) -> Bounds {
        let first = self.messages.keys().next().copied().unwrap_or(self.last + 1);
        Bounds { first, last: self.last, messages: self.messages.len() as u64, bytes: self.bytes, created: self.created }
    }

    pub(super) fn purge(&mut self, filter: Option<&str>, below: u64) {
        self.retain(|stored| stored.sequence >= below || filter.is_some_and(|filter| !subject_matches(filter, &stored.subject)));
    }

    pub(super) fn lose_last(&mut self, count: u64) {
        let last = self.last.saturating_sub(count);
        self.retain(|stored| stored.sequence <= last);
        self.ids.retain(|_, (sequence, _)| *sequence <= last);
        self.last = last;
    }

    pub(super) fn remove(&mut self, sequence: u64) {
        self.retain(|stored| stored.sequence != sequence);
    }

    fn retain(&mut self, keep: impl Fn(&Stored) -> bool) {
        self.messages.retain(|_, stored| keep(stored));
        self.bytes = self.messages.values().map(size).sum();
        self.subjects.clear();
        for stored in self.messages.values() {
            self.subjects.insert(stored.subject.clone(), stored.sequence);
        }
    }
}

fn message_id(message: &Message) -> Option<&str> {
    message.headers.iter().find(|(name, _)| name == "Nats-Msg-Id").map(|(_, id)| id.as_str())
}

fn size(stored: &Stored) -> u64 {
    let headers: usize = stored.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    (stored.subject.len() + headers + stored.payload.len()) as u64
}
