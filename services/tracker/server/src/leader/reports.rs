//! Agents' reports about their workers' runs, folded into the ledger, then settled.

use super::Work;
use crate::write::Author;
use footplate_api::{Kind, Refusal, reason};
use footplate_blobs::BlobError;
use footplate_es::Decide;
use footplate_eventlog::inbox::{Inbox, Waiting, read_settled};
use footplate_eventlog::{Expect, Headers, LedgerItem, Message, PublishError, StreamName};
use footplate_events::facts::LoggedArtifact;
use footplate_events::messages::{ReportBody, Settled, SpoolPosition, TrackerReport, settled_subject};
use footplate_events::{Event, Subject, Trace};
use footplate_tracker_core::{Asked, Run, RunFacts, asked, member_of, report_event_id};
use footplate_types::{EventId, NodeName, PrincipalId, ProjectName, RunId, SpoolId};
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Reports folded before they are settled.
const BATCH: usize = 256;

/// Runs whose reports are folded at the same time.
const RUNS_AT_ONCE: usize = 32;

/// Runs whose events' ids are remembered.
const KNOWN_RUNS_MAX: usize = 1_000;

/// How often a settled position is read again and written when another writer came between.
const SETTLE_TRIES: u32 = 8;

/// The wait after something could not be done now.
const AGAIN: Duration = Duration::from_millis(200);

/// The folding of one time of leading.
pub(super) struct Reports {
    inbox: Inbox,
    /// Up to where each spool is folded, also spools that their node has left behind.
    settled: BTreeMap<(NodeName, SpoolId), u64>,
    /// The ids of runs' events as they stood when this leader first folded a report of the run: a report folded by an earlier leader that
    /// was not settled is among them.
    known: BTreeMap<(ProjectName, RunId), BTreeSet<EventId>>,
}

/// What became of one report.
enum Folded {
    /// It is in the ledger, or there was nothing new in it, or it was refused: it may be settled.
    Done,
    /// Something was away: it and what follows of its run is tried again.
    Later,
}

impl Reports {
    /// Reads what earlier leaders have settled.
    pub(super) async fn begin(work: &Work, inbox: Inbox, stint: &CancellationToken) -> Self {
        let mut reports = Self { inbox, settled: BTreeMap::new(), known: BTreeMap::new() };
        let remembered = work.writer.view().file_settled();
        let told = tokio::select! {
            () = stint.cancelled() => Vec::new(),
            told = read_settled(work.broker.as_ref(), "tracker") => told,
        };
        for Settled { node, up_to } in remembered.into_iter().chain(told) {
            reports.note(node, up_to);
        }
        reports
    }

    /// Reads again what is told as settled: another instance may have come further than this leader has seen.
    pub(super) async fn refresh(&mut self, work: &Work, stint: &CancellationToken) {
        let told = stint.run_until_cancelled(read_settled(work.broker.as_ref(), "tracker")).await;
        for Settled { node, up_to } in told.into_iter().flatten() {
            self.note(node, up_to);
        }
    }

    /// Up to which offset reports of each spool are folded.
    pub(super) fn settled(&self) -> &BTreeMap<(NodeName, SpoolId), u64> {
        &self.settled
    }

    fn note(&mut self, node: NodeName, up_to: SpoolPosition) {
        let offset = self.settled.entry((node, up_to.spool)).or_insert(0);
        *offset = up_to.offset.max(*offset);
    }

    /// Folds what waits, run by run; answers whether more waits.
    pub(super) async fn fold(&mut self, work: &Work) -> bool {
        let waiting = self.inbox.peek(work.writer.view().live().position(), BATCH);
        if waiting.is_empty() {
            return false;
        }
        self.know(work, &waiting).await;
        let done = fold_all(work, &waiting, &self.known).await;
        let count = done.iter().take_while(|done| **done).count();
        if count > 0 && !self.settle(work, &waiting[..count]).await {
            return false;
        }
        if count < waiting.len() {
            tokio::time::sleep(AGAIN).await;
        }
        !self.inbox.is_empty()
    }

