//! The broker: the ledger and its sister streams, and every call that somebody may make.
//!
//! LEDGER and BEATS keep what they acknowledged. ASSIGNMENTS, SETTLED and REPORTS may lose their end when the broker is killed, and then
//! give sequences a second time.

use crate::clock::Time;
use crate::ledger::{Expect, Ledger};
use crate::planted::Planted;
use footplate_events::messages::{Assignment, BeatMessage, LeaseBeat, Report, Settled};
use footplate_events::{Envelope, Event, Subject};
use footplate_types::{EventId, NodeName, ServiceName};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Where the wall clocks begin, in milliseconds since 1970.
pub(crate) const EPOCH_MS: i64 = 1_790_000_000_000;

/// The holder of a service's lease, by instance and life.
pub(crate) type Holder = (usize, u32);

/// A call to the broker.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    LedgerEnd,
    ReadLease(ServiceName),
    WriteLease {
        expect: u64,
        beat: LeaseBeat,
        holder: Holder,
    },
    ReadTerm(ServiceName),
    AppendTerm {
        expect: u64,
        envelope: Box<Envelope>,
    },
    Append {
        expect: Expect,
        envelopes: Vec<Envelope>,
    },
    /// A client's append, and the place of the client's business in its book.
    AppendClient {
        expect: u64,
        envelope: Box<Envelope>,
        business: usize,
    },
    ReadAggregate {
        subject: Subject,
        id: EventId,
        business: usize,
    },
    ReadAssignments,
    ReadAssignment(NodeName),
    WriteAssignment {
        expect: u64,
        assignment: Rc<Assignment>,
    },
    Settle {
        service: ServiceName,
        settled: Settled,
    },
    ReadBeat(NodeName),
    WriteBeat {
        expect: u64,
        message: BeatMessage,
    },
    Report {
        report: Rc<Report>,
    },
}

/// What stands on a service's term subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermSeen {
    pub(crate) sequence: u64,
    pub(crate) id: Option<EventId>,
    pub(crate) instance: String,
}

/// What a call found or did.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    Sequence(u64),
    Lease(Option<(u64, LeaseBeat, Holder)>),
    Term(TermSeen),
    Aggregate { last: u64, found: Option<u64> },
    Assignments(Vec<Standing>),
    Assignment(Option<Standing>),
    Beat(Option<(u64, BeatMessage)>),
}

/// Why a call did nothing, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Conflict,
    Unknown,
    Unavailable,
}

/// An assignment that stands, and its sequence.
pub(crate) type Standing = (u64, Rc<Assignment>);

/// A call's answer.
pub(crate) type Answer = Result<Done, Trouble>;

/// The node that a beat message is about.
pub(crate) fn node_of(message: &BeatMessage) -> &NodeName {
    match message {
        BeatMessage::Beat(beat) => &beat.node,
        BeatMessage::Fence(fence) => &fence.node,
    }
}

/// The broker.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) ledger: Ledger,
    /// The last message of each node's beat subject.
    pub(crate) beats: BTreeMap<NodeName, (u64, BeatMessage)>,
    leases: BTreeMap<ServiceName, (u64, LeaseBeat, Holder)>,
    beats_end: u64,
    pub(crate) assignments: BTreeMap<NodeName, Standing>,
    assignments_end: u64,
    /// What stood before each of the newest writes.
    assignments_before: Vec<(NodeName, Option<Standing>)>,
    pub(crate) reports: Vec<Rc<Report>>,
    pub(crate) settled: BTreeMap<(ServiceName, NodeName), Settled>,
    settled_before: Vec<((ServiceName, NodeName), Option<Settled>)>,
    /// What its wall clock is off by, in milliseconds.
    pub(crate) wall_off: i64,
}

/// How many of the newest writes a killed broker may lose.
const LOST_MAX: usize = 6;

fn remember<T>(before: &mut Vec<T>, write: T) {
    before.push(write);
    if before.len() > LOST_MAX {
        before.remove(0);
    }
}

