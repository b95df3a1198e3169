//! From candidate to leader and back, as `footplate_eventlog`'s reign: catch up, take the lease, begin a term, read up to it, then look,
//! decide, append one batch under the term, wait until the own view has folded it, act, and look again.

use super::{Input, Instance, Look};
use crate::broker::{Answer, Done, Op, TermSeen, Trouble, under_term};
use crate::instance::mind::Acted;
use crate::wire::Wire;
use footplate_es::Decision;
use footplate_events::facts::TermBegan;
use footplate_events::{Envelope, Subject};
use footplate_types::{EventId, PrincipalId, Timestamp};

/// Where an instance stands.
#[derive(Debug, PartialEq)]
pub(super) enum Role {
    Down,
    /// It reads what is there; up to where, once it knows.
    CatchingUp {
        up_to: Option<u64>,
    },
    Standing,
    /// A term is begun: after which one of ours, and the event that is under way at which expectation.
    Beginning {
        own: Option<u64>,
        sent: Option<(u64, Box<Envelope>)>,
    },
    Leading {
        term: u64,
        stage: Stage,
    },
    /// Deposed a moment ago.
    Resting,
}

/// What a leader is doing.
#[derive(Debug, PartialEq)]
pub(super) enum Stage {
    /// It waits for its own view; `began`: of the term event.
    Folding {
        up_to: u64,
        began: bool,
    },
    Appending,
    Acting {
        open: u32,
        well: bool,
    },
    /// It waits for a reason to look.
    Waiting,
    /// It waits before it tries again.
    Pausing,
}

/// The longest pause between two looks.
const LOOK_EVERY_MS: u64 = 60_000;
/// The pause after an append that could not be made, or an effect that failed.
const AGAIN_MS: u64 = 1_000;
/// The pause before an instance that was deposed stands again.
const STAND_AGAIN_MS: u64 = 50;
/// The most events of one batch.
const BATCH_MAX: usize = 1_000;

