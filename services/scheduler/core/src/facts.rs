//! What a decision is told of the moment, and how ages are measured.
//!
//! Limits (the ready deadline, back-off, the longest duration, the longest wait) are measured on the leader's own monotonic clock from the
//! look at which it first saw the event. For what stood in the ledger before its term began, the age at the term's start is the difference
//! of two broker timestamps (the term event's and that event's, never below 0); from there on the monotonic clock counts. So no agent's
//! and no leader's wall clock matters, no age is ever negative, and a broker clock that jumps can at most make a *new* leader count a
//! running limit again from the start (a jump back) or early (a jump forward, once); it never delays a start by more than one back-off.

use crate::state::Stamp;
use footplate_types::{Millis, Timestamp};

/// The knobs of the decisions. Recorded in every placement by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name and version, as recorded in every placement's view.
    pub name: String,
    /// How long a whole gang may take from its placement until every member is ready (set-up included).
    pub ready_within: Millis,
    /// How long a job must have waited before nodes are kept free for it; until then smaller jobs behind it may overtake it.
    pub patience: Millis,
    /// How long before its latest start a job with a deadline begins to go before others of its priority in its queue.
    pub deadline_near: Millis,
    /// For how many jobs nodes are kept free at once.
    pub reservations_max: usize,
    /// The most events of one look; one batch of the leader.
    pub decisions_max: usize,
    /// The most members placed by one look.
    pub members_max: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            name: "shares-with-reservations/3".to_owned(),
            ready_within: Millis::from_secs(600),
            patience: Millis::from_secs(600),
            deadline_near: Millis::from_secs(3_600),
            reservations_max: 8,
            decisions_max: 500,
            members_max: 2_048,
        }
    }
}

/// What a decision is told of the moment.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The ledger sequence up to which the state is folded.
    pub view: u64,
    /// The wall clock; recorded, never decided upon.
    pub now: Timestamp,
    /// The leader's monotonic clock, in milliseconds since some fixed instant.
    pub elapsed: Millis,
    /// The seed of the decision; recorded (this policy draws nothing).
    pub seed: u64,
    /// The knobs.
    pub policy: &'a Policy,
    /// When the leader saw what.
    pub timeline: &'a Timeline,
}

/// That nothing can be placed: true until an event comes that changes what may be placed, or until a limit runs out. It saves the look at
/// every pending job for the many events that change nothing for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The last event that changed what may be placed.
    pub(crate) revision: u64,
    /// When the first limit of a pending job runs out, on the leader's clock.
    pub(crate) until: Option<Millis>,
}

impl Facts<'_> {
    /// How long ago the event of `stamp` was seen, in the sense of this module.
    pub fn age(&self, stamp: &Stamp) -> u64 {
        self.timeline.age(stamp, self.elapsed)
    }

    /// The time of day: the broker's at the beginning of the term, and what has passed on the leader's clock since. No leader's own wall clock
    /// counts. `None` before a term has begun.
    pub fn time_of_day(&self) -> Option<Timestamp> {
        let (_, at, begun) = self.timeline.term?;
        Some(at.plus_millis(self.elapsed.0.saturating_sub(begun)))
    }
}

/// When a leader saw which part of the ledger, on its monotonic clock. Bounded: old looks are thinned out, so that an age's error stays
/// small against the age itself.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The term event and the elapsed time at which the term's first look came.
    term: Option<(u64, Timestamp, u64)>,
    /// (view, elapsed) of looks, both rising.
    looks: Vec<(u64, u64)>,
}

impl Timeline {
    /// The most looks that are remembered.
    const LOOKS_MAX: usize = 4_096;

    /// A timeline that begins with a term (the stamp of its event), first looked at when `elapsed` stood on the clock.
    pub fn begin(term: &Stamp, elapsed: Millis) -> Self {
        Self { term: Some((term.sequence, term.at, elapsed.0)), looks: Vec::new() }
    }

    /// Takes in that the state stood at `view` when `elapsed` stood on the clock.
    pub fn observe(&mut self, view: u64, elapsed: Millis) {
        if self.looks.last().is_some_and(|(last, _)| *last >= view) {
            return;
        }
        if self.looks.len() >= Self::LOOKS_MAX {
            self.thin();
        }
        self.looks.push((view, elapsed.0));
    }

    /// Drops every other look of the older half; an event then counts as seen at the next look that is left, a little later.
    fn thin(&mut self) {
        let half = self.looks.len() / 2;
        let mut at = 0;
        self.looks.retain(|_| {
            at += 1;
            at > half || at % 2 == 0
        });
    }

    /// The sequence of the term event that the ages are measured from; none before a term.
    pub(crate) fn term(&self) -> Option<u64> {
        self.term.map(|(sequence, _, _)| sequence)
    }

    /// Milliseconds since the event of `stamp` was seen; 0 for what was never seen.
    pub fn age(&self, stamp: &Stamp, elapsed: Millis) -> u64 {
        match self.term {
            Some((sequence, at, begun)) if stamp.sequence <= sequence => {
                at.millis_since(stamp.at).saturating_add(elapsed.0.saturating_sub(begun))
            }
            _ => {
                let after = self.looks.partition_point(|(view, _)| *view < stamp.sequence);
                self.looks.get(after).map_or(0, |(_, seen)| elapsed.0.saturating_sub(*seen))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_types::EventId;

    fn stamp(sequence: u64, millis: i64) -> Stamp {
        Stamp { sequence, at: Timestamp::from_millis(millis), id: EventId::from_bytes([0; 16]) }
    }

    #[test]
    fn an_event_of_this_term_ages_by_the_monotonic_clock_whatever_its_timestamp() {
        let mut timeline = Timeline::begin(&stamp(5, 1_000), Millis(100));
        timeline.observe(6, Millis(200));
        timeline.observe(9, Millis(300));
        assert_eq!(timeline.age(&stamp(6, -99_999_999), Millis(1_200)), 1_000);
        assert_eq!(timeline.age(&stamp(8, 99_999_999), Millis(1_200)), 900);
        assert_eq!(timeline.age(&stamp(12, 0), Millis(1_200)), 0);
    }

    #[test]
    fn an_event_before_the_term_ages_by_broker_time_up_to_the_term_and_is_never_younger_than_nothing() {
        let timeline = Timeline::begin(&stamp(5, 10_000), Millis(100));
        assert_eq!(timeline.age(&stamp(2, 4_000), Millis(1_100)), 7_000);
        assert_eq!(timeline.age(&stamp(2, 3_600_000), Millis(1_100)), 1_000);
    }

    #[test]
    fn thinning_keeps_the_bound_and_makes_no_age_larger() {
        let mut timeline = Timeline::begin(&stamp(1, 0), Millis(0));
        let looks = 3 * Timeline::LOOKS_MAX as u64;
        for view in 2..looks {
            timeline.observe(view, Millis(view * 10));
        }
        assert!(timeline.looks.len() <= Timeline::LOOKS_MAX);
        let now = Millis(looks * 10);
        for view in (2..looks).step_by(97) {
            let (age, exact) = (timeline.age(&stamp(view, 0), now), now.0 - view * 10);
            assert!(age <= exact && exact - age <= exact / 8 + 40, "{view}: {age} of {exact}");
        }
    }
}
