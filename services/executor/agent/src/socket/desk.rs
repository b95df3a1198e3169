//! One member at the local socket: who may log for it, how far each of its sessions was answered, its checkpoints, its standing stop.

use super::uploads::Uploads;
use crate::{durable, stage::StagedManifest};
use footplate_events::{
    facts::{DocumentRef, INCOMPLETE_MAX, SessionEnd, StopCause},
    messages::MemberRef,
};
use footplate_types::{AttemptNumber, Rank, SessionId};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How far a session was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Its worker.
    pub(crate) rank: Rank,
    /// The highest op answered.
    pub(crate) acked: u64,
    /// How many metric batches it has made.
    pub(crate) batches: u64,
}

/// One session. The lock of `progress` is held by the one connection that may take in its ops.
pub(crate) struct Session {
    pub(crate) progress: tokio::sync::Mutex<Progress>,
    /// Last known progress, for files and reports.
    known: Mutex<Progress>,
    current: Mutex<CancellationToken>,
}

impl Session {
    fn new(progress: Progress) -> Self {
        Self { progress: tokio::sync::Mutex::new(progress), known: Mutex::new(progress), current: Mutex::new(CancellationToken::new()) }
    }

    /// Ends the connection that the session has and gives the token of the new one.
    pub(crate) fn take_over(&self, connection: CancellationToken) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, connection).cancel();
    }

    pub(crate) fn note(&self, progress: Progress) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// A standing order to stop, as a training is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingStop {
    /// Why.
    pub cause: StopCause,
    /// When the tree is killed.
    pub kill_at: Instant,
}

