//! The lease of a service's leader, as in `footplate_eventlog`'s: for liveness only.

use super::{Input, Instance};
use crate::broker::{Answer, Done, Op, Trouble};
use crate::instance::reign::Role;
use crate::settings::LEADER_LEASE_MS;
use crate::wire::Wire;
use footplate_events::messages::LeaseBeat;

/// What an instance knows of its lease.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// The last beat of ours that stands: sequence, number, when it was sent on our clock.
    held: Option<(u64, u64, u64)>,
    /// A beat that is under way: number, when it was sent.
    sending: Option<(u64, u64)>,
    /// What a candidate saw, and since when.
    seen: Option<(u64, u64)>,
    /// Which chain of renewals is the living one.
    chain: u64,
    /// Somebody else leads, or ours ran out.
    pub(super) lost: bool,
}

/// The pause between two looks of a candidate.
const LOOK_EVERY_MS: u64 = 1_000;

impl Instance {
    /// A candidate looks at the lease.
    pub(super) fn stand(&mut self, wire: &mut Wire) {
        if self.role == Role::Standing {
            self.call(wire, Op::ReadLease(self.service.name()));
        }
    }

    fn poll_again(&mut self, wire: &mut Wire) {
        self.turn += 1;
        let wait = self.clock.lasts(LOOK_EVERY_MS);
        self.later(wire, wait, Input::Poll(self.turn));
    }

    fn write_lease(&mut self, wire: &mut Wire, expect: u64, number: u64) {
        let beat =
            LeaseBeat { service: self.service.name(), instance: self.name.clone(), number, lease_ms: LEADER_LEASE_MS, released: false };
        self.lease.sending = Some((number, self.elapsed(wire)));
        self.call(wire, Op::WriteLease { expect, beat, holder: (self.index, self.life) });
    }

    /// Renews at a third of the lease.
    pub(super) fn keep(&mut self, wire: &mut Wire, chain: u64) {
        let reigns = matches!(self.role, Role::Beginning { .. } | Role::Leading { .. });
        if chain != self.lease.chain || !reigns || self.lease.lost {
            return;
        }
        if let Some((sequence, number, _)) = self.lease.held {
            self.write_lease(wire, sequence, number + 1);
        }
    }

    fn keep_later(&mut self, wire: &mut Wire, wait: u64) {
        self.lease.chain += 1;
        let wait = self.clock.lasts(wait);
        self.later(wire, wait, Input::Keep(self.lease.chain));
    }

    pub(super) fn lease_answered(&mut self, wire: &mut Wire, op: &Op, answer: &Answer) {
        match (op, answer) {
            (Op::WriteLease { .. }, Ok(Done::Sequence(sequence))) => self.wrote(wire, *sequence),
            // After a lost answer the next beat conflicts with our own one: both are found out by reading.
            (Op::WriteLease { .. }, Err(Trouble::Conflict | Trouble::Unknown)) => self.call(wire, Op::ReadLease(self.service.name())),
            (Op::WriteLease { .. }, _) => self.not_written(wire, false),
            (Op::ReadLease(_), Ok(Done::Lease(last))) => {
                let last = last.as_ref().map(|(sequence, beat, holder)| (*sequence, beat.number, *holder == (self.index, self.life)));
                self.lease_seen(wire, last);
            }
            _ if self.role == Role::Standing => {
                self.lease.sending = None;
                self.poll_again(wire);
            }
            _ => self.not_written(wire, false),
        }
    }

    /// What stands on the lease's subject: sequence, number, whether it is ours.
    fn lease_seen(&mut self, wire: &mut Wire, last: Option<(u64, u64, bool)>) {
        let sending = self.lease.sending;
        if let (Some((sequence, number, true)), Some((sent, _))) = (last, sending)
            && number == sent
            && self.lease.held.is_none_or(|(held, ..)| sequence > held)
        {
            return self.wrote(wire, sequence);
        }
        if self.role != Role::Standing {
            let is_taken = last.is_none_or(|(_, _, ours)| !ours);
            return self.not_written(wire, is_taken);
        }
        self.lease.sending = None;
        let now = self.elapsed(wire);
        let sequence = last.map_or(0, |(sequence, ..)| sequence);
        let since = self.lease.seen.filter(|(known, _)| *known == sequence).map_or(now, |(_, since)| since);
        self.lease.seen = Some((sequence, since));
        let is_own = self.lease.held.is_some_and(|(held, ..)| held == sequence);
        if is_own || last.is_none() || now - since >= LEADER_LEASE_MS {
            self.write_lease(wire, sequence, 1);
        } else {
            self.poll_again(wire);
        }
    }

    fn wrote(&mut self, wire: &mut Wire, sequence: u64) {
        let Some((number, sent)) = self.lease.sending.take() else { return };
        self.lease.held = Some((sequence, number, sent));
        self.keep_later(wire, LEADER_LEASE_MS / 3);
        if self.role == Role::Standing {
            self.lease.lost = false;
            self.lease.seen = None;
            self.begin(wire, None);
        }
    }

    fn not_written(&mut self, wire: &mut Wire, is_taken: bool) {
        self.lease.sending = None;
        if self.role == Role::Standing {
            return self.poll_again(wire);
        }
        let now = self.elapsed(wire);
        if is_taken || self.lease.held.is_none_or(|(_, _, sent)| now - sent >= LEADER_LEASE_MS) {
            self.lease.lost = true;
            self.lost_the_lease(wire);
        } else {
            self.keep_later(wire, LEADER_LEASE_MS / 10);
        }
    }
}
