//! The collector: log chunks from the stream into packs, then settled with their agents.

use super::{Archive, packs::LogKey};
use bytes::{Bytes, BytesMut};
use footplate_clock::SharedClock;
use footplate_eventlog::inbox::{SpoolCursor, Turn, publish_settled, read_settled};
use footplate_eventlog::{Broker, Live, Stored, StreamName, TailItem};
use footplate_events::messages::{LogHeader, SpoolPosition};
use footplate_executor_core::{Executor, MemberState};
use footplate_types::{AttemptId, MemberIndex, NodeName};
use futures::{StreamExt, stream::BoxStream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest that a chunk waits for its pack.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// The longest that chunks wait for their pack while a released member waits for its last one.
const HURRY: Duration = Duration::from_millis(50);
/// The most bytes that wait for their packs.
const FLUSH_BYTES: usize = 4 << 20;
/// How many members are archived between two flushes at most.
const ARCHIVE_AT_ONCE: usize = 64;
/// How long settled chunks stay in the stream for whoever reads live.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3_600);
/// How often the stream is purged.
const PURGE_EVERY: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Buffer {
    pieces: BTreeMap<LogKey, Vec<(u64, u64, BytesMut)>>,
    bytes: usize,
    up_to: BTreeMap<NodeName, SpoolPosition>,
}

impl Buffer {
    fn take(&mut self, node: NodeName, header: &LogHeader, sequence: u64, payload: &Bytes) {
        let attempt = AttemptId { run: header.run, attempt: header.attempt };
        let key = LogKey { attempt, member: header.member, rank: header.rank, stream: header.stream };
        let pieces = self.pieces.entry(key).or_default();
        match pieces.last_mut() {
            Some((at, _, bytes)) if *at + bytes.len() as u64 == header.at => bytes.extend_from_slice(payload),
            _ => pieces.push((header.at, sequence, BytesMut::from(payload.as_ref()))),
        }
        self.bytes += payload.len();
        self.up_to.insert(node, SpoolPosition { spool: header.spool, offset: header.offset });
    }
}

struct Collector {
    broker: Arc<dyn Broker>,
    archive: Archive,
    live: Live<Executor>,
    clock: SharedClock,
    cursor: SpoolCursor,
    buffer: Buffer,
    purged_at: Duration,
}

/// Collects until shut down, while this instance leads.
pub(crate) async fn collect(
    broker: Arc<dyn Broker>,
    archive: Archive,
    live: Live<Executor>,
    clock: SharedClock,
    shutdown: CancellationToken,
) {
    let purged_at = clock.elapsed();
    let mut collector = Collector { broker, archive, live, clock, cursor: SpoolCursor::default(), buffer: Buffer::default(), purged_at };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = collector.run() => {}
    }
}

impl Collector {
    async fn run(&mut self) {
        while !self.archive.is_leading(self.clock.elapsed()) {
            tokio::time::sleep(FLUSH_AFTER / 10).await;
        }
        let settled = read_settled(self.broker.as_ref(), "logs").await;
        for settled in settled {
            self.cursor.settled(&settled.node, settled.up_to);
            self.archive.packed(&settled.node, settled.up_to.spool, settled.up_to.offset);
        }
        let mut tail = self.broker.tail(StreamName::Logs, Vec::new(), 1);
        let mut changes = self.live.changes();
        loop {
            let Some(came) = self.fill(&mut tail).await else { return };
            self.flush().await;
            self.archive_and_sweep().await;
            if !came {
                // Wait for a chunk's time or a change of the view (a member that was released).
                let _ = tokio::time::timeout(FLUSH_AFTER, changes.changed()).await;
            }
        }
    }

    /// Reads until there is enough for a flush, and says whether anything came at all; `None` when the tail has ended.
    async fn fill(&mut self, tail: &mut BoxStream<'static, TailItem>) -> Option<bool> {
        let mut came = false;
        let mut deadline = None;
        loop {
            let began = self.clock.elapsed();
            let hurry = match tokio::time::timeout(deadline.unwrap_or(HURRY), tail.next()).await {
                Ok(None) => return None,
                Ok(Some(TailItem::Message(message))) => {
                    came = true;
                    self.chunk(&message);
                    false
                }
                // Nothing was pending just then: what is here can soon be flushed when somebody waits for it. Not at once, since chunks that come
                // one by one have such a place after each.
                Ok(Some(TailItem::Position(_))) => self.someone_waits(),
                Err(_) => return Some(came),
            };
            let spent = self.clock.elapsed().saturating_sub(began);
            deadline = match deadline {
                None if self.buffer.bytes > 0 => Some(FLUSH_AFTER),
                None => None,
                Some(left) => Some(left.saturating_sub(spent)),
            };
            if hurry {
                deadline = Some(deadline.map_or(HURRY, |left| left.min(HURRY)));
            }
            if self.buffer.bytes >= FLUSH_BYTES || deadline.is_some_and(|left| left.is_zero()) {
                return Some(came);
            }
        }
    }

