//! The log: one total order, expectations, atomic batches. What is acknowledged stays; an id that is seen again within the window may be
//! taken for a repeat, and nobody may count on it.

use crate::clock::Time;
use footplate_events::{Envelope, Recorded, Subject};
use footplate_types::{EventId, ServiceName, Timestamp};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a publication expects.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// The subject's own last sequence.
    Own(u64),
    /// The last sequence of a service's term subject.
    Term(ServiceName, u64),
    /// Nothing (only a planted fault asks so little).
    Nothing,
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    events: Vec<Rc<Recorded>>,
    last: BTreeMap<Subject, u64>,
    /// Ids of single publications, when they came, and what was answered.
    seen: BTreeMap<EventId, (Time, u64)>,
    /// Whether the broker drops repeats at all.
    pub(crate) drops_repeats: bool,
}

impl Ledger {
    const WINDOW_MS: Time = 120_000;

    /// The last sequence.
    pub(crate) fn end(&self) -> u64 {
        self.events.len() as u64
    }

    /// What stands after `position`.
    pub(crate) fn after(&self, position: u64) -> &[Rc<Recorded>] {
        self.events.get(position as usize..).unwrap_or_default()
    }

    /// One event.
    pub(crate) fn get(&self, sequence: u64) -> Option<&Rc<Recorded>> {
        self.events.get(sequence.checked_sub(1)? as usize)
    }

    /// The last sequence of a subject; 0 when there is none.
    pub(crate) fn last_of(&self, subject: &Subject) -> u64 {
        self.last.get(subject).copied().unwrap_or(0)
    }

    /// Whether an event of this id stands on its subject.
    pub(crate) fn find(&self, subject: &Subject, id: EventId) -> Option<u64> {
        let is_it = |recorded: &&Rc<Recorded>| recorded.envelope.id == id && recorded.envelope.subject == *subject;
        self.events.iter().find(is_it).map(|recorded| recorded.sequence)
    }

    /// Appends all or nothing; `Err` when an expectation is not met. The sequence of the last one.
    pub(crate) fn append(&mut self, now: Time, wall_ms: i64, expect: &Expect, envelopes: &[Envelope]) -> Result<u64, ()> {
        if let ([single], true) = (envelopes, self.drops_repeats)
            && let Some((at, sequence)) = self.seen.get(&single.id)
            && now - at < Self::WINDOW_MS
        {
            return Ok(*sequence);
        }
        let is_met = match expect {
            Expect::Own(sequence) => envelopes.iter().all(|envelope| self.last_of(&envelope.subject) == *sequence),
            Expect::Term(service, sequence) => self.last_of(&Subject::term(service)) == *sequence,
            Expect::Nothing => true,
        };
        if !is_met {
            return Err(());
        }
        for envelope in envelopes {
            let sequence = self.end() + 1;
            self.last.insert(envelope.subject.clone(), sequence);
            let recorded_at = Timestamp::from_millis(wall_ms);
            self.events.push(Rc::new(Recorded { sequence, recorded_at, envelope: envelope.clone() }));
        }
        if let [single] = envelopes {
            self.seen.insert(single.id, (now, self.end()));
        }
        Ok(self.end())
    }
}