    /// Reads the ids of the events of runs that this leader has not folded reports of before.
    async fn know(&mut self, work: &Work, waiting: &[Waiting]) {
        if self.known.len() > KNOWN_RUNS_MAX {
            self.known.clear();
        }
        for waiting in waiting {
            let ReportBody::Tracker(report) = &waiting.report.body else { continue };
            let of = member_of(report);
            let key = (of.project.clone(), of.run);
            if self.known.contains_key(&key) {
                continue;
            }
            match work.writer.view().ledger().aggregate(&Subject::run(&of.project, of.run)).await {
                Ok(items) => {
                    let id = |item: LedgerItem| if let LedgerItem::Fact(recorded) = item { Some(recorded.envelope.id) } else { None };
                    self.known.insert(key, items.into_iter().filter_map(id).collect());
                }
                Err(error) => tracing::debug!(%error, run = %of.run, "the run's events cannot be read now"),
            }
        }
    }

    /// Remembers and tells up to where reports are folded, never lower than what is told already.
    async fn settle(&mut self, work: &Work, folded: &[Waiting]) -> bool {
        let mut up_to: BTreeMap<(NodeName, SpoolId), SpoolPosition> = BTreeMap::new();
        for waiting in folded {
            up_to.insert((waiting.node.clone(), waiting.report.at.spool), waiting.report.at);
        }
        for ((node, _), position) in up_to {
            let settled = Settled { node: node.clone(), up_to: position };
            work.writer.view().settle_in_file(&settled);
            if let Err(error) = publish(work, &settled).await {
                tracing::warn!(%error, %node, "a settled position was not told now");
                return false;
            }
            self.note(node, position);
        }
        self.inbox.forget(folded.len());
        true
    }
}