impl Broker {
    /// Does what is asked.
    pub(crate) fn perform(&mut self, now: Time, op: &Op) -> Answer {
        let wall = EPOCH_MS + now as i64 + self.wall_off;
        match op {
            Op::LedgerEnd => Ok(Done::Sequence(self.ledger.end())),
            Op::ReadLease(service) => Ok(Done::Lease(self.leases.get(service).cloned())),
            Op::WriteLease { expect, beat, holder } => {
                let last = self.leases.get(&beat.service).map_or(0, |(sequence, ..)| *sequence);
                self.expects(last, *expect)?;
                self.beats_end += 1;
                self.leases.insert(beat.service.clone(), (self.beats_end, beat.clone(), *holder));
                Ok(Done::Sequence(self.beats_end))
            }
            Op::ReadTerm(service) => Ok(Done::Term(self.term(service))),
            Op::AppendTerm { expect, envelope } => self.append(now, wall, &Expect::Own(*expect), std::slice::from_ref(envelope)),
            Op::Append { expect, envelopes } => self.append(now, wall, expect, envelopes),
            Op::AppendClient { expect, envelope, .. } => self.append(now, wall, &Expect::Own(*expect), std::slice::from_ref(envelope)),
            Op::ReadAggregate { subject, id, .. } => {
                Ok(Done::Aggregate { last: self.ledger.last_of(subject), found: self.ledger.find(subject, *id) })
            }
            Op::ReadAssignments => Ok(Done::Assignments(self.assignments.values().cloned().collect())),
            Op::ReadAssignment(node) => Ok(Done::Assignment(self.assignments.get(node).cloned())),
            Op::WriteAssignment { expect, assignment } => self.assign(*expect, assignment),
            Op::Settle { service, settled } => {
                let key = (service.clone(), settled.node.clone());
                let before = self.settled.insert(key.clone(), settled.clone());
                remember(&mut self.settled_before, (key, before));
                Ok(Done::Sequence(0))
            }
            Op::ReadBeat(node) => Ok(Done::Beat(self.beats.get(node).cloned())),
            Op::WriteBeat { expect, message } => {
                let node = node_of(message).clone();
                let last = self.beats.get(&node).map_or(0, |(sequence, _)| *sequence);
                self.expects(last, *expect)?;
                self.beats_end += 1;
                self.beats.insert(node, (self.beats_end, message.clone()));
                Ok(Done::Sequence(self.beats_end))
            }
            Op::Report { report } => {
                self.reports.push(report.clone());
                Ok(Done::Sequence(self.reports.len() as u64))
            }
        }
    }

    fn expects(&self, last: u64, expect: u64) -> Result<(), Trouble> {
        if last == expect { Ok(()) } else { Err(Trouble::Conflict) }
    }

    fn append(&mut self, now: Time, wall: i64, expect: &Expect, envelopes: &[Envelope]) -> Answer {
        self.ledger.append(now, wall, expect, envelopes).map(Done::Sequence).map_err(|()| Trouble::Conflict)
    }

    fn term(&self, service: &ServiceName) -> TermSeen {
        let sequence = self.ledger.last_of(&Subject::term(service));
        let event = self.ledger.get(sequence).map(|recorded| &recorded.envelope);
        let instance = event.and_then(|envelope| match &envelope.event {
            Event::TermBegan(began) => Some(began.instance.clone()),
            _ => None,
        });
        TermSeen { sequence, id: event.map(|envelope| envelope.id), instance: instance.unwrap_or_default() }
    }

    fn assign(&mut self, expect: u64, assignment: &Rc<Assignment>) -> Answer {
        let node = assignment.node.clone();
        let last = self.assignments.get(&node).map_or(0, |(sequence, _)| *sequence);
        self.expects(last, expect)?;
        self.assignments_end += 1;
        let before = self.assignments.insert(node.clone(), (self.assignments_end, assignment.clone()));
        remember(&mut self.assignments_before, (node, before));
        Ok(Done::Sequence(self.assignments_end))
    }

    /// The broker is killed: the newest `count` writes of each stream that is not synced are gone.
    pub(crate) fn lose_ends(&mut self, count: usize) {
        for _ in 0..count.min(LOST_MAX) {
            if let Some((node, before)) = self.assignments_before.pop() {
                self.assignments_end = self.assignments_end.saturating_sub(1);
                match before {
                    Some(before) => self.assignments.insert(node, before),
                    None => self.assignments.remove(&node),
                };
            }
            if let Some((key, before)) = self.settled_before.pop() {
                match before {
                    Some(before) => self.settled.insert(key, before),
                    None => self.settled.remove(&key),
                };
            }
            self.reports.pop();
        }
    }

    /// Somebody empties ASSIGNMENTS.
    pub(crate) fn wipe_assignments(&mut self) {
        self.assignments.clear();
        self.assignments_before.clear();
    }
}

/// What a leader's append expects: its term, unless that very rule is the planted fault.
pub(crate) fn under_term(planted: Option<Planted>, service: &ServiceName, term: u64) -> Expect {
    if planted == Some(Planted::Term) { Expect::Nothing } else { Expect::Term(service.clone(), term) }
}
