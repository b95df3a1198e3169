//! A member's last words: after its tree is empty, everything it wrote, said and handed over, then `exited`.

use super::{Members, Open, locked};
use crate::{
    core::{End, MemberKey},
    last_words,
    shim::{Exit as ShimExit, MemberState},
    socket::close_desk,
};
use footplate_events::{
    facts::{FinalOffsets, INCOMPLETE_MAX, MemberExited, SessionEnd, StopCause, cut_text},
    messages::Task,
};
use std::{fs::OpenOptions, io::Write as _, time::Duration};
use tokio::time::Instant;

/// Pause before a member that cannot be looked at is looked at again.
const PAUSE: Duration = Duration::from_secs(1);

/// What came out of a member's log files and socket at its end.
#[derive(Default)]
struct Drained {
    sessions: Vec<SessionEnd>,
    /// What did not come out, or could not be stored.
    lacking: Vec<String>,
}

impl Members {
    pub(super) async fn gather_member(&self, key: MemberKey, task: &Task, end: End) -> MemberExited {
        let open = loop {
            match self.open(key, task) {
                Ok(open) => break open,
                Err(error) => tracing::error!(%error, member = %key, "member folder"),
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.end_set_up(&open).await;
        let record = self.ended_record(&open, &end).await;
        note(&open, &end, record.as_ref());
        let drained = self.drain(key, &open).await;
        *locked(&open.port) = None;
        self.exited(&open, task, end, record, drained)
    }

    /// How the workers ended; `None` when none was ever started.
    async fn ended_record(&self, open: &Open, end: &End) -> Option<ShimExit> {
        let shim = open.workers();
        if *end != End::Recorded && !shim.path().exists() {
            return None;
        }
        self.end_tree(&shim, &open.marker).await;
        match shim.state() {
            Ok(MemberState::Ended(exit)) => Some(exit),
            Ok(MemberState::NotStarted | MemberState::Running(_) | MemberState::Orphaned(_)) => None,
            Err(error) => {
                tracing::error!(%error, marker = %open.marker, "record of the end");
                None
            }
        }
    }

    /// Takes in the rest of the log files and of the socket, and waits for uploads.
    async fn drain(&self, key: MemberKey, open: &Open) -> Drained {
        let (timings, spools) = (self.config.timings, &self.intake.spools);
        let mut drained = Drained::default();
        open.following.cancel();
        let deadline = Instant::now() + timings.room_patience;
        if let Some(follower) = open.follower.lock().await.take() {
            let _ = tokio::time::timeout_at(deadline, follower).await;
        }
        let pumped = tokio::time::timeout_at(deadline, async {
            let mut tail = open.tail.lock().await;
            while tail.pump(&spools.logs).await {}
            tail.has_rest()
        });
        if pumped.await.unwrap_or(true) {
            drained.lacking.push("the end of the logs (not taken in)".to_owned());
        }
        if let Some(desk) = self.intake.desk(key.run, key.attempt, key.member) {
            let full = spools.metrics.is_full() || spools.tracker.is_full();
            let patience = if full { timings.room_patience } else { timings.drain_patience };
            let closed = close_desk(&desk, patience, timings.upload_patience).await;
            drained.sessions = closed.sessions;
            drained.lacking.extend(closed.lacking);
        }
        drained.lacking.truncate(INCOMPLETE_MAX);
        if !drained.lacking.is_empty() {
            tracing::error!(marker = %open.marker, lacking = ?drained.lacking, "its end is reported before everything it logged was stored");
        }
        drained
    }

    fn exited(&self, open: &Open, task: &Task, end: End, record: Option<ShimExit>, drained: Drained) -> MemberExited {
        let spools = &self.intake.spools;
        let offsets = FinalOffsets {
            spool: Some(self.spool),
            tracker: spools.tracker.durable(),
            logs: spools.logs.durable(),
            sessions: drained.sessions,
            incomplete: drained.lacking,
        };
        let stderr = |rank: u32| open.log(&format!("{rank}.err"));
        let workers = record.as_ref().map(|record| last_words::worker_exits(record, &open.dir, stderr)).unwrap_or_default();
        let (obeyed, not_started) = match (&end, &record) {
            (End::Stopped(cause), None) => (Some(*cause), None),
            (End::NotStarted(why), None) => (None, Some(cut_text(why))),
            (End::Recorded, None) => (None, Some("the agent was started anew before the workers were; they never ran".to_owned())),
            (_, Some(record)) => (last_words::obeyed(record), never_started(record)),
        };
        MemberExited { member: task.member, node: self.config.node.clone(), epoch: task.epoch, obeyed, workers, not_started, offsets }
    }
}

/// Why no worker at all could be started by this machine. A program that is not there is the job's own fault, and an exit as a shell's.
fn never_started(record: &ShimExit) -> Option<String> {
    let own = record.workers.iter().filter(|worker| worker.code.is_none());
    let errors: Vec<&String> = own.filter_map(|worker| worker.launch_error.as_ref()).collect();
    if errors.len() == record.workers.len() { errors.first().map(|error| cut_text(error)) } else { None }
}

/// What the platform has to say goes into the attempt's log.
fn note(open: &Open, end: &End, record: Option<&ShimExit>) {
    let mut lines = Vec::new();
    match (end, record) {
        (End::NotStarted(why), _) => lines.push(format!("not started: {why}")),
        (End::Stopped(cause), _) => lines.push(format!("stopped before the start: {}", spoken(*cause))),
        (End::Recorded, None) => lines.push("not started: the agent was started anew in between".to_owned()),
        (End::Recorded, Some(_)) => {}
    }
    if let Some(record) = record {
        if let Some(cause) = last_words::obeyed(record) {
            lines.push(format!("stopped: {}", spoken(cause)));
        }
        if record.lease_expired {
            lines.push("killed: the node's lease had run out".to_owned());
        }
        if record.shim_lost {
            lines.push("the supervisor of this member died; what it left was killed".to_owned());
        }
        if record.leftovers_killed > 0 {
            lines.push(format!("{} processes outlived the workers and were killed", record.leftovers_killed));
        }
        if record.out_of_memory {
            lines.push("the kernel killed for want of memory".to_owned());
        }
    }
    if lines.is_empty() {
        return;
    }
    let text: String = lines.into_iter().map(|line| format!("footplate: {line}\n")).collect();
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(open.log("platform")) {
        let _ = file.write_all(text.as_bytes());
    }
}

fn spoken(cause: StopCause) -> String {
    serde_json::to_value(cause).ok().and_then(|value| value.as_str().map(|name| name.replace('_', " "))).unwrap_or_default()
}
