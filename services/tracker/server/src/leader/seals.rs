//! Seals: each ended run is looked at until everything of it is stored, or its deadline has come.

use super::Work;
use crate::write::Author;
use footplate_events::{Event, Subject};
use footplate_series::SourceState;
use footplate_service::continue_trace;
use footplate_tracker_core::{LatestFigure, Run, Sealing, SessionStored, Stored, decide_seal};
use footplate_types::{NodeName, RunId, SpoolId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ended runs looked at in one go; the others have their turn next.
const LOOK_MAX: usize = 64;

/// When this leader first saw each run ended, on its own clock.
#[derive(Default)]
pub(super) struct Seals {
    ended: BTreeMap<RunId, Duration>,
    next: usize,
}

impl Seals {
    /// Looks at ended runs and seals those that are ready.
    pub(super) async fn look(&mut self, work: &Work, opened: &[Arc<Run>], settled: &BTreeMap<(NodeName, SpoolId), u64>) {
        let now = work.clock.elapsed();
        let ended: Vec<&Arc<Run>> = opened.iter().filter(|run| run.ended.is_some() && run.seal.is_none()).collect();
        self.ended.retain(|id, _| ended.iter().any(|run| run.id == *id));
        for run in &ended {
            self.ended.entry(run.id).or_insert(now);
        }
        if ended.is_empty() {
            return;
        }
        let from = self.next % ended.len();
        self.next = from + LOOK_MAX;
        for run in ended.iter().cycle().skip(from).take(LOOK_MAX.min(ended.len())) {
            let since = now.saturating_sub(self.ended.get(&run.id).copied().unwrap_or(now));
            seal(work, run, settled, since).await;
        }
    }
}

async fn seal(work: &Work, run: &Run, settled: &BTreeMap<(NodeName, SpoolId), u64>, since: Duration) {
    let state = match work.reads.stored(run.id).await {
        Ok(state) => state,
        Err(refusal) => {
            tracing::warn!(run = %run.id, %refusal, "the run's metrics cannot be looked at now");
            return;
        }
    };
    let stored = stored_of(run, &state, settled);
    let (Some(ended), Some(chain)) = (&run.ended, &run.chain) else { return };
    let fact = match decide_seal(run, &stored, since, &work.seal) {
        Sealing::Seal(fact) => fact,
        Sealing::Waits(missing) => {
            tracing::trace!(run = %run.id, ?missing, "the seal waits");
            return;
        }
        Sealing::Nothing => return,
    };
    let author = Author::answering(chain.cause(ended.event), &Subject::run(&run.project, run.id), "sealed");
    // The record covers the state that was looked at: when another event came first, the next look decides again.
    let looked_at = run.sequence;
    let decided = AtomicBool::new(false);
    let decide = |state: &Run| -> Result<Vec<Event>, footplate_api::Refusal> {
        let stands = state.seal.is_none() && state.sequence == looked_at;
        decided.store(stands, Ordering::Relaxed);
        Ok(if stands { vec![(*fact).clone().into()] } else { Vec::new() })
    };
    match work.writer.run_with(&run.project, run.id, &author, decide).await {
        Ok(sequence) if decided.load(Ordering::Relaxed) => {
            let counter = if fact.complete { &work.figures.sealed_complete } else { &work.figures.sealed_incomplete };
            counter.inc();
            let cause = chain.cause(ended.event);
            let span = tracing::info_span!("seal", otel.name = "footplate.run.sealed.v1", service = "tracker", run = %run.id);
            if let Some(trace) = &cause.trace {
                continue_trace(&span, trace.as_str());
            }
            span.in_scope(|| tracing::info!(complete = fact.complete, points = fact.points, sequence, "sealed"));
            if let Err(refusal) = work.writer.view().at_least(sequence).await {
                tracing::debug!(%refusal, "the seal is not seen yet");
            }
        }
        Ok(_) => {}
        Err(refusal) => tracing::debug!(run = %run.id, %refusal, "the seal is tried again"),
    }
}

fn stored_of(run: &Run, state: &SourceState, settled: &BTreeMap<(NodeName, SpoolId), u64>) -> Stored {
    let sessions = state.sessions.iter().map(|progress| SessionStored {
        attempt: progress.key.attempt,
        rank: progress.key.rank,
        session: progress.key.session,
        contiguous: progress.contiguous,
    });
    let latest = state.series.iter().map(|summary| LatestFigure {
        attempt: summary.key.attempt,
        rank: summary.key.rank,
        name: summary.key.name.clone(),
        step: summary.stats.latest.step,
        value: summary.stats.latest.value,
        min: summary.stats.min,
        max: summary.stats.max,
        count: summary.stats.count,
    });
    let on_its_nodes = |node: &NodeName| run.attempts.values().any(|attempt| attempt.members.values().any(|member| member.node == *node));
    let settled = settled.iter().filter(|((node, _), _)| on_its_nodes(node)).map(|(key, offset)| (key.clone(), *offset));
    Stored { sessions: sessions.collect(), latest: latest.collect(), settled: settled.collect() }
}
