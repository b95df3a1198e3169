//! Given / when / then for pure cores: a tiny ledger in memory that numbers events and folds them.

use crate::Evolve;
use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_types::{EventId, PrincipalId, Timestamp};

/// A ledger in memory for tests: gives sequences, times a second apart, and ids counted from 1.
#[derive(Clone, Debug, Default)]
pub struct Story {
    recorded: Vec<Recorded>,
    /// Beyond the second that passes with each event, in milliseconds.
    passed: i64,
}

impl Story {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records one event and returns it; its cause is the event before.
    pub fn record(&mut self, subject: Subject, event: impl Into<Event>) -> &Recorded {
        let sequence = self.recorded.len() as u64 + 1;
        let id = |n: u64| EventId::derived(&[b"story", &n.to_be_bytes()]);
        let time = Timestamp::from_millis(sequence as i64 * 1_000 + self.passed);
        let envelope = Envelope {
            id: id(sequence),
            subject,
            event: event.into(),
            source: "story".to_owned(),
            time,
            actor: PrincipalId::parse("story").expect("a literal that is valid"),
            correlation: id(1),
            causation: (sequence > 1).then(|| id(sequence - 1)),
            trace: None,
        };
        self.recorded.push(Recorded { sequence, recorded_at: time, envelope });
        &self.recorded[self.recorded.len() - 1]
    }

    /// Lets time pass before the next event, beyond the second that always does.
    pub fn pass(&mut self, millis: u32) {
        self.passed += i64::from(millis);
    }

    /// Everything so far, in order.
    pub fn recorded(&self) -> &[Recorded] {
        &self.recorded
    }

    /// The last sequence; 0 when empty.
    pub fn sequence(&self) -> u64 {
        self.recorded.len() as u64
    }

    /// Folds everything so far into a fresh state.
    pub fn folded<S: Evolve + Default>(&self) -> S {
        let mut state = S::default();
        for recorded in &self.recorded {
            state.evolve(recorded);
        }
        state
    }
}
