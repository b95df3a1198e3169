//! Inboxes: what agents report to a service, read in the order of their spools, each offset once.
//!
//! A reader takes offsets of one spool without a gap: what is ahead of the expected offset is left for the agent to send again (it does,
//! from what SETTLED does not cover), what is behind is a repeat. An entry leaves the inbox only when its service has made it durable.

use crate::port::{Broker, StreamName, TailItem};
use bytes::Bytes;
use footplate_events::messages::{Report, Settled, SpoolPosition, settled_subject};
use footplate_types::{NodeName, SpoolId, Timestamp};
use futures::StreamExt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

/// Which offset of each spool comes next.
#[derive(Clone, Debug, Default)]
pub struct SpoolCursor {
    next: BTreeMap<(NodeName, SpoolId), u64>,
}

/// What an offset turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The expected one: take it.
    Next,
    /// Taken before.
    Repeated,
    /// Something before it is missing; the agent will send both again.
    Gap,
}

impl SpoolCursor {
    /// Remembers that everything up to `up_to` is durable.
    pub fn settled(&mut self, node: &NodeName, up_to: SpoolPosition) {
        let next = self.next.entry((node.clone(), up_to.spool)).or_insert(1);
        *next = (*next).max(up_to.offset + 1);
    }

    /// Takes the turn of an offset; only [`Turn::Next`] moves the cursor.
    pub fn take(&mut self, node: &NodeName, at: SpoolPosition, kept_from: u64) -> Turn {
        let next = self.next.entry((node.clone(), at.spool)).or_insert(1);
        *next = (*next).max(kept_from);
        match at.offset.cmp(next) {
            std::cmp::Ordering::Less => Turn::Repeated,
            std::cmp::Ordering::Greater => Turn::Gap,
            std::cmp::Ordering::Equal => {
                *next += 1;
                Turn::Next
            }
        }
    }
}

/// One report that waits to be folded.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The node of the subject it came on.
    pub node: NodeName,
    /// The report.
    pub report: Report,
    /// The ledger sequence that the folding view must have reached: what the agent answers is in the ledger up to here.
    pub needs_view: u64,
    /// Its place in REPORTS.
    place: Place,
}

/// A place in REPORTS, and when the broker stored what stands there.
#[derive(Clone, Copy, Debug)]
struct Place {
    sequence: u64,
    at: Timestamp,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    refused: u64,
    /// Places up to which everything is settled, oldest first, a minute apart at least.
    settled: VecDeque<Place>,
    /// What is settled of each spool, by whichever instance.
    covered: BTreeMap<(NodeName, SpoolId), u64>,
}

impl Inner {
    fn note_settled(&mut self, place: Place) {
        let is_due = self.settled.back().is_none_or(|last| place.at.millis_since(last.at) >= SAMPLE_EVERY_MS);
        if is_due && self.settled.len() < SAMPLES_MAX {
            self.settled.push_back(place);
        }
    }

    fn cover(&mut self, settled: &Settled) {
        let covered = self.covered.entry((settled.node.clone(), settled.up_to.spool)).or_default();
        *covered = (*covered).max(settled.up_to.offset);
    }

    fn covers(&self, node: &NodeName, at: SpoolPosition) -> bool {
        self.covered.get(&(node.clone(), at.spool)).is_some_and(|covered| *covered >= at.offset)
    }

    /// Drops what another instance has settled meanwhile: folded again it would be stale news. Returns how many.
    fn drop_covered(&mut self) -> usize {
        let before = self.waiting.len();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|waiting| !self.covers(&waiting.node, waiting.report.at));
        self.waiting = waiting;
        before - self.waiting.len()
    }

    /// The newest place that was settled and is older than what is kept, at `now` of the broker's clock.
    fn purgeable(&mut self, now: Timestamp) -> Option<Place> {
        let mut found = None;
        while let Some(place) = self.settled.pop_front_if(|place| now.millis_since(place.at) >= KEEP_MS) {
            found = Some(place);
        }
        found
    }
}

