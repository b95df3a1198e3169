//! Verification: a living view against one rebuilt from the ledger alone, at the very same sequence.

use crate::ledger::{Ledger, LedgerItem};
use crate::live::{Behind, Live};
use crate::port::ReadError;
use footplate_es::Project;
use footplate_types::Digest;
use std::time::{Duration, Instant};

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The sequence at which both were compared.
    pub sequence: u64,
    /// Digest of the living view.
    pub living: Digest,
    /// Digest of the rebuilt one.
    pub rebuilt: Digest,
    /// The first line that differs, in both; absent when equal.
    pub difference: Option<String>,
    /// How many events the rebuilding read.
    pub events: u64,
    /// How long it took.
    pub rebuild: Duration,
}

impl Verified {
    /// Whether both are equal.
    pub fn is_equal(&self) -> bool {
        self.living == self.rebuilt
    }
}

/// Why nothing could be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The living view did not come so far in time.
    #[error(transparent)]
    Behind(#[from] Behind),
    /// The ledger could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Waits until `live` stands at `at_least` (the ledger's end when 0), digests it at its position, and rebuilds it from the ledger up to that
/// position in a shadow copy. The living view is held only while its fingerprint is taken.
pub async fn verify_view<S: Project + Send + Sync>(
    ledger: &Ledger,
    filters: &[String],
    live: &Live<S>,
    at_least: u64,
    within: Duration,
) -> Result<Verified, VerifyError> {
    let wanted = if at_least == 0 { ledger.end().await? } else { at_least };
    live.at_least(wanted, within).await?;
    let (sequence, living) = {
        let (state, position) = live.read_at();
        (position, state.fingerprint())
    };
    // Elapsed time is shown, never decided upon.
    let began = Instant::now();
    let (shadow, events) = rebuild::<S>(ledger, filters, sequence).await?;
    let rebuilt = shadow.fingerprint();
    Ok(Verified {
        sequence,
        living: Digest::of(living.as_bytes()),
        rebuilt: Digest::of(rebuilt.as_bytes()),
        difference: first_difference(&living, &rebuilt),
        events,
        rebuild: began.elapsed(),
    })
}

/// A view rebuilt from the ledger alone, up to and including `sequence`; and how many events it took.
pub async fn rebuild<S: Project>(ledger: &Ledger, filters: &[String], sequence: u64) -> Result<(S, u64), ReadError> {
    let mut shadow = S::default();
    let mut events = 0;
    let mut from = 1;
    while from <= sequence {
        let (items, next) = ledger.read("fp.ledger.>", from, 1_000).await?;
        for item in &items {
            let LedgerItem::Fact(recorded) = item else { continue };
            if recorded.sequence <= sequence && matches_any(filters, &recorded.envelope.subject.to_string()) {
                shadow.evolve(recorded);
                events += 1;
            }
        }
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok((shadow, events))
}

/// Whether a subject matches one of the filters (all when there are none): `*` stands for one token, `>` for the rest.
pub fn matches_any(filters: &[String], subject: &str) -> bool {
    filters.is_empty() || filters.iter().any(|filter| matches(filter, subject))
}

fn matches(filter: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for expected in filter.split('.') {
        if expected == ">" {
            return tokens.next().is_some();
        }
        match tokens.next() {
            Some(token) if expected == "*" || token == expected => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

fn first_difference(living: &str, rebuilt: &str) -> Option<String> {
    if living == rebuilt {
        return None;
    }
    let (mut left, mut right) = (living.lines(), rebuilt.lines());
    loop {
        let (a, b) = (left.next(), right.next());
        if a != b || a.is_none() {
            let cut = |line: Option<&str>| line.map_or("nothing".to_owned(), |line| line.chars().take(400).collect());
            return Some(format!("living: {}; rebuilt: {}", cut(a), cut(b)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_broker_does() {
        assert!(matches("fp.ledger.*.job.>", "fp.ledger.a.job.x"));
        assert!(!matches("fp.ledger.*.job.>", "fp.ledger.a.job"));
        assert!(!matches("fp.ledger.*.job.>", "fp.ledger.a.run.x"));
        assert!(matches("fp.beat.*", "fp.beat.n1"));
        assert!(!matches("fp.beat.*", "fp.beat.n1.x"));
    }

    #[test]
    fn the_first_difference_shows_both_sides() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some("living: b; rebuilt: c".to_owned()));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some("living: nothing; rebuilt: c".to_owned()));
    }
}