    fn someone_waits(&self) -> bool {
        self.live.read().unarchived().next().is_some()
    }

    fn chunk(&mut self, message: &Stored) {
        let node =
            message.subject.strip_prefix("fp.logs.").and_then(|rest| rest.split_once('.')).and_then(|(node, _)| NodeName::parse(node).ok());
        let header = LogHeader::from_headers(&message.headers);
        let (Some(node), Some(header)) = (node, header) else {
            tracing::warn!(subject = %message.subject, sequence = message.sequence, "a log chunk that is none was skipped");
            return;
        };
        let at = SpoolPosition { spool: header.spool, offset: header.offset };
        if self.cursor.take(&node, at, header.kept_from) != Turn::Next {
            return;
        }
        if self.is_claimed(&node, &header) {
            self.buffer.take(node, &header, message.sequence, &message.payload);
        } else {
            tracing::warn!(%node, run = %header.run, attempt = %header.attempt, "a log chunk of a member that is not on that node was dropped");
            self.buffer.up_to.insert(node, at);
        }
    }

    /// Whether the member stands on the node that sends its log. The view is at least as new as what the agent answers to: a placement.
    fn is_claimed(&self, node: &NodeName, header: &LogHeader) -> bool {
        let state = self.live.read();
        let attempt = AttemptId { run: header.run, attempt: header.attempt };
        match state.attempt(&attempt) {
            Some(attempt) => {
                attempt.project == header.project && attempt.members.get(&header.member).is_some_and(|member| member.node == *node)
            }
            // The view may not have come so far yet; a wrong claim is then harmless, since nothing refers to its packs.
            None => true,
        }
    }

    async fn flush(&mut self) {
        while !self.buffer.pieces.is_empty() || !self.buffer.up_to.is_empty() {
            match self.try_flush().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(error, "logs are not packed yet, trying again");
                    tokio::time::sleep(FLUSH_AFTER).await;
                }
            }
        }
    }

    async fn try_flush(&mut self) -> Result<(), String> {
        for (key, pieces) in &self.buffer.pieces {
            for (at, sequence, bytes) in pieces {
                self.archive.packs.put(key, *at, *sequence, Bytes::copy_from_slice(bytes)).await?;
            }
        }
        self.buffer.pieces.clear();
        self.buffer.bytes = 0;
        for (node, up_to) in &self.buffer.up_to {
            self.archive.packed(node, up_to.spool, up_to.offset);
            publish_settled(self.broker.as_ref(), "logs", node.clone(), *up_to).await?;
        }
        self.buffer.up_to.clear();
        Ok(())
    }

    async fn archive_and_sweep(&mut self) {
        let due: Vec<(AttemptId, MemberIndex, MemberState)> = {
            let state = self.live.read();
            // Those whose last chunk never came must not keep the others waiting.
            let due = state.unarchived().filter(|(.., member)| self.archive.is_due(member).is_some());
            due.take(ARCHIVE_AT_ONCE).map(|(attempt, index, _, member)| (attempt, index, member.clone())).collect()
        };
        self.archive.archive_due(due).await;
        let sweepable = self.archive.sweepable(&self.live.read());
        self.archive.sweep(sweepable).await;
        if self.clock.elapsed().saturating_sub(self.purged_at) >= PURGE_EVERY {
            self.purged_at = self.clock.elapsed();
            self.purge().await;
        }
    }

    /// Chunks that were packed a day ago leave the stream.
    async fn purge(&self) {
        let old = self.clock.now().as_millis() - KEPT_FOR.as_millis() as i64;
        let Ok(bounds) = self.broker.bounds(StreamName::Logs).await else { return };
        let mut below = bounds.first;
        while let Ok(page) = self.broker.read(StreamName::Logs, ">", below, 1_000).await {
            let kept = page.messages.iter().find(|message| message.recorded_at.as_millis() >= old);
            match (kept, page.next) {
                (Some(kept), _) => {
                    below = kept.sequence;
                    break;
                }
                (None, Some(next)) => below = next,
                (None, None) => break,
            }
        }
        if below > bounds.first
            && let Err(error) = self.broker.purge(StreamName::Logs, None, below).await
        {
            tracing::warn!(%error, "the log stream is not purged");
        }
    }
}
