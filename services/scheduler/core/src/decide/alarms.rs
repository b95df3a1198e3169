//! When which limits run out, kept from look to look, so that a look walks over those alone whose time may have come.
//!
//! What is known of a limit is when it runs out at the earliest: a timeline that is thinned out makes an age less, never more.

use crate::facts::Facts;
use crate::state::Limits;
use footplate_types::RunId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    /// The term that the ages were measured in, and up to which event limits were taken in.
    read: (Option<u64>, u64),
    /// When it may run out on the leader's clock, in milliseconds; from which event it runs; whose it is.
    due: BinaryHeap<Reverse<(u64, u64, RunId)>>,
}

/// Alarms of limits that do not run any more which are kept, beside as many as there are limits.
const SPARE: usize = 1_024;

impl Alarms {
    /// Whose limit is over, in order; and when the next one's will be, in milliseconds from now.
    pub(super) fn ring(&mut self, limits: &Limits, facts: &Facts<'_>) -> (Vec<RunId>, Option<u64>) {
        let term = facts.timeline.term();
        if self.read.0 != term || self.read.1 > facts.view || self.due.len() > 2 * limits.len() + SPARE {
            self.due.clear();
            self.read = (term, 0);
        }
        let now = facts.elapsed.0;
        let left = |since: u64, run: RunId| {
            let limit = limits.get(&(since, run))?;
            Some(limit.limit.0.saturating_sub(facts.age(&limit.since)))
        };
        let from = (self.read.1 + 1, RunId::from_bytes([0; 16]));
        let new = limits.range(from..).map(|((since, run), limit)| (limit.limit.0.saturating_sub(facts.age(&limit.since)), *since, *run));
        self.due.extend(new.map(|(left, since, run)| Reverse((now.saturating_add(left), since, run))));
        self.read.1 = facts.view;
        let (mut over, mut again) = (Vec::new(), Vec::new());
        let mut next: Option<u64> = None;
        // Until the next one is known for certain: none of the others can be before it.
        while let Some(Reverse((due, since, run))) = self.due.peek().copied() {
            if due > now && next.is_some_and(|next| due >= now.saturating_add(next)) {
                break;
            }
            self.due.pop();
            let Some(left) = left(since, run) else { continue };
            again.push(Reverse((now.saturating_add(left), since, run)));
            if left == 0 {
                over.push(run);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        self.due.extend(again);
        over.sort_unstable();
        (over, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Policy, Timeline};
    use crate::state::{Limit, Stamp};
    use footplate_types::{EventId, Millis, Timestamp};

    /// Thousands of attempts with a limit of a year come and go: what is remembered stays as small as what there is.
    #[test]
    fn limits_that_are_gone_are_not_remembered_until_their_time() {
        let mut alarms = Alarms::default();
        let (mut timeline, policy) = (Timeline::default(), Policy::default());
        for at in 1..=20_000u64 {
            timeline.observe(at, Millis(at));
            let facts =
                Facts { view: at, now: Timestamp::from_millis(0), elapsed: Millis(at), seed: 0, policy: &policy, timeline: &timeline };
            let since = Stamp { sequence: at, at: Timestamp::from_millis(0), id: EventId::derived(&[&at.to_be_bytes()]) };
            let run = RunId::derived(&[&at.to_be_bytes()]);
            let limits = Limits::from([((at, run), Limit { since, limit: Millis::from_secs(31_536_000) })]);
            let (over, next) = alarms.ring(&limits, &facts);
            assert!(over.is_empty() && next == Some(31_536_000_000), "{over:?} {next:?}");
            assert!(alarms.due.len() <= SPARE + 4, "{} alarms of one limit", alarms.due.len());
        }
    }
}
