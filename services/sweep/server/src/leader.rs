//! The leading sweep service: closes and prunes trials, and suggests the points whose documents are stored.

use crate::objective::Objectives;
use crate::prepare::{Preparer, wanted_by};
use footplate_es::Decision;
use footplate_eventlog::{Decider, Live, Look, Verdict};
use footplate_events::Subject;
use footplate_events::facts::TrialSuggested;
use footplate_sweep_core::{DECISIONS_MAX, Draft, Seen, Sweeps, decide, drafts};
use footplate_types::SweepId;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Notify;

pub(crate) struct Lead {
    preparer: Preparer,
    objectives: Objectives,
    /// How many reports of the objective the last look has taken in.
    taken: usize,
    wake: Arc<Notify>,
}

impl Lead {
    pub(crate) fn new(preparer: Preparer, objectives: Objectives, wake: Arc<Notify>) -> Self {
        Self { preparer, objectives, taken: 0, wake }
    }

    /// The trials whose points are ready, of each sweep without a gap: their numbers follow one another.
    fn suggestions(&self, state: &Sweeps, wanted: &[Draft], view: u64) -> Vec<Decision> {
        let mut held_back: BTreeSet<SweepId> = BTreeSet::new();
        let mut decisions = Vec::new();
        for draft in wanted {
            let Some(sweep) = state.sweep(&draft.id.sweep).filter(|_| !held_back.contains(&draft.id.sweep)) else { continue };
            let Some(job) = self.preparer.job(draft) else {
                held_back.insert(draft.id.sweep);
                continue;
            };
            let fact = TrialSuggested { run: draft.id.run(), values: draft.values.clone(), job: job.clone(), view };
            decisions.push(Decision::new(Subject::trial(&draft.project, draft.id), fact, Some(sweep.created.clone())));
        }
        decisions
    }
}

impl Decider for Lead {
    type State = Sweeps;

    fn term_began(&mut self, _look: &Look) {
        self.taken = 0;
    }

    fn decide(&mut self, state: &Sweeps, look: &Look) -> Verdict {
        let seen: Vec<Seen> = self.objectives.peek();
        let mut decisions = decide(state, &seen);
        // A full look may have cut off what follows from a report: it is read again.
        self.taken = if decisions.len() + 2 <= DECISIONS_MAX { seen.len() } else { 0 };
        decisions.extend(self.suggestions(state, &drafts(state), look.view));
        Verdict { decisions, wake_in: None }
    }

    fn act<'a>(&'a mut self, live: &'a Live<Sweeps>, _look: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.objectives.take(self.taken);
            self.taken = 0;
            let (wanted, by) = {
                let state = live.read();
                let wanted = drafts(&state);
                let by = wanted_by(&state, &wanted);
                (wanted, by)
            };
            if self.preparer.prepare(&wanted, &by).await? {
                self.wake.notify_one();
            }
            Ok(())
        })
    }
}
