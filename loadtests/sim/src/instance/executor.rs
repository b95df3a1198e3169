//! The executor's part: reports into attempts, fences, losses. (Logs are not simulated: nothing is archived.)

use super::inbox::Inbox;
use super::mind::{Acted, Look, Mind, Verdict};
use crate::broker::{Answer, Op, Trouble};
use crate::instance::Service;
use crate::settings::MARGIN_MS;
use footplate_es::{Evolve, Project};
use footplate_events::Recorded;
use footplate_events::messages::{BeatMessage, BeatSeen, Fence, Report, ReportBody, Settled, SpoolPosition, Watch};
use footplate_executor_core::{Executor, Reported, due_fences, fold_reports, losses};
use footplate_types::NodeName;
use std::rc::Rc;
use std::time::Duration;

/// The executor's leading part.
#[derive(Default)]
pub(super) struct Executing {
    state: Executor,
    inbox: Inbox,
    watch: Watch,
    acting: bool,
}

fn reported(reports: &[Rc<Report>]) -> Vec<Reported> {
    let to_executor = |report: &Rc<Report>| match &report.body {
        ReportBody::Executor(body) => Some(Reported { node: report.node.clone(), report: body.clone() }),
        ReportBody::Inventory(_) | ReportBody::Tracker(_) => None,
    };
    reports.iter().filter_map(to_executor).collect()
}

const MARGIN: Duration = Duration::from_millis(MARGIN_MS);

impl Mind for Executing {
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
        let reports = self.inbox.look(look.view);
        let (mut decisions, _) = fold_reports(&self.state, &reported(&reports));
        if decisions.is_empty() {
            decisions = losses(&self.state, &self.watch);
        }
        let (due, wait) = due_fences(&self.state, &self.watch, Duration::from_millis(look.elapsed), MARGIN);
        let again = self.inbox.has_more() || !due.is_empty();
        let wake_in = if again { Some(20) } else { wait.map(|wait| wait.as_millis() as u64) };
        Verdict { decisions, wake_in, odd: None }
    }

    fn act(&mut self, look: &Look) -> Result<Vec<Op>, ()> {
        let mut ops = Vec::new();
        self.acting = self.inbox.taken > 0;
        if self.acting {
            let unfolded = fold_reports(&self.state, &reported(&self.inbox.taken())).0.len();
            if unfolded > 0 {
                return Err(());
            }
            ops = self.inbox.settling(&Service::Executor.name());
        }
        let (due, _) = due_fences(&self.state, &self.watch, Duration::from_millis(look.elapsed), MARGIN);
        for (node, expect, epoch, reason) in due {
            let lease_ms = self.watch.nodes.get(&node).map_or(0, |known| known.seen.lease.as_millis() as u64);
            ops.push(Op::WriteBeat { expect, message: BeatMessage::Fence(Fence { node, epoch, reason, lease_ms }) });
        }
        Ok(ops)
    }

    fn acted(&mut self, op: &Op, answer: &Answer) -> Acted {
        match (op, answer) {
            (Op::Settle { settled, .. }, Ok(_)) => {
                self.inbox.cover(settled, false);
                Acted::Done
            }
            // On a conflict the node has beaten after all; an unknown outcome shows on the subject, or is tried again.
            (Op::WriteBeat { .. }, Ok(_) | Err(Trouble::Conflict | Trouble::Unknown)) => Acted::Done,
            _ => Acted::Failed,
        }
    }

    fn all_acted(&mut self, well: bool) {
        if well && self.acting {
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