/// Publishes a settled position, expecting the one before: a deposed leader never lowers it.
async fn publish(work: &Work, settled: &Settled) -> Result<(), String> {
    let subject = settled_subject(&settled.node, "tracker");
    let payload = serde_json::to_vec(settled).map_err(|error| error.to_string())?;
    for _ in 0..SETTLE_TRIES {
        let last = work.broker.last(StreamName::Settled, &subject).await.map_err(|error| error.to_string())?;
        let told = last.as_ref().and_then(|last| serde_json::from_slice::<Settled>(&last.payload).ok());
        let is_covered = told.is_some_and(|told| told.up_to.spool == settled.up_to.spool && told.up_to.offset >= settled.up_to.offset);
        if is_covered {
            return Ok(());
        }
        let expect = Expect::Subject(last.map_or(0, |last| last.sequence));
        let message = Message { subject: subject.clone(), headers: Headers::default(), payload: payload.clone().into() };
        match work.broker.publish(StreamName::Settled, message, expect).await {
            Ok(_) => return Ok(()),
            Err(PublishError::Conflict | PublishError::Unknown(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("another writer settles {} at the same time", settled.node))
}

/// Folds reports: those of one run in their order, different runs side by side. One answer a report, in order.
async fn fold_all(work: &Work, waiting: &[Waiting], known: &BTreeMap<(ProjectName, RunId), BTreeSet<EventId>>) -> Vec<bool> {
    let mut by_run: BTreeMap<(ProjectName, RunId), Vec<usize>> = BTreeMap::new();
    let mut done = vec![true; waiting.len()];
    for (at, waiting) in waiting.iter().enumerate() {
        match &waiting.report.body {
            ReportBody::Tracker(report) => {
                let of = member_of(report);
                by_run.entry((of.project.clone(), of.run)).or_default().push(at);
            }
            ReportBody::Executor(_) | ReportBody::Inventory(_) => refuse(work, waiting, "it is no report to the tracker"),
        }
    }
    let runs = by_run.into_iter().map(|(key, places)| async move {
        let Some(known) = known.get(&key) else { return places };
        for (turn, at) in places.iter().enumerate() {
            if let Folded::Later = fold_one(work, &waiting[*at], known).await {
                return places[turn..].to_vec();
            }
        }
        Vec::new()
    });
    let undone: Vec<Vec<usize>> = futures::stream::iter(runs).buffer_unordered(RUNS_AT_ONCE).collect().await;
    for at in undone.into_iter().flatten() {
        done[at] = false;
    }
    done
}

fn refuse(work: &Work, waiting: &Waiting, why: &str) {
    let at = waiting.report.at;
    tracing::warn!(node = %waiting.node, spool = %at.spool, offset = at.offset, why, "a report is refused");
    work.figures.reports_refused.inc();
}

async fn fold_one(work: &Work, waiting: &Waiting, known: &BTreeSet<EventId>) -> Folded {
    let ReportBody::Tracker(report) = &waiting.report.body else { return Folded::Done };
    let of = member_of(report);
    let at = waiting.report.at;
    let id = report_event_id(at.spool, at.offset);
    if known.contains(&id) {
        return Folded::Done;
    }
    let state = work.writer.view().known(&of.project, of.run).unwrap_or_else(|| Run::new(of.project.clone(), of.run).into());
    if let Err(refused) = state.check_claim(of, &waiting.node) {
        refuse(work, waiting, &refused.to_string());
        return Folded::Done;
    }
    match check_stored(work, report).await {
        Ok(()) => {}
        Err(refusal) => return not_now(work, waiting, &refusal),
    }
    let trace = waiting.report.traceparent.as_deref().and_then(Trace::parse);
    let trace = trace.or_else(|| state.chain.as_ref().and_then(|chain| chain.trace.as_deref()).and_then(Trace::parse));
    let author = Author { actor: PrincipalId::of_node(&waiting.node), trace, cause: None, id };
    let decide = |state: &Run| -> Result<Vec<Event>, Refusal> {
        match asked(report) {
            Asked::Command(command) => state.decide(command, &RunFacts).map_err(crate::error::run_refused),
            Asked::Word(finished) => Ok(vec![finished.into()]),
        }
    };
    match work.writer.run_with(&of.project, of.run, &author, decide).await {
        Ok(sequence) => match work.writer.view().at_least(sequence).await {
            Ok(()) => {
                work.figures.reports_folded.inc();
                Folded::Done
            }
            Err(refusal) => not_now(work, waiting, &refusal),
        },
        Err(refusal) => not_now(work, waiting, &refusal),
    }
}

/// Whether a report may be taken later, by what kind of no it met: what this instance could not do now is no fault of the report.
fn is_for_later(refusal: &Refusal) -> bool {
    matches!(refusal.kind, Kind::Unavailable | Kind::DeadlineExceeded | Kind::Internal)
        || [&reason::DISK_FULL, &reason::CHANGED_MEANWHILE, &reason::TOO_MANY_REQUESTS].iter().any(|reason| reason.word == refusal.reason)
}

/// Refuses the report for good, or tries it again later.
fn not_now(work: &Work, waiting: &Waiting, refusal: &Refusal) -> Folded {
    if is_for_later(refusal) {
        tracing::debug!(node = %waiting.node, %refusal, "a report is tried again");
        return Folded::Later;
    }
    refuse(work, waiting, &refusal.message);
    Folded::Done
}

/// An artifact must be there before the ledger names it.
async fn check_stored(work: &Work, report: &TrackerReport) -> Result<(), Refusal> {
    let TrackerReport::Artifacts { artifacts, .. } = report else { return Ok(()) };
    check_artifacts(&work.blobs, artifacts).await
}

/// Every digest is stored, with the size that is said.
pub(crate) async fn check_artifacts(blobs: &footplate_blobs::Blobs, artifacts: &[LoggedArtifact]) -> Result<(), Refusal> {
    for artifact in artifacts {
        match blobs.stat(&artifact.digest).await {
            Ok(stored) if stored.bytes == artifact.bytes => {}
            Ok(stored) => {
                let message =
                    format!("{}: {} is stored with {} bytes, not {}", artifact.path, artifact.digest, stored.bytes, artifact.bytes);
                return Err(Refusal::new(&reason::INVALID_FIELD, message).field("artifacts.bytes").value(artifact.bytes));
            }
            Err(BlobError::NotFound { .. }) => {
                let message = format!("{}: no blob {} is stored", artifact.path, artifact.digest);
                return Err(Refusal::new(&reason::BLOB_NOT_FOUND, message).field("artifacts.digest").value(artifact.digest));
            }
            Err(error) => return Err(crate::error::blob_failed(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_for_want_of_room_or_time_is_taken_later() {
        let later = |reason| is_for_later(&Refusal::new(reason, "no"));
        for reason in
            [&reason::TOO_MANY_REQUESTS, &reason::DISK_FULL, &reason::CHANGED_MEANWHILE, &reason::BROKER_AWAY, &reason::VIEW_BEHIND]
        {
            assert!(later(reason), "{}", reason.word);
        }
        for reason in [&reason::INVALID_FIELD, &reason::BLOB_NOT_FOUND, &reason::TOO_LARGE, &reason::NODE_DENIED] {
            assert!(!later(reason), "{}", reason.word);
        }
    }
}
