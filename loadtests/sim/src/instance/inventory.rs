//! The inventory's part: what agents tell, what operators ask, who is silent.

use super::inbox::Inbox;
use super::mind::{Acted, Look, Mind, Verdict};
use crate::broker::{Answer, Op};
use crate::instance::Service;
use crate::settings::MARGIN_MS;
use footplate_es::{Evolve, Project};
use footplate_events::Recorded;
use footplate_events::messages::{BeatMessage, BeatSeen, Report, ReportBody, Settled, SpoolPosition, Watch};
use footplate_gpu_inventory_core::{Inventory, Reported, decide};
use footplate_types::NodeName;
use std::rc::Rc;
use std::time::Duration;

/// The inventory's leading part.
#[derive(Default)]
pub(super) struct Keeping {
    state: Inventory,
    inbox: Inbox,
    watch: Watch,
}

fn reported(report: &Rc<Report>) -> Option<Reported> {
    match &report.body {
        ReportBody::Inventory(body) => Some(Reported { node: report.node.clone(), epoch: report.epoch, report: body.clone() }),
        ReportBody::Executor(_) | ReportBody::Tracker(_) => None,
    }
}

impl Mind for Keeping {
    fn fold(&mut self, recorded: &Recorded) {
        self.state.evolve(recorded);
    }

    fn fingerprint(&self) -> String {
        self.state.fingerprint()
    }

    fn term_began(&mut self, look: &Look) {
        self.inbox.taken = 0;
        self.watch.begin_again(Duration::from_millis(look.elapsed));
    }

    fn decide(&mut self, look: &Look) -> Verdict {
        let reports: Vec<Reported> = self.inbox.look(look.view).iter().filter_map(reported).collect();
        let (now, margin) = (Duration::from_millis(look.elapsed), Duration::from_millis(MARGIN_MS));
        let (decisions, wait) = decide(&self.state, &reports, &self.watch, now, margin);
        let wake_in = if self.inbox.has_more() { Some(20) } else { wait.map(|wait| wait.as_millis() as u64) };
        Verdict { decisions, wake_in, odd: None }
    }

    fn act(&mut self, _look: &Look) -> Result<Vec<Op>, ()> {
        Ok(self.inbox.settling(&Service::Inventory.name()))
    }

    fn acted(&mut self, op: &Op, answer: &Answer) -> Acted {
        match (op, answer) {
            (Op::Settle { settled, .. }, Ok(_)) => {
                self.inbox.cover(settled, false);
                Acted::Done
            }
            _ => Acted::Failed,
        }
    }

    fn all_acted(&mut self, well: bool) {
        if well {
            self.inbox.forget();
        }
    }

    fn saw_beat(&mut self, node: &NodeName, sequence: u64, message: &BeatMessage, elapsed: u64) {
        self.watch.saw(node.clone(), BeatSeen::of(sequence, message), Duration::from_millis(elapsed));
    }

    fn reported(&mut self, report: &Rc<Report>, needs_view: u64) {
        self.inbox.take(report, needs_view);
    }

    fn covered(&mut self, settled: &Settled, at_start: bool) {
        self.inbox.cover(settled, at_start);
    }

    fn has_taken(&self, node: &NodeName, up_to: SpoolPosition) -> bool {
        self.inbox.covers(node, up_to)
    }

    fn reconnected(&mut self, elapsed: u64) {
        self.watch.begin_again(Duration::from_millis(elapsed));
    }
}
