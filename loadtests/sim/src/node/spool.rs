//! The spools of a node: what it says waits on its disk, goes out in order, and is sent again until it is settled.

use crate::settings::RESEND_MS;
use footplate_events::messages::{Report, ReportBody, SpoolPosition};
use footplate_types::{Epoch, NodeName, SpoolId};
use std::collections::BTreeMap;
use std::rc::Rc;

/// One spool, to one service. The entries are on disk; how far they are sent is the agent's memory.
#[derive(Debug)]
pub(super) struct Spool {
    id: SpoolId,
    entries: BTreeMap<u64, (Epoch, ReportBody)>,
    end: u64,
    settled: u64,
    next: u64,
    in_flight: Option<u64>,
    moved_at: u64,
    patience: u64,
}

impl Spool {
    pub(super) fn new(id: SpoolId) -> Self {
        Self { id, entries: BTreeMap::new(), end: 0, settled: 0, next: 1, in_flight: None, moved_at: 0, patience: RESEND_MS }
    }

    pub(super) fn append(&mut self, epoch: Epoch, body: ReportBody) {
        self.end += 1;
        self.entries.insert(self.end, (epoch, body));
    }

    /// Whether everything was settled.
    pub(super) fn is_settled(&self) -> bool {
        self.settled == self.end
    }

    /// The place of the last report.
    pub(super) fn last(&self) -> SpoolPosition {
        SpoolPosition { spool: self.id, offset: self.end }
    }

    /// The agent starts, or its connection came back: all that is not settled goes out again.
    pub(super) fn again(&mut self, now: u64) {
        self.next = self.settled + 1;
        self.in_flight = None;
        self.moved_at = now;
        self.patience = RESEND_MS;
    }

    pub(super) fn settled(&mut self, now: u64, up_to: SpoolPosition) {
        if up_to.spool == self.id && up_to.offset > self.settled {
            self.settled = up_to.offset.min(self.end);
            self.entries = self.entries.split_off(&(self.settled + 1));
            self.next = self.next.max(self.settled + 1);
            self.moved_at = now;
            self.patience = RESEND_MS;
        }
    }

    /// Nothing settled for long: all of it again.
    pub(super) fn look(&mut self, now: u64) {
        if !self.is_settled() && now - self.moved_at >= self.patience {
            self.next = self.settled + 1;
            self.moved_at = now;
            self.patience = (self.patience * 2).min(4 * RESEND_MS);
        }
    }

    /// The next report to be sent, one at a time.
    pub(super) fn send(&mut self, node: &NodeName) -> Option<Rc<Report>> {
        let (epoch, body) = self.entries.get(&self.next).filter(|_| self.in_flight.is_none())?;
        self.in_flight = Some(self.next);
        let at = SpoolPosition { spool: self.id, offset: self.next };
        let (node, kept_from) = (node.clone(), self.settled + 1);
        Some(Rc::new(Report { node, epoch: *epoch, at, kept_from, body: body.clone(), traceparent: None }))
    }

    /// How the sending of an offset ended.
    pub(super) fn sent(&mut self, now: u64, at: SpoolPosition, well: bool) {
        if at.spool != self.id || self.in_flight != Some(at.offset) {
            return;
        }
        self.in_flight = None;
        if well {
            self.next = self.next.max(at.offset + 1);
            self.moved_at = now;
        }
    }
}
