//! The inbox of a service: reports in the order of their spools, each offset once; as `footplate_eventlog::inbox`.

use crate::broker::Op;
use footplate_events::messages::{Report, Settled, SpoolPosition};
use footplate_types::{NodeName, ServiceName, SpoolId};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The reports to one service that are not folded yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    next: BTreeMap<(NodeName, SpoolId), u64>,
    waiting: VecDeque<(Rc<Report>, u64)>,
    covered: BTreeMap<(NodeName, SpoolId), u64>,
    /// How many of the oldest the last look has taken.
    pub(super) taken: usize,
}

impl Inbox {
    /// The most reports folded at one look.
    const PER_LOOK: usize = 512;

    /// A position is settled; at the start nothing up to there is read again.
    pub(super) fn cover(&mut self, settled: &Settled, at_start: bool) {
        let key = (settled.node.clone(), settled.up_to.spool);
        if at_start {
            let next = self.next.entry(key.clone()).or_insert(1);
            *next = (*next).max(settled.up_to.offset + 1);
        }
        let covered = self.covered.entry(key).or_default();
        *covered = (*covered).max(settled.up_to.offset);
    }

    /// Whether it is settled up to there, whatever the stream has lost since.
    pub(super) fn covers(&self, node: &NodeName, at: SpoolPosition) -> bool {
        self.covered.get(&(node.clone(), at.spool)).is_some_and(|covered| *covered >= at.offset)
    }

    /// Takes a report's turn: the expected offset only.
    pub(super) fn take(&mut self, report: &Rc<Report>, needs_view: u64) {
        let next = self.next.entry((report.node.clone(), report.at.spool)).or_insert(1);
        *next = (*next).max(report.kept_from);
        if report.at.offset == *next {
            *next += 1;
            self.waiting.push_back((report.clone(), needs_view));
        }
    }

    /// Whether more waits than was taken.
    pub(super) fn has_more(&self) -> bool {
        self.waiting.len() > self.taken
    }

    /// The oldest reports that a view at `view` may fold; they are the taken ones from here on.
    pub(super) fn look(&mut self, view: u64) -> Vec<Rc<Report>> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(report, _)| !self.covers(&report.node, report.at));
        self.waiting = waiting;
        let foldable = self.waiting.iter().take(Self::PER_LOOK).take_while(|(_, needs)| *needs <= view);
        let reports: Vec<Rc<Report>> = foldable.map(|(report, _)| report.clone()).collect();
        self.taken = reports.len();
        reports
    }

    /// Those that were taken.
    pub(super) fn taken(&self) -> Vec<Rc<Report>> {
        self.waiting.iter().take(self.taken).map(|(report, _)| report.clone()).collect()
    }

    /// The calls that tell the nodes what was taken.
    pub(super) fn settling(&self, service: &ServiceName) -> Vec<Op> {
        let mut up_to: BTreeMap<NodeName, SpoolPosition> = BTreeMap::new();
        for (report, _) in self.waiting.iter().take(self.taken) {
            if !self.covers(&report.node, report.at) {
                up_to.insert(report.node.clone(), report.at);
            }
        }
        let settle = |(node, up_to)| Op::Settle { service: service.clone(), settled: Settled { node, up_to } };
        up_to.into_iter().map(settle).collect()
    }

    /// The taken ones are settled everywhere.
    pub(super) fn forget(&mut self) {
        self.waiting.drain(..self.taken.min(self.waiting.len()));
        self.taken = 0;
    }
}
