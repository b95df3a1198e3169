//! What this instance remembers of clients' sessions: a bounded part of what the store knows, the least recently used forgotten first.
//!
//! It never says more of a session than is durable. Of a session that it has forgotten it says nothing: who asks looks it up again.

use footplate_series::{SessionKey, SessionProgress};
use std::collections::BTreeMap;

/// What is remembered of one session.
#[derive(Clone, Debug)]
struct Known {
    progress: SessionProgress,
    /// Begun by its first batch, without a look into the store: a gap in it may be what an earlier life of this memory had noted.
    presumed_new: bool,
    /// Its place in the order of use.
    used: u64,
}

/// The memory of sessions' progress.
#[derive(Debug)]
pub(crate) struct Sessions {
    most: usize,
    known: BTreeMap<SessionKey, Known>,
    /// The order of use, the longest unused first: one entry for each of `known`.
    order: BTreeMap<u64, SessionKey>,
    uses: u64,
}

impl Sessions {
    /// An empty memory of at most `most` sessions, one at least.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), known: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Whether batch `n` is known to be durable; `None` when only the store can say.
    pub(crate) fn has(&mut self, key: &SessionKey, n: u64) -> Option<bool> {
        let known = self.used(key)?;
        let is_gap = n > known.progress.contiguous.saturating_add(1);
        match known.progress.has(n) {
            true => Some(true),
            false if known.presumed_new && is_gap => None,
            false => Some(false),
        }
    }

    /// Up to which number the session is durable; `None` when it is not remembered.
    pub(crate) fn contiguous(&mut self, key: &SessionKey) -> Option<u64> {
        self.used(key).map(|known| known.progress.contiguous)
    }

    /// Notes batch `n` as durable. Of a session that is not remembered only the first batch begins one: anything else would leave out what
    /// came before.
    pub(crate) fn note(&mut self, key: &SessionKey, n: u64) {
        if let Some(known) = self.used(key) {
            // Gaps beyond the bound are the store's to refuse: what is durable here is acknowledged by the call's success.
            let _ = known.progress.note(n);
        } else if n == 1 {
            let mut progress = SessionProgress::new(key.clone());
            let _ = progress.note(n);
            self.insert(progress, true);
        }
    }

    /// Takes over what the store has of a session, beside what was noted here while it was looked up.
    pub(crate) fn learn(&mut self, mut stored: SessionProgress) {
        if let Some(known) = self.known.get(&stored.key) {
            let noted = (stored.contiguous + 1..=known.progress.contiguous).chain(known.progress.beyond.iter().flat_map(|(a, b)| *a..=*b));
            for n in noted {
                let _ = stored.note(n);
            }
        }
        self.insert(stored, false);
    }

    fn used(&mut self, key: &SessionKey) -> Option<&mut Known> {
        let known = self.known.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.order.remove(&known.used) {
            self.order.insert(self.uses, key);
        }
        known.used = self.uses;
        Some(known)
    }

    fn insert(&mut self, progress: SessionProgress, presumed_new: bool) {
        self.uses += 1;
        let key = progress.key.clone();
        let known = Known { progress, presumed_new, used: self.uses };
        if let Some(former) = self.known.insert(key.clone(), known) {
            self.order.remove(&former.used);
        }
        self.order.insert(self.uses, key);
        while self.known.len() > self.most
            && let Some((_, longest_unused)) = self.order.pop_first()
        {
            self.known.remove(&longest_unused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_series::SeriesSource;
    use footplate_types::{AttemptNumber, Rank, RunId, SessionId};

    fn key(byte: u8) -> SessionKey {
        let source = SeriesSource::Run(RunId::from_bytes([7; 16]));
        SessionKey { source, attempt: AttemptNumber(0), rank: Rank(0), session: SessionId::from_bytes([byte; 16]) }
    }

    fn stored(byte: u8, contiguous: u64) -> SessionProgress {
        SessionProgress { contiguous, ..SessionProgress::new(key(byte)) }
    }

    #[test]
    fn however_a_session_comes_in_the_memory_holds_no_more_than_its_bound() {
        let mut sessions = Sessions::new(3);
        for byte in 0..100 {
            sessions.note(&key(byte), 1);
            sessions.learn(stored(100 + byte, 5));
            sessions.note(&key(byte), 2);
            let _ = sessions.contiguous(&key(byte));
            assert!(sessions.known.len() <= 3 && sessions.order.len() == sessions.known.len());
        }
    }

    #[test]
    fn a_session_in_use_stays_and_the_longest_unused_goes_whatever_its_key() {
        let mut sessions = Sessions::new(2);
        // The lowest key of all: an order of keys would drop it each time.
        sessions.note(&key(0), 1);
        for byte in 1..50 {
            sessions.note(&key(byte), 1);
            sessions.note(&key(0), u64::from(byte) + 1);
        }
        assert_eq!(sessions.contiguous(&key(0)), Some(50));
        assert_eq!(sessions.contiguous(&key(49)), Some(1));
        assert_eq!(sessions.contiguous(&key(48)), None);
    }

    #[test]
    fn a_forgotten_session_is_asked_about_and_never_begun_from_zero() {
        let mut sessions = Sessions::new(1);
        sessions.learn(stored(1, 5));
        sessions.note(&key(2), 1);
        sessions.note(&key(1), 6);
        assert_eq!((sessions.has(&key(1), 7), sessions.contiguous(&key(1))), (None, None));
        sessions.learn(stored(1, 6));
        assert_eq!((sessions.has(&key(1), 6), sessions.has(&key(1), 7), sessions.contiguous(&key(1))), (Some(true), Some(false), Some(6)));
    }

    #[test]
    fn a_gap_after_a_first_batch_that_was_repeated_is_looked_up() {
        let mut sessions = Sessions::new(4);
        // Sent again after the session had come to 5 and was forgotten.
        sessions.note(&key(1), 1);
        assert_eq!((sessions.has(&key(1), 1), sessions.has(&key(1), 2), sessions.has(&key(1), 6)), (Some(true), Some(false), None));
        sessions.learn(stored(1, 5));
        assert_eq!((sessions.has(&key(1), 6), sessions.contiguous(&key(1))), (Some(false), Some(5)));
    }

    #[test]
    fn what_is_noted_during_a_look_is_not_lost() {
        let mut sessions = Sessions::new(4);
        for n in [1, 2, 3, 5, 6, 9] {
            sessions.note(&key(1), n);
        }
        sessions.learn(stored(1, 2));
        assert_eq!(sessions.contiguous(&key(1)), Some(3));
        assert_eq!([4, 5, 6, 7, 9].map(|n| sessions.has(&key(1), n)), [false, true, true, false, true].map(Some));
    }
}
