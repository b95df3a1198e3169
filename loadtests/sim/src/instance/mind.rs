//! What differs between the services: the view, the decision, the effects.

use crate::broker::{Answer, Op};
use footplate_es::Decision;
use footplate_events::Recorded;
use footplate_events::messages::{BeatMessage, Report, Settled, SpoolPosition};
use footplate_scheduler_core::State;
use footplate_types::{NodeName, Timestamp};
use std::rc::Rc;

/// What a decision is told of the moment, as `footplate_eventlog::Look`; times in milliseconds of the instance's own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The leader's own term; another one may have begun since.
    pub(crate) term: u64,
    pub(crate) view: u64,
    pub(crate) now: Timestamp,
    pub(crate) elapsed: u64,
}

/// What a look led to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) decisions: Vec<Decision>,
    pub(crate) wake_in: Option<u64>,
    /// What the same look would have said otherwise, had it forgotten what it may forget.
    pub(crate) odd: Option<String>,
}

/// What an effect's answer leads to.
#[derive(Debug)]
pub(crate) enum Acted {
    Done,
    Failed,
    /// More calls, in the place of this one.
    Then(Vec<Op>),
}

/// The part of an instance that is its service's own: as its `Decider`, with the real core in it.
pub(crate) trait Mind {
    /// Takes in one event of the ledger.
    fn fold(&mut self, recorded: &Recorded);
    /// The view as text.
    fn fingerprint(&self) -> String;
    /// A term began: what stood in memory only is forgotten.
    fn term_began(&mut self, look: &Look);
    fn decide(&mut self, look: &Look) -> Verdict;
    /// The effects of a look, all at once; `Err`: not now.
    fn act(&mut self, look: &Look) -> Result<Vec<Op>, ()>;
    /// An effect was answered.
    fn acted(&mut self, op: &Op, answer: &Answer) -> Acted;
    /// All effects of a look were answered; whether all went well.
    fn all_acted(&mut self, _well: bool) {}
    fn saw_beat(&mut self, _node: &NodeName, _sequence: u64, _message: &BeatMessage, _elapsed: u64) {}
    fn reported(&mut self, _report: &Rc<Report>, _needs_view: u64) {}
    /// A spool position is settled; `at_start`: that was known before the first report was read.
    fn covered(&mut self, _settled: &Settled, _at_start: bool) {}
    /// Whether everything of a spool up to there was taken in.
    fn has_taken(&self, _node: &NodeName, _up_to: SpoolPosition) -> bool {
        true
    }
    fn reconnected(&mut self, elapsed: u64);
    /// The scheduler's state, for clients' reads; `None` of the other services.
    fn scheduler(&self) -> Option<&State> {
        None
    }
}