/// How long settled reports stay in the stream: a day.
const KEEP_MS: u64 = 86_400_000;
/// The least time between two remembered places.
const SAMPLE_EVERY_MS: u64 = 60_000;
/// The most remembered places: two days of them.
const SAMPLES_MAX: usize = 2_880;

/// The reports to one service that are not folded yet. Bounded: the reader waits when it is full.
#[derive(Clone, Debug)]
pub struct Inbox {
    service: String,
    inner: Arc<Mutex<Inner>>,
    room: Arc<Semaphore>,
    wake: Arc<Notify>,
}

/// The most reports that wait in an inbox.
pub const INBOX_MAX: usize = 8_192;

impl Inbox {
    /// An empty inbox of `service`; `wake` is notified when something arrives.
    pub fn new(service: &str, wake: Arc<Notify>) -> Self {
        Self { service: service.to_owned(), inner: Arc::default(), room: Arc::new(Semaphore::new(INBOX_MAX)), wake }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest waiting reports that a view at `view` may fold, at most `most`.
    pub fn peek(&self, view: u64, most: usize) -> Vec<Waiting> {
        let mut inner = self.lock();
        let dropped = inner.drop_covered();
        self.room.add_permits(dropped);
        inner.waiting.iter().take(most).take_while(|waiting| waiting.needs_view <= view).cloned().collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages were no report of the node on whose subject they came.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// The oldest `count` reports are durable: forget them and tell their nodes.
    pub async fn settle(&self, broker: &dyn Broker, count: usize) -> Result<(), String> {
        let mut up_to: BTreeMap<NodeName, SpoolPosition> = BTreeMap::new();
        {
            let inner = self.lock();
            for waiting in inner.waiting.iter().take(count) {
                // A settled position is never lowered: another instance may have come further.
                if !inner.covers(&waiting.node, waiting.report.at) {
                    up_to.insert(waiting.node.clone(), waiting.report.at);
                }
            }
        }
        for (node, up_to) in up_to {
            publish_settled(broker, &self.service, node.clone(), up_to).await?;
            self.lock().cover(&Settled { node, up_to });
        }
        self.forget(count);
        Ok(())
    }

    /// The oldest `count` reports are durable and their nodes are told otherwise: forget them.
    pub fn forget(&self, count: usize) {
        let mut inner = self.lock();
        let count = count.min(inner.waiting.len());
        for place in inner.waiting.drain(..count).map(|waiting| waiting.place).collect::<Vec<_>>() {
            inner.note_settled(place);
        }
        drop(inner);
        self.room.add_permits(count);
    }

    /// Reads the service's reports from the stream into the inbox until shut down. What was settled a day ago is purged on the way, so
    /// that only a leader, whose reports are settled, purges.
    pub async fn fill(self, broker: Arc<dyn Broker>, shutdown: CancellationToken) {
        let following = self.clone().follow_settled(broker.clone(), shutdown.clone());
        tokio::join!(self.read_reports(broker, shutdown), following);
    }

    /// Remembers what is settled, by whichever instance, until shut down.
    async fn follow_settled(self, broker: Arc<dyn Broker>, shutdown: CancellationToken) {
        let mut tail = broker.tail(StreamName::Settled, vec![format!("fp.settled.*.{}", self.service)], 1);
        while let Some(Some(item)) = until_shutdown(&shutdown, tail.next()).await {
            let TailItem::Message(message) = item else { continue };
            if let Ok(settled) = serde_json::from_slice::<Settled>(&message.payload) {
                self.lock().cover(&settled);
            }
        }
    }

    async fn read_reports(self, broker: Arc<dyn Broker>, shutdown: CancellationToken) {
        let mut cursor = SpoolCursor::default();
        let Some(settled) = until_shutdown(&shutdown, read_settled(broker.as_ref(), &self.service)).await else { return };
        for settled in settled {
            cursor.settled(&settled.node, settled.up_to);
            self.lock().cover(&settled);
        }
        let filter = format!("fp.report.*.{}", self.service);
        let mut tail = broker.tail(StreamName::Reports, vec![filter.clone()], 1);
        loop {
            let item = tokio::select! {
                () = shutdown.cancelled() => return,
                item = tail.next() => item,
            };
            let Some(TailItem::Message(message)) = item else {
                if item.is_none() {
                    return;
                }
                continue;
            };
            let Some((node, report)) = read_report(&message.subject, &message.payload, &self.service) else {
                tracing::warn!(subject = %message.subject, sequence = message.sequence, "a report that is none was skipped");
                self.lock().refused += 1;
                continue;
            };
            let place = Place { sequence: message.sequence, at: message.recorded_at };
            self.purge(broker.as_ref(), &filter, message.recorded_at).await;
            match cursor.take(&node, report.at, report.kept_from) {
                Turn::Next => {}
                Turn::Gap => continue,
                Turn::Repeated => {
                    let mut inner = self.lock();
                    if inner.waiting.is_empty() {
                        inner.note_settled(place);
                    }
                    continue;
                }
            }
            let Some(needs_view) = until_shutdown(&shutdown, ledger_end(broker.as_ref())).await else { return };
            let permit = tokio::select! {
                () = shutdown.cancelled() => return,
                permit = self.room.acquire() => permit,
            };
            let Ok(permit) = permit else { return };
            permit.forget();
            self.lock().waiting.push_back(Waiting { node, report, needs_view, place });
            self.wake.notify_one();
        }
    }

    async fn purge(&self, broker: &dyn Broker, filter: &str, now: Timestamp) {
        let Some(place) = self.lock().purgeable(now) else { return };
        if let Err(error) = broker.purge(StreamName::Reports, Some(filter.to_owned()), place.sequence + 1).await {
            tracing::debug!(%error, filter, "settled reports were not purged now");
        }
    }
}

async fn until_shutdown<T>(shutdown: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = shutdown.cancelled() => None,
        done = work => Some(done),
    }
}

/// The wait between two tries to read something small while the broker is away.
const RETRY: std::time::Duration = std::time::Duration::from_millis(200);

/// The ledger's last sequence; asks again until the broker answers (the caller bounds it by its shutdown).
pub async fn ledger_end(broker: &dyn Broker) -> u64 {
    stream_end(broker, StreamName::Ledger).await
}

/// A stream's last sequence; asks again until the broker answers (the caller bounds it by its shutdown).
pub async fn stream_end(broker: &dyn Broker, stream: StreamName) -> u64 {
    loop {
        match broker.bounds(stream).await {
            Ok(bounds) => return bounds.last,
            Err(error) => {
                tracing::debug!(%error, stream = stream.as_str(), "the stream's end is not to be had now");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// What a service has settled of each node; asks again until the broker answers.
pub async fn read_settled(broker: &dyn Broker, service: &str) -> Vec<Settled> {
    let filter = format!("fp.settled.*.{service}");
    let mut found = Vec::new();
    let mut from = 1;
    loop {
        match broker.read(StreamName::Settled, &filter, from, 1_000).await {
            Ok(page) => {
                found.extend(page.messages.iter().filter_map(|message| serde_json::from_slice::<Settled>(&message.payload).ok()));
                match page.next {
                    Some(next) => from = next,
                    None => return found,
                }
            }
            Err(error) => {
                tracing::debug!(%error, "settled positions are not to be had now");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Tells a node up to where its spool for a service is durable.
pub async fn publish_settled(broker: &dyn Broker, service: &str, node: NodeName, up_to: SpoolPosition) -> Result<(), String> {
    let subject = settled_subject(&node, service);
    let payload = serde_json::to_vec(&Settled { node, up_to }).map_err(|error| error.to_string())?;
    let message = crate::port::Message { subject, headers: crate::port::Headers::default(), payload: Bytes::from(payload) };
    broker.publish(StreamName::Settled, message, crate::port::Expect::Any).await.map(|_| ()).map_err(|error| error.to_string())
}

/// Reads a report; `None` when it is unreadable, or speaks for another node or service than its subject.
fn read_report(subject: &str, payload: &[u8], service: &str) -> Option<(NodeName, Report)> {
    let node = subject.strip_prefix("fp.report.")?.strip_suffix(service)?.strip_suffix('.')?;
    let node = NodeName::parse(node).ok()?;
    let report: Report = serde_json::from_slice(payload).ok()?;
    (report.node == node && report.body.service() == service).then_some((node, report))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(offset: u64) -> SpoolPosition {
        SpoolPosition { spool: SpoolId::from_bytes([1; 16]), offset }
    }

    #[test]
    fn offsets_are_taken_once_and_without_a_gap() {
        let node = NodeName::parse("n1").unwrap();
        let mut cursor = SpoolCursor::default();
        let turns: Vec<Turn> = [1, 2, 2, 4, 3, 4].into_iter().map(|offset| cursor.take(&node, at(offset), 1)).collect();
        assert_eq!(turns, [Turn::Next, Turn::Next, Turn::Repeated, Turn::Gap, Turn::Next, Turn::Next]);
    }

    #[test]
    fn what_is_settled_is_a_repeat_and_a_trimmed_spool_goes_on() {
        let node = NodeName::parse("n1").unwrap();
        let mut cursor = SpoolCursor::default();
        cursor.settled(&node, at(5));
        assert_eq!(cursor.take(&node, at(5), 1), Turn::Repeated);
        assert_eq!(cursor.take(&node, at(9), 9), Turn::Next);
        let other = SpoolPosition { spool: SpoolId::from_bytes([2; 16]), offset: 1 };
        assert_eq!(cursor.take(&node, other, 1), Turn::Next);
    }

    fn waiting(offset: u64) -> Waiting {
        let node = NodeName::parse("n1").unwrap();
        let changed = footplate_events::facts::NodeHealthChanged { gpu: None, healthy: true, reason: String::new() };
        let report = Report {
            node: node.clone(),
            epoch: footplate_types::Epoch(1),
            at: at(offset),
            kept_from: 1,
            body: footplate_events::messages::ReportBody::Inventory(footplate_events::messages::InventoryReport::HealthChanged { changed }),
            traceparent: None,
        };
        Waiting { node, report, needs_view: 0, place: Place { sequence: offset, at: Timestamp::default() } }
    }

    #[tokio::test]
    async fn what_another_instance_has_settled_is_not_folded_again_nor_settled_backwards() {
        let broker = crate::memory::MemoryBroker::new();
        let inbox = Inbox::new("gpu-inventory", Arc::new(Notify::new()));
        inbox.lock().waiting.extend([1, 2, 3].map(waiting));
        let node = NodeName::parse("n1").unwrap();
        inbox.lock().cover(&Settled { node: node.clone(), up_to: at(2) });
        let peeked: Vec<u64> = inbox.peek(0, 10).iter().map(|waiting| waiting.report.at.offset).collect();
        assert_eq!(peeked, [3]);
        inbox.lock().cover(&Settled { node, up_to: at(9) });
        inbox.settle(&broker, 1).await.unwrap();
        assert_eq!(read_settled(&broker, "gpu-inventory").await, vec![], "nothing lower than 9 is published");
        assert!(inbox.is_empty());
    }

    #[test]
    fn what_was_settled_a_day_ago_may_be_purged_and_nothing_younger() {
        let mut inner = Inner::default();
        let place = |sequence, minutes: i64| Place { sequence, at: Timestamp::from_millis(minutes * 60_000) };
        for minute in 0..3 {
            inner.note_settled(place(10 + minute as u64, minute));
        }
        inner.note_settled(place(99, 2));
        assert_eq!(inner.settled.len(), 3, "a minute apart at least");
        let day = 24 * 60;
        assert!(inner.purgeable(Timestamp::from_millis((day - 1) * 60_000)).is_none());
        assert_eq!(inner.purgeable(Timestamp::from_millis((day + 1) * 60_000)).map(|place| place.sequence), Some(11));
        assert!(inner.purgeable(Timestamp::from_millis((day + 1) * 60_000)).is_none());
    }

    #[test]
    fn a_report_must_speak_for_the_node_of_its_subject() {
        assert!(read_report("fp.report.n1.executor", b"{}", "executor").is_none());
        assert!(read_report("fp.report.n1.x.executor", b"{}", "executor").is_none());
    }
}
