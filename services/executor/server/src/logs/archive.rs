//! Archives: when a member is released and its last chunk is packed, each of its logs becomes one blob.

use super::packs::{LogKey, Packs, unseen};
use bytes::Bytes;
use footplate_blobs::Blobs;
use footplate_events::facts::{AttemptLogsArchived, LogArchive};
use footplate_executor_core::{Executor, MemberPhase, MemberState};
use footplate_types::{AttemptId, MemberIndex, NodeName, SpoolId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The largest archive of one log.
const ARCHIVE_BYTES_MAX: u64 = 1 << 40;

#[derive(Debug, Default)]
struct Table {
    finished: BTreeMap<(AttemptId, MemberIndex), AttemptLogsArchived>,
    durable: BTreeMap<(NodeName, SpoolId), u64>,
    led_at: Option<Duration>,
}

/// What is packed, and what is archived but not yet in the ledger. Shared by the collector, the leader and the readers.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub(crate) packs: Packs,
    pub(crate) blobs: Blobs,
    table: Arc<Mutex<Table>>,
    wake: Arc<Notify>,
}

/// How long after its last look a leader still counts as one, for the collector: it looks at least each minute.
const LEADS_FOR: Duration = Duration::from_secs(90);

impl Archive {
    pub(crate) fn new(blobs: Blobs, wake: Arc<Notify>) -> Self {
        Self { packs: Packs::new(blobs.clone()), blobs, table: Arc::default(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This instance has just looked as the leader.
    pub(crate) fn leads(&self, elapsed: Duration) {
        self.lock().led_at = Some(elapsed);
    }

    /// Whether this instance leads. Two collectors would do no harm (packs overlap, readers drop what they have), only double work.
    pub(crate) fn is_leading(&self, elapsed: Duration) -> bool {
        self.lock().led_at.is_some_and(|led_at| elapsed.saturating_sub(led_at) < LEADS_FOR)
    }

    /// Everything up to `offset` of a spool is durable.
    pub(crate) fn packed(&self, node: &NodeName, spool: SpoolId, offset: u64) {
        let mut table = self.lock();
        let known = table.durable.entry((node.clone(), spool)).or_default();
        *known = (*known).max(offset);
    }

    /// The archive of a member, once it is stored.
    pub(crate) fn finished(&self, attempt: AttemptId, member: MemberIndex) -> Option<AttemptLogsArchived> {
        self.lock().finished.get(&(attempt, member)).cloned()
    }

    fn is_due(&self, member: &MemberState) -> Option<bool> {
        match &member.phase {
            MemberPhase::Exited(exited) => {
                let Some(spool) = exited.offsets.spool else { return Some(true) };
                let durable = self.lock().durable.get(&(member.node.clone(), spool)).copied().unwrap_or(0);
                (durable >= exited.offsets.logs).then_some(true)
            }
            MemberPhase::Lost(_) => Some(false),
            MemberPhase::Placed | MemberPhase::Ready | MemberPhase::Started => None,
        }
    }

    /// Archives what is due. Called by the collector after each flush.
    pub(crate) async fn archive_due(&self, due: Vec<(AttemptId, MemberIndex, MemberState)>) {
        for (attempt, index, member) in due {
            if self.lock().finished.contains_key(&(attempt, index)) {
                continue;
            }
            let Some(complete) = self.is_due(&member) else { continue };
            match self.archive(attempt, index, &member, complete).await {
                Ok(fact) => {
                    self.lock().finished.insert((attempt, index), fact);
                    self.wake.notify_one();
                }
                Err(error) => tracing::warn!(%attempt, member = %index, error, "logs are not archived yet, trying again"),
            }
        }
    }

    async fn archive(
        &self,
        attempt: AttemptId,
        index: MemberIndex,
        member: &MemberState,
        complete: bool,
    ) -> Result<AttemptLogsArchived, String> {
        let mut logs = Vec::new();
        for key in self.packs.logs_of(attempt, index).await? {
            let blob = self.archive_one(&key).await?;
            logs.push(LogArchive { rank: key.rank, stream: key.stream, digest: blob.digest, bytes: blob.bytes });
        }
        Ok(AttemptLogsArchived { member: index, node: member.node.clone(), complete, logs })
    }

    async fn archive_one(&self, key: &LogKey) -> Result<footplate_blobs::BlobRef, String> {
        let packs = self.packs.list(key).await?;
        let store = self.packs.clone();
        let pieces = futures::stream::unfold((store, packs.into_iter(), 0u64), |(store, mut packs, mut cursor)| async move {
            for pack in packs.by_ref() {
                if pack.at + pack.bytes <= cursor {
                    continue;
                }
                let bytes = match store.get(&pack).await {
                    Ok(bytes) => bytes,
                    Err(error) => return Some((Err(std::io::Error::other(error)), (store, packs, cursor))),
                };
                if let Some((fresh, _)) = unseen(cursor, pack.at, &bytes) {
                    cursor = pack.at + pack.bytes;
                    return Some((Ok::<Bytes, std::io::Error>(fresh), (store, packs, cursor)));
                }
            }
            None
        });
        self.blobs.put_stream(Box::pin(pieces), None, ARCHIVE_BYTES_MAX).await.map_err(|error| error.to_string())
    }

    /// Removes the packs of members whose archive stands in the ledger.
    pub(crate) async fn sweep(&self, state: Vec<(AttemptId, MemberIndex)>) {
        for (attempt, index) in state {
            for key in self.packs.logs_of(attempt, index).await.unwrap_or_default() {
                for pack in self.packs.list(&key).await.unwrap_or_default() {
                    if let Err(error) = self.packs.delete(&pack).await {
                        tracing::debug!(%attempt, error, "a pack stays until the next sweep");
                    }
                }
            }
            self.lock().finished.remove(&(attempt, index));
        }
    }

    /// Members whose archive is stored; those among them that stand in the ledger may be swept.
    pub(crate) fn sweepable(&self, state: &Executor) -> Vec<(AttemptId, MemberIndex)> {
        let finished: Vec<(AttemptId, MemberIndex)> = self.lock().finished.keys().copied().collect();
        let stands = |(attempt, index): &(AttemptId, MemberIndex)| {
            state.attempt(attempt).and_then(|attempt| attempt.members.get(index)).is_some_and(|member| member.archived.is_some())
        };
        finished.into_iter().filter(stands).collect()
    }
}
