//! The leading gpu-inventory: what agents tell, what operators ask, who is silent.

use footplate_clock::SharedClock;
use footplate_eventlog::beats::SharedBeats;
use footplate_eventlog::inbox::Inbox;
use footplate_eventlog::port::BATCH_MAX;
use footplate_eventlog::{Broker, Decider, Live, Look, Verdict};
use footplate_events::messages::ReportBody;
use footplate_gpu_inventory_core::{Inventory, Reported, decide};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// The most reports folded at one look.
const REPORTS_PER_LOOK: usize = 512;

pub(crate) struct Lead {
    broker: Arc<dyn Broker>,
    inbox: Inbox,
    beats: SharedBeats,
    margin: Duration,
    clock: SharedClock,
    taken: usize,
}

impl Lead {
    pub(crate) fn new(broker: Arc<dyn Broker>, inbox: Inbox, beats: SharedBeats, margin: Duration, clock: SharedClock) -> Self {
        Self { broker, inbox, beats, margin, clock, taken: 0 }
    }
}

impl Decider for Lead {
    type State = Inventory;

    fn term_began(&mut self, look: &Look) {
        self.taken = 0;
        self.beats.lock().watch.begin_again(look.elapsed);
    }

    fn decide(&mut self, state: &Inventory, look: &Look) -> Verdict {
        let waiting = self.inbox.peek(look.view, REPORTS_PER_LOOK);
        self.taken = waiting.len();
        let reported: Vec<Reported> = waiting
            .into_iter()
            .filter_map(|waiting| match waiting.report.body {
                ReportBody::Inventory(report) => Some(Reported { node: waiting.node, epoch: waiting.report.epoch, report }),
                ReportBody::Executor(_) | ReportBody::Tracker(_) => None,
            })
            .collect();
        let (mut decisions, wait) = decide(state, &reported, &self.beats.lock().watch, self.clock.elapsed(), self.margin);
        // One look appends one batch; what does not fit is decided again at the next.
        if decisions.len() > BATCH_MAX {
            decisions.truncate(BATCH_MAX);
            self.taken = 0;
        }
        let wake_in = if self.inbox.len() > self.taken { Some(Duration::from_millis(20)) } else { wait };
        Verdict { decisions, wake_in }
    }

    fn act<'a>(&'a mut self, _live: &'a Live<Inventory>, _look: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            if self.taken > 0 {
                self.inbox.settle(self.broker.as_ref(), self.taken).await?;
                self.taken = 0;
            }
            Ok(())
        })
    }
}