impl Instance {
    /// Whether it believes that it leads.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.role, Role::Leading { .. })
    }

    /// A candidate stands only when it has read what is there.
    pub(super) fn catch_up(&mut self, wire: &mut Wire) {
        self.turn += 1;
        self.role = Role::CatchingUp { up_to: None };
        self.call(wire, Op::LedgerEnd);
    }

    fn deposed(&mut self, wire: &mut Wire) {
        self.turn += 1;
        self.role = Role::Resting;
        let wait = self.clock.lasts(STAND_AGAIN_MS);
        self.later(wire, wait, Input::Look(self.turn));
    }

    /// The lease is lost: heeded before the next thing that the loop begins, as the servers' loop does.
    pub(super) fn lost_the_lease(&mut self, wire: &mut Wire) {
        if let Role::Leading { stage: Stage::Waiting | Stage::Pausing | Stage::Folding { .. }, .. } = &self.role {
            self.deposed(wire);
        }
    }

    /// Begins a term, after this one of our own when there was one.
    pub(super) fn begin(&mut self, wire: &mut Wire, own: Option<u64>) {
        self.turn += 1;
        if self.lease.lost {
            return self.deposed(wire);
        }
        self.role = Role::Beginning { own, sent: None };
        self.call(wire, Op::ReadTerm(self.service.name()));
    }

    /// The view has moved.
    pub(super) fn folded(&mut self, wire: &mut Wire) {
        match self.role {
            Role::CatchingUp { up_to: Some(up_to) } if self.position >= up_to => {
                self.turn += 1;
                self.role = Role::Standing;
                self.stand(wire);
            }
            Role::Leading { stage: Stage::Folding { up_to, began }, .. } if self.position >= up_to => {
                if began {
                    let look = self.look_now(wire);
                    self.mind.term_began(&look);
                    self.news = true;
                    self.look(wire);
                } else {
                    self.act(wire);
                }
            }
            _ => self.woken(wire),
        }
    }

    /// There may be a reason to look.
    pub(super) fn woken(&mut self, wire: &mut Wire) {
        if let Role::Leading { stage: stage @ Stage::Waiting, .. } = &mut self.role
            && self.news
        {
            *stage = Stage::Pausing;
            self.turn += 1;
            let wait = self.dice.between(1, 5);
            self.later(wire, wait, Input::Look(self.turn));
        }
    }

    /// A timer of the loop rang.
    pub(super) fn go_on(&mut self, wire: &mut Wire) {
        match &self.role {
            Role::Resting => self.catch_up(wire),
            Role::CatchingUp { up_to: None } => self.catch_up(wire),
            Role::Beginning { own, .. } => {
                let own = *own;
                self.begin(wire, own);
            }
            Role::Leading { .. } => self.look(wire),
            Role::Down | Role::CatchingUp { .. } | Role::Standing => {}
        }
    }

    fn look_now(&self, wire: &Wire) -> Look {
        let now = Timestamp::from_millis(self.clock.wall(wire.now));
        let term = if let Role::Leading { term, .. } = self.role { term } else { 0 };
        Look { term, view: self.position, now, elapsed: self.elapsed(wire) }
    }

    /// Looks, decides, appends.
    fn look(&mut self, wire: &mut Wire) {
        let Role::Leading { term, .. } = self.role else { return };
        if self.lease.lost {
            return self.deposed(wire);
        }
        self.turn += 1;
        self.news = false;
        let look = self.look_now(wire);
        let mut verdict = self.mind.decide(&look);
        self.odd = self.odd.take().or(verdict.odd);
        self.wake_in = verdict.wake_in.unwrap_or(LOOK_EVERY_MS).min(LOOK_EVERY_MS);
        if verdict.decisions.is_empty() {
            return self.act(wire);
        }
        verdict.decisions.truncate(BATCH_MAX);
        let envelopes: Vec<Envelope> = verdict.decisions.into_iter().map(|decision| self.envelope(wire, decision)).collect();
        self.role = Role::Leading { term, stage: Stage::Appending };
        let expect = under_term(self.planted, &self.service.name(), term);
        self.call(wire, Op::Append { expect, envelopes });
    }

    /// The envelope of a decision, as the servers' pen writes it.
    fn envelope(&mut self, wire: &Wire, decision: Decision) -> Envelope {
        let service = self.service.as_str();
        let id = decision.id(service).unwrap_or_else(|| EventId::from_bytes(self.dice.bytes()));
        let Decision { subject, event, cause, .. } = decision;
        let time = Timestamp::from_millis(self.clock.wall(wire.now));
        let source = format!("{service}/{}", self.name);
        match cause {
            Some(cause) => Envelope {
                id,
                subject,
                event,
                source,
                time,
                actor: cause.actor,
                correlation: cause.correlation,
                causation: Some(cause.id),
                trace: cause.trace,
            },
            None => {
                let actor = PrincipalId::parse(&format!("service:{service}")).expect("`service:` and a slug are a principal");
                Envelope { id, subject, event, source, time, actor, correlation: id, causation: None, trace: None }
            }
        }
    }

    fn act(&mut self, wire: &mut Wire) {
        let Role::Leading { term, .. } = self.role else { return };
        if self.lease.lost {
            return self.deposed(wire);
        }
        let look = self.look_now(wire);
        let ops = self.mind.act(&look);
        let (open, well) = ops.as_ref().map_or((0, false), |ops| (ops.len() as u32, true));
        self.role = Role::Leading { term, stage: Stage::Acting { open, well } };
        for op in ops.unwrap_or_default() {
            self.call(wire, op);
        }
        self.after_acting(wire);
    }

    /// Waits, once every effect was answered.
    fn after_acting(&mut self, wire: &mut Wire) {
        let Role::Leading { term, stage: Stage::Acting { open: 0, well } } = self.role else { return };
        self.mind.all_acted(well);
        if self.lease.lost {
            return self.deposed(wire);
        }
        let wait = if well { self.wake_in } else { self.wake_in.min(AGAIN_MS) };
        self.turn += 1;
        self.role = Role::Leading { term, stage: Stage::Waiting };
        let wait = self.clock.lasts(wait.max(1));
        self.later(wire, wait, Input::Look(self.turn));
        self.woken(wire);
    }

    fn pause(&mut self, wire: &mut Wire) {
        self.turn += 1;
        if let Role::Leading { stage, .. } = &mut self.role {
            *stage = Stage::Pausing;
        }
        let wait = self.clock.lasts(AGAIN_MS);
        self.later(wire, wait, Input::Look(self.turn));
    }

    pub(super) fn reign_answered(&mut self, wire: &mut Wire, op: &Op, answer: &Answer) {
        match (&mut self.role, op) {
            (Role::CatchingUp { up_to }, Op::LedgerEnd) => match answer {
                Ok(Done::Sequence(end)) => {
                    *up_to = Some(*end);
                    self.something_came(wire);
                    self.folded(wire);
                }
                _ => self.pause(wire),
            },
            (Role::Beginning { .. }, Op::ReadTerm(_)) => match answer {
                Ok(Done::Term(seen)) => self.term_seen(wire, seen),
                _ => self.pause(wire),
            },
            (Role::Beginning { .. }, Op::AppendTerm { .. }) => self.term_answered(wire, answer),
            (Role::Leading { term, stage: Stage::Appending }, Op::Append { .. }) => {
                let term = *term;
                self.append_answered(wire, term, answer);
            }
            (Role::Leading { stage: Stage::Acting { open, well }, .. }, _) => {
                let mut next = Vec::new();
                match self.mind.acted(op, answer) {
                    Acted::Then(ops) => next = ops,
                    Acted::Failed => *well = false,
                    Acted::Done => {}
                }
                *open = (*open + next.len() as u32).saturating_sub(1);
                next.into_iter().for_each(|op| self.call(wire, op));
                self.after_acting(wire);
            }
            _ => {}
        }
    }

    fn term_seen(&mut self, wire: &mut Wire, seen: &TermSeen) {
        let Role::Beginning { own, sent } = &mut self.role else { return };
        if let Some((_, envelope)) = sent
            && seen.id == Some(envelope.id)
        {
            return self.term_stands(wire, seen.sequence);
        }
        if sent.is_some() || own.is_some_and(|own| own != seen.sequence && seen.instance != self.name) {
            return self.deposed(wire);
        }
        let own = *own;
        let service = self.service.name();
        let fact = TermBegan { service: service.clone(), instance: self.name.clone() };
        let envelope = Box::new(self.envelope(wire, Decision::new(Subject::term(&service), fact, None)));
        self.role = Role::Beginning { own, sent: Some((seen.sequence, envelope.clone())) };
        self.call(wire, Op::AppendTerm { expect: seen.sequence, envelope });
    }

    fn term_answered(&mut self, wire: &mut Wire, answer: &Answer) {
        let Role::Beginning { sent: Some((expect, envelope)), .. } = &self.role else { return };
        match answer {
            Ok(Done::Sequence(term)) => self.term_stands(wire, *term),
            // The same bytes again, until the answer is definite; on a conflict it may be our own that stands there.
            Err(Trouble::Unknown | Trouble::Unavailable) => {
                let op = Op::AppendTerm { expect: *expect, envelope: envelope.clone() };
                self.call(wire, op);
            }
            _ => self.call(wire, Op::ReadTerm(self.service.name())),
        }
    }

    fn term_stands(&mut self, wire: &mut Wire, term: u64) {
        if self.lease.lost {
            return self.deposed(wire);
        }
        self.turn += 1;
        self.role = Role::Leading { term, stage: Stage::Folding { up_to: term, began: true } };
        self.something_came(wire);
        self.folded(wire);
    }

    fn append_answered(&mut self, wire: &mut Wire, term: u64, answer: &Answer) {
        match answer {
            Ok(Done::Sequence(last)) => {
                self.turn += 1;
                self.role = Role::Leading { term, stage: Stage::Folding { up_to: *last, began: false } };
                if self.lease.lost {
                    return self.deposed(wire);
                }
                self.something_came(wire);
                self.folded(wire);
            }
            // Never again the same bytes: under a standing term a copy would land twice.
            Err(Trouble::Unknown) => self.begin(wire, Some(term)),
            Err(Trouble::Unavailable) => self.pause(wire),
            _ => self.deposed(wire),
        }
    }
}
