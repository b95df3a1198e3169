//! Archives: when a member is released and its last chunk is packed, each of its logs becomes one blob.

use super::packs::{Pack, Packs, unseen};
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
    finished: BTreeMap<(AttemptId, MemberIndex), Finished>,
    durable: BTreeMap<(NodeName, SpoolId), u64>,
    led_at: Option<Duration>,
}

/// What was archived, and from which packs.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    fact: AttemptLogsArchived,
    packs: Vec<Pack>,
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
        self.lock().finished.get(&(attempt, member)).map(|finished| finished.fact.clone())
    }

    /// Whether a member's logs can be archived now, and then whether they are whole.
    pub(crate) fn is_due(&self, member: &MemberState) -> Option<bool> {
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
                Ok(finished) => {
                    self.lock().finished.insert((attempt, index), finished);
                    self.wake.notify_one();
                }
                Err(error) => tracing::warn!(%attempt, member = %index, error, "logs are not archived yet, trying again"),
            }
        }
    }

    async fn archive(&self, attempt: AttemptId, index: MemberIndex, member: &MemberState, complete: bool) -> Result<Finished, String> {
        let (mut logs, mut packs) = (Vec::new(), Vec::new());
        for key in self.packs.logs_of(attempt, index).await? {
            let of_log = self.packs.list(&key).await?;
            let blob = self.archive_one(of_log.clone()).await?;
            logs.push(LogArchive { rank: key.rank, stream: key.stream, digest: blob.digest, bytes: blob.bytes });
            packs.extend(of_log);
        }
        Ok(Finished { fact: AttemptLogsArchived { member: index, node: member.node.clone(), complete, logs }, packs })
    }

    async fn archive_one(&self, packs: Vec<Pack>) -> Result<footplate_blobs::BlobRef, String> {
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

    /// Removes the packs that archives in the ledger were made of, and no others. What a lost member's node sends when it is back is packed after
    /// its archive, and stays: the packs are all there is of it. What could not be removed is tried again at the next sweep.
    pub(crate) async fn sweep(&self, standing: Vec<((AttemptId, MemberIndex), Vec<Pack>)>) {
        for (of, packs) in standing {
            let mut is_swept = true;
            for pack in &packs {
                if let Err(error) = self.packs.delete(pack).await {
                    tracing::debug!(attempt = %of.0, error, "a pack stays until the next sweep");
                    is_swept = false;
                }
            }
            if is_swept {
                self.lock().finished.remove(&of);
            }
        }
    }

    /// The packs of archives that are stored and stand in the ledger. Where another instance's stands there, made of other packs, nothing is
    /// known of which it holds, and all stay.
    pub(crate) fn sweepable(&self, state: &Executor) -> Vec<((AttemptId, MemberIndex), Vec<Pack>)> {
        let mut standing = Vec::new();
        self.lock().finished.retain(|(attempt, index), finished| {
            let member = state.attempt(attempt).and_then(|attempt| attempt.members.get(index));
            match member.and_then(|member| member.archived.as_ref()) {
                Some(archived) if *archived == finished.fact => {
                    standing.push(((*attempt, *index), finished.packs.clone()));
                    true
                }
                Some(_) => false,
                None => true,
            }
        });
        standing
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::packs::LogKey;
    use super::*;
    use footplate_events::facts::LogStream;
    use footplate_types::{AttemptNumber, Rank, RunId};

    #[tokio::test]
    async fn what_a_lost_members_node_sends_after_its_archive_is_not_swept_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::new(Blobs::local(folder.path()).unwrap(), Arc::default());
        let attempt = AttemptId { run: RunId::from_bytes([1; 16]), attempt: AttemptNumber(1) };
        let key = LogKey { attempt, member: MemberIndex(0), rank: Rank(0), stream: LogStream::Stdout };
        archive.packs.put(&key, 0, 1, Bytes::from_static(b"first")).await.unwrap();
        // After a hole, which the archive has not: it is shorter than where its log ends.
        archive.packs.put(&key, 10, 2, Bytes::from_static(b"later")).await.unwrap();
        let packs = archive.packs.list(&key).await.unwrap();
        assert_eq!(archive.archive_one(packs.clone()).await.unwrap().bytes, 10);
        // The node is back before the archive stands in the ledger: one pack that begins within it, and one beyond.
        archive.packs.put(&key, 12, 3, Bytes::from_static(b"ter, more")).await.unwrap();
        archive.packs.put(&key, 21, 4, Bytes::from_static(b" and last")).await.unwrap();
        archive.sweep(vec![((attempt, key.member), packs)]).await;
        let left: Vec<(u64, u64)> = archive.packs.list(&key).await.unwrap().iter().map(|pack| (pack.at, pack.bytes)).collect();
        assert_eq!(left, [(12, 9), (21, 9)]);
    }
}