impl StandingStop {
    /// The cause's name at the socket.
    pub(crate) const fn cause_name(&self) -> &'static str {
        match self.cause {
            StopCause::Cancelled => "cancelled",
            StopCause::Preempted => "preempted",
            StopCause::Drained => "node_drained",
            StopCause::NodeLost => "node_lost",
            StopCause::NotReady => "not_ready",
            StopCause::TimedOut => "timed_out",
            StopCause::MemberFailed => "gang_member_failed",
            StopCause::Shutdown => "shutdown",
            StopCause::Fenced => "superseded",
        }
    }

    /// What is left until KILL.
    pub(crate) fn grace_left_ms(&self) -> u64 {
        u64::try_from(self.kill_at.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A checkpoint that this member may resume from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalCheckpoint {
    pub(crate) step: Option<i64>,
    pub(crate) path: PathBuf,
    pub(crate) digest: String,
    pub(crate) metadata: String,
}

/// What a desk is opened with.
#[derive(Clone, Debug)]
pub struct DeskConfig {
    /// The member.
    pub of: MemberRef,
    /// Its folder.
    pub dir: PathBuf,
    /// The rank of its first worker.
    pub first_rank: Rank,
    /// How many workers it has.
    pub workers: u32,
    /// The newest whole checkpoint of an earlier attempt: (attempt, step, manifest).
    pub checkpoint: Option<(AttemptNumber, i64, DocumentRef)>,
    /// The trace of the submit.
    pub traceparent: Option<String>,
}

/// One member at the socket.
pub(crate) struct Desk {
    pub(crate) config: DeskConfig,
    sessions: Mutex<BTreeMap<SessionId, Arc<Session>>>,
    /// Held while what is known of them is written: every spool's trimming asks for it, and an older value must not follow a newer one.
    writing: Mutex<()>,
    stop: watch::Sender<Option<StandingStop>>,
    pub(crate) closed: CancellationToken,
    pub(crate) connections: TaskTracker,
    /// What was staged and waits to be stored.
    pub(crate) uploads: Arc<Uploads>,
    /// What was acknowledged and can never be stored or reported.
    lacking: Mutex<Vec<String>>,
    /// The newest checkpoint acknowledged here.
    latest: Mutex<Option<LocalCheckpoint>>,
    given: Mutex<BTreeSet<PathBuf>>,
    /// The earlier attempt's checkpoint once it is here.
    pub(crate) fetched: tokio::sync::Mutex<Option<LocalCheckpoint>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// Opens the desk.
    pub(crate) fn open(config: DeskConfig) -> io::Result<Self> {
        let known: BTreeMap<SessionId, Progress> = durable::read_json(&sessions_file(&config))?.unwrap_or_default();
        let sessions = known.into_iter().map(|(id, progress)| (id, Arc::new(Session::new(progress)))).collect();
        let uploads = Arc::new(Uploads::new(config.dir.join("staged")));
        Ok(Self {
            config,
            sessions: Mutex::new(sessions),
            writing: Mutex::default(),
            stop: watch::Sender::new(None),
            closed: CancellationToken::new(),
            connections: TaskTracker::new(),
            uploads,
            lacking: Mutex::default(),
            latest: Mutex::new(None),
            given: Mutex::new(BTreeSet::new()),
            fetched: tokio::sync::Mutex::new(None),
        })
    }

    /// Whether a worker of this rank is one of this member's.
    pub(crate) fn has_rank(&self, rank: Rank) -> bool {
        let first = self.config.first_rank.0;
        (first..first.saturating_add(self.config.workers)).contains(&rank.0)
    }

    /// The session, known or new.
    pub(crate) fn session(&self, id: SessionId, rank: Rank) -> Arc<Session> {
        let mut sessions = locked(&self.sessions);
        sessions.entry(id).or_insert_with(|| Arc::new(Session::new(Progress { rank, ..Progress::default() }))).clone()
    }

    /// Raises what is known of a session from a spool's entry; only before the first connection.
    pub(crate) async fn recover(&self, id: SessionId, rank: Rank, op: u64, batches: u64) {
        let session = self.session(id, rank);
        let mut progress = session.progress.lock().await;
        progress.acked = progress.acked.max(op);
        progress.batches = progress.batches.max(batches);
        session.note(*progress);
    }

    /// Makes what was answered durable without the spools' entries.
    pub(crate) fn write_sessions(&self) -> io::Result<()> {
        let _one_at_a_time = locked(&self.writing);
        let known: BTreeMap<SessionId, Progress> =
            locked(&self.sessions).iter().map(|(id, session)| (*id, *locked(&session.known))).collect();
        if known.is_empty() {
            return Ok(());
        }
        durable::write_json_while_there(&sessions_file(&self.config), &known)
    }

    /// How many metric batches each session made.
    pub(crate) fn session_ends(&self) -> Vec<SessionEnd> {
        let sessions = locked(&self.sessions);
        let progress = sessions.iter().map(|(id, session)| (*id, *locked(&session.known)));
        progress
            .filter(|(_, progress)| progress.batches > 0)
            .map(|(session, progress)| SessionEnd { rank: progress.rank, session, batches: progress.batches })
            .collect()
    }

    /// Tells every connection, now and later, that the member is being stopped.
    pub(crate) fn announce_stop(&self, stop: StandingStop) {
        self.stop.send_replace(Some(stop));
    }

    pub(crate) fn stop(&self) -> watch::Receiver<Option<StandingStop>> {
        self.stop.subscribe()
    }

    /// Waits until what the dead workers had sent is taken in, then takes in nothing more. `false` when `patience` ended first.
    pub(crate) async fn close(&self, patience: Duration) -> bool {
        self.connections.close();
        let drained = tokio::time::timeout(patience, self.connections.wait()).await.is_ok();
        self.closed.cancel();
        drained
    }

    /// Waits until every staged file is stored and reported. `false` when `patience` ended first.
    pub(crate) async fn uploaded(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.uploads.all_ended()).await.is_ok()
    }

    /// What was acknowledged will never be where it belongs: the member's end must say so.
    pub(crate) fn lacks(&self, what: String) {
        let mut lacking = locked(&self.lacking);
        if lacking.len() < INCOMPLETE_MAX {
            lacking.push(what);
        }
    }

    /// What was acknowledged and can never be stored or reported.
    pub(crate) fn lacking(&self) -> Vec<String> {
        locked(&self.lacking).clone()
    }

    /// Whether something staged here was acknowledged and never stored.
    pub(crate) fn holds_the_only_copy(&self) -> bool {
        self.uploads.pending() > 0 || !locked(&self.lacking).is_empty()
    }

    /// Folder of everything staged by this member.
    pub(crate) fn staged(&self) -> PathBuf {
        self.uploads.staged().to_owned()
    }

    pub(crate) fn set_latest(&self, step: Option<i64>, manifest: &StagedManifest, staged: &std::path::Path, metadata: &str) {
        let content = crate::stage::content(staged);
        let path = manifest.single().map_or_else(|| content.clone(), |name| content.join(name));
        let digest = format!("sha256:{}", manifest.digest());
        *locked(&self.latest) = Some(LocalCheckpoint { step, path, digest, metadata: metadata.to_owned() });
    }

    /// The newest checkpoint made here. Its files stay until the attempt ends, now that somebody reads them.
    pub(crate) fn give_latest(&self) -> Option<LocalCheckpoint> {
        let latest = locked(&self.latest).clone()?;
        locked(&self.given).insert(latest.path.clone());
        Some(latest)
    }

    /// Whether files of a staged checkpoint were given to somebody.
    pub(crate) fn was_given(&self, staged: &std::path::Path) -> bool {
        locked(&self.given).iter().any(|path| path.starts_with(staged))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.uploads.close();
    }
}

fn sessions_file(config: &DeskConfig) -> PathBuf {
    config.dir.join("sessions.json")
}
