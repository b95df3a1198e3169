//! What a writer hands in, and what it learns back.

use crate::{Point, SeriesSource};
use footplate_types::{AttemptNumber, MetricName, Rank, SessionId};

/// One client batch as it stood in a message of METRICS.
///
/// It is known by two names, and dropped when either was stored before: its place in the stream (`sequence`, against the floor of the
/// source's shard), and (source, attempt, rank, session, n), without a time limit.
#[derive(Clone, Debug, PartialEq)]
pub struct IngestBatch {
    /// The sequence in METRICS ([`crate::Feed::sequence`]) of the message that carried it. All batches of one message go in one call.
    pub sequence: u64,
    /// Whose points.
    pub source: SeriesSource,
    /// Which try; 0 for a run without a job and for a node.
    pub attempt: AttemptNumber,
    /// Which worker.
    pub rank: Rank,
    /// The process that opened the run.
    pub session: SessionId,
    /// That process's count of its batches: 1, 2, 3, ...
    pub n: u64,
    /// The points, per metric, in the order they were logged.
    pub series: Vec<(MetricName, Vec<Point>)>,
}

impl IngestBatch {
    /// The name of the session that sent it.
    pub fn session_key(&self) -> SessionKey {
        SessionKey { source: self.source.clone(), attempt: self.attempt, rank: self.rank, session: self.session }
    }

    /// How many points it carries.
    pub fn points(&self) -> u64 {
        self.series.iter().map(|(_, points)| points.len() as u64).sum()
    }
}

/// One process's life as a writer of one source, attempt and rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// Whose points it writes.
    pub source: SeriesSource,
    /// Which try.
    pub attempt: AttemptNumber,
    /// Which worker.
    pub rank: Rank,
    /// The process.
    pub session: SessionId,
}

/// What is durable after a call of `ingest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Points newly stored; exact repeats of stored points are not counted.
    pub points: u64,
    /// Batches dropped because they were stored before.
    pub duplicate_batches: u64,
    /// Batches that can never be stored. The floor moves past them, so that one broken client does not hold back a shard.
    pub refused: Vec<RefusedBatch>,
}

/// A batch that can never be stored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBatch {
    /// Its sequence in METRICS.
    pub sequence: u64,
    /// The session that sent it.
    pub session: SessionKey,
    /// Its number in the session.
    pub n: u64,
    /// Why, for a person.
    pub reason: &'static str,
}

/// Which batches of one session are stored: all up to `contiguous`, and the closed ranges of `beyond`, which came ahead of their turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionProgress {
    /// The session.
    pub key: SessionKey,
    /// Every batch from 1 to this one is stored; 0 when the first is missing.
    pub contiguous: u64,
    /// Ranges `(first, last)` stored beyond `contiguous`, in order, disjoint and not touching. At most [`SessionProgress::MAX_RANGES`].
    pub beyond: Vec<(u64, u64)>,
}

impl SessionProgress {
    /// The most separate ranges beyond the contiguous part that one session may have; a batch that would need one more is refused. A client
    /// sends in order and sends again what is not acknowledged, so that an honest one has a handful.
    pub const MAX_RANGES: usize = 1_024;

    /// A session of which nothing is stored.
    pub fn new(key: SessionKey) -> Self {
        Self { key, contiguous: 0, beyond: Vec::new() }
    }

    /// Whether batch `n` is stored.
    pub fn has(&self, n: u64) -> bool {
        n <= self.contiguous || self.beyond.iter().any(|(first, last)| (*first..=*last).contains(&n))
    }

    /// Notes batch `n` as stored, or says why it can never be.
    pub fn note(&mut self, n: u64) -> Result<Noted, &'static str> {
        if n == 0 {
            return Err("a session counts its batches from 1");
        }
        if self.has(n) {
            return Ok(Noted::Duplicate);
        }
        if n == self.contiguous + 1 {
            self.contiguous = n;
            if let Some((first, last)) = self.beyond.first().copied()
                && first == n + 1
            {
                self.contiguous = last;
                self.beyond.remove(0);
            }
            return Ok(Noted::New);
        }
        self.note_beyond(n)
    }

    fn note_beyond(&mut self, n: u64) -> Result<Noted, &'static str> {
        let at = self.beyond.partition_point(|(first, _)| *first < n);
        let joins_left = at > 0 && self.beyond[at - 1].1 + 1 == n;
        let joins_right = at < self.beyond.len() && n + 1 == self.beyond[at].0;
        match (joins_left, joins_right) {
            (true, true) => {
                self.beyond[at - 1].1 = self.beyond[at].1;
                self.beyond.remove(at);
            }
            (true, false) => self.beyond[at - 1].1 = n,
            (false, true) => self.beyond[at].0 = n,
            (false, false) if self.beyond.len() >= Self::MAX_RANGES => return Err("the session has too many gaps between its batches"),
            (false, false) => self.beyond.insert(at, (n, n)),
        }
        Ok(Noted::New)
    }
}

/// What noting a batch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It was not stored before.
    New,
    /// It was.
    Duplicate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_types::RunId;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn session() -> SessionProgress {
        SessionProgress::new(SessionKey {
            source: SeriesSource::Run(RunId::from_bytes([1; 16])),
            attempt: AttemptNumber(1),
            rank: Rank(0),
            session: SessionId::from_bytes([2; 16]),
        })
    }

    proptest! {
        #[test]
        fn progress_agrees_with_a_plain_set(ns in proptest::collection::vec(1u64..60, 0..200)) {
            let (mut progress, mut plain) = (session(), BTreeSet::new());
            for n in ns {
                let expected = if plain.insert(n) { Noted::New } else { Noted::Duplicate };
                prop_assert_eq!(progress.note(n), Ok(expected));
                prop_assert!((1..=60).all(|n| progress.has(n) == plain.contains(&n)));
                let contiguous = (1u64..).take_while(|n| plain.contains(n)).last().unwrap_or(0);
                prop_assert_eq!(progress.contiguous, contiguous);
                prop_assert!(progress.beyond.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
                prop_assert!(progress.beyond.first().is_none_or(|(first, _)| *first > contiguous + 1));
            }
        }
    }

    #[test]
    fn a_session_of_nothing_but_gaps_is_refused_at_the_bound_and_still_takes_its_turn() {
        let mut progress = session();
        for k in 0..SessionProgress::MAX_RANGES as u64 {
            assert_eq!(progress.note(10 + 2 * k), Ok(Noted::New));
        }
        assert!(progress.note(1_000_000).is_err());
        assert_eq!(progress.note(1), Ok(Noted::New));
        assert_eq!(progress.note(11), Ok(Noted::New));
        assert!(progress.note(0).is_err());
        assert_eq!(progress.note(u64::MAX), Ok(Noted::New), "joining two ranges freed a place");
        assert_eq!(progress.note(u64::MAX), Ok(Noted::Duplicate));
    }
}
