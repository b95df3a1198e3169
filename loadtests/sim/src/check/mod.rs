//! The checkers: an own account of the raw log and of what the machines really do. They share no code with the cores and never ask them,
//! except at the end, when what `explain` says is compared with what they find.

mod after;
mod array;
mod book;
mod end;
mod ground;
mod job;
mod placing;
mod roles;
mod units;

pub(crate) use end::Unrest;

use crate::truth::Happening;
use book::Book;
use footplate_events::facts::{Cause, StopCause, WaitReason};
use footplate_events::{Event, Recorded};
use footplate_scheduler_core::State;
use footplate_types::{Epoch, EventId, NodeName};
use ground::Ground;
use std::collections::BTreeMap;

/// A rule that was found broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The rule's short name.
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
    /// What the lines of the trace that matter hold: a run, a node.
    pub(crate) words: Vec<String>,
}

impl Found {
    fn new(rule: &'static str, detail: impl Into<String>, words: &[&dyn ToString]) -> Self {
        Self { rule, detail: detail.into(), words: words.iter().map(|word| word.to_string()).collect() }
    }
}

/// What a check finds.
type Checked = Result<(), Found>;

/// What a run should have met, by the event that shows it.
fn rare(event: &Event) -> Option<&'static str> {
    match event {
        Event::TermBegan(_) => Some("terms"),
        Event::JobPlaced(placed) if placed.members.iter().any(|member| member.role.is_some()) => Some("gangs of roles"),
        Event::JobPlaced(placed) if placed.members.iter().any(|member| member.gpu_share > 0) => Some("shares"),
        Event::JobPlaced(placed) if placed.members.iter().any(|member| member.gpu_profile.is_some()) => Some("slices"),
        Event::JobPlaced(placed) if placed.members.len() > 1 => Some("gangs"),
        Event::JobWaiting(waiting) if matches!(waiting.reason, WaitReason::Array { .. }) => Some("behind others of an array"),
        Event::JobStopRequested(stop) => match stop.cause {
            StopCause::Preempted => Some("preempted"),
            StopCause::Drained => Some("drained"),
            StopCause::NodeLost => Some("stopped for a loss"),
            StopCause::NotReady => Some("not ready"),
            StopCause::TimedOut => Some("timed out"),
            StopCause::Cancelled => Some("cancelled"),
            StopCause::MemberFailed => Some("member failed"),
            StopCause::Shutdown | StopCause::Fenced => None,
        },
        Event::JobRequeued(fact) if fact.cause == Cause::Void => Some("void"),
        Event::JobRequeued(_) => Some("requeued"),
        Event::JobEnded(fact) if fact.cause == Cause::PendingTooLong => Some("pending too long"),
        Event::JobEnded(fact) if fact.cause == Cause::Dependency => Some("ended for others"),
        Event::AttemptLost(_) => Some("lost"),
        Event::NodeLost(_) => Some("nodes lost"),
        _ => None,
    }
}

/// All checkers together.
#[derive(Default)]
pub(crate) struct Referee {
    book: Book,
    ground: Ground,
    /// How often what is rare has come about.
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl Referee {
    /// An event was appended.
    pub(crate) fn event(&mut self, recorded: &Recorded) -> Checked {
        self.book.take(recorded)?;
        self.ground.released_by(recorded)?;
        if let Some(what) = rare(&recorded.envelope.event) {
            self.saw(what);
        }
        Ok(())
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// A tree started or ended.
    pub(crate) fn happening(&mut self, happening: &Happening) -> Checked {
        match &happening.started {
            Some(started) => {
                self.saw("trees");
                self.book.may_start(&happening.node, &happening.key, started)?;
                self.ground.started(happening, started)
            }
            None => {
                self.ground.ended(happening);
                Ok(())
            }
        }
    }

    /// A fence stands.
    pub(crate) fn fence(&mut self, node: &NodeName, epoch: Epoch) -> Checked {
        self.saw("fences");
        self.ground.fenced(node, epoch)
    }

    /// Somebody was told that an event stands at this sequence.
    pub(crate) fn acknowledged(&self, id: EventId, sequence: u64) -> Checked {
        self.book.acknowledged(id, sequence)
    }

    /// How many jobs were submitted, and how many ended.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.book.jobs.len(), self.book.jobs.values().filter(|job| job.outcome.is_some()).count())
    }

    /// How many jobs live.
    pub(crate) fn living(&self) -> usize {
        self.book.jobs.values().filter(|job| job.outcome.is_none()).count()
    }

    /// What keeps everything from being at rest.
    pub(crate) fn unrest(&self) -> Vec<Unrest> {
        let mut unrest = self.book.unrest();
        unrest.extend(self.ground.unrest());
        unrest
    }

    /// Whether what `explain` says of each waiting job is among what is found true of it.
    pub(crate) fn explained(&self, state: &State) -> Checked {
        self.book.explained(state)
    }
}
