//! From the spools to the streams, in the order of offsets, and again from what is settled when the broker may have lost some.
//!
//! One entry at a time, since a reader drops every offset that is not above the last: an entry that overtook a failed one would bury it.

use crate::{
    aside::Aside,
    record::{self, LogRecord, MetricHeader, StoredReport},
    spool::{Record, Spool},
};
use footplate_eventlog::{Broker, Expect, Headers, Message, PublishError, StreamName};
use footplate_events::messages::{LogHeader, Report, SpoolPosition, log_subject, report_subject};
use footplate_types::NodeName;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Bytes read from a spool at a time.
const PAGE_BYTES: usize = 1 << 20;
/// Metric batches of one atomic publish.
const BATCH_MOST: usize = 128;
/// Pauses while the broker is away or full.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How often an entry that the broker refuses for good is tried, at the longest pause; then it is kept aside and the next one goes.
const REFUSALS_MOST: u32 = 60;
/// Longest wait between two resends while a service settles nothing.
const RESEND_MOST: Duration = Duration::from_secs(600);

/// Where entries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// REPORTS, to this service; kept until settled.
    Reports(&'static str),
    /// LOGS; kept until archived.
    Logs,
    /// METRICS; the broker's answer is enough.
    Metrics,
}

impl Destination {
    /// The token of subjects and file names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reports(service) => service,
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }
}

/// One spool's way out.
pub(crate) struct Shipper {
    pub(crate) node: NodeName,
    pub(crate) destination: Destination,
    pub(crate) spool: Spool,
    pub(crate) broker: Arc<dyn Broker>,
    /// Up to where the service (or, for metrics, the broker) has it.
    pub(crate) settled: watch::Sender<u64>,
    /// Up to where everything was published at least once.
    pub(crate) published: watch::Sender<u64>,
    pub(crate) resend_after: Duration,
    /// Where entries go that the broker never takes.
    pub(crate) aside: Arc<Aside>,
    /// The ends of the holes: what damage took from the spool, and what can never be sent. A reader beyond one waits for nothing below.
    pub(crate) holes: Mutex<BTreeSet<u64>>,
}

impl Shipper {
    /// Ships until the end.
    pub(crate) async fn run(self, life: CancellationToken) {
        tokio::select! {
            () = life.cancelled() => {}
            () = self.ship() => {}
        }
    }

    async fn ship(&self) {
        let mut connections = self.broker.connections();
        let mut appended = self.spool.watch();
        let mut settled = self.settled.subscribe();
        let mut next = self.spool.first().max(*settled.borrow() + 1);
        let mut patience = self.resend_after;
        let mut moved = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            if connections.has_changed().unwrap_or(false) {
                connections.mark_unchanged();
                next = self.unsettled();
            }
            match self.spool.read_from(next, PAGE_BYTES).await {
                Ok(page) if !page.is_empty() => {
                    self.note_holes(next, &page);
                    let done = self.publish_page(&page).await;
                    if let Some(last) = done {
                        next = last + 1;
                        moved = Instant::now();
                        pause = PAUSE.0;
                        self.published.send_if_modified(|known| *known < last && std::mem::replace(known, last) != last);
                    }
                    if done != page.last().map(|record| record.offset) {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE.1);
                    }
                    continue;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, destination = ?self.destination, "spool cannot be read");
                    tokio::time::sleep(PAUSE.1).await;
                    continue;
                }
            }
            let standing = self.destination != Destination::Metrics && *settled.borrow() < self.spool.durable();
            tokio::select! {
                _ = appended.changed() => {}
                _ = connections.changed() => next = self.unsettled(),
                _ = settled.changed() => {
                    moved = Instant::now();
                    patience = self.resend_after;
                }
                () = tokio::time::sleep_until(moved + patience), if standing => {
                    tracing::info!(destination = ?self.destination, from = self.unsettled(), "nothing settled for long: sent again");
                    next = self.unsettled();
                    moved = Instant::now();
                    patience = (patience * 2).min(RESEND_MOST);
                }
            }
        }
    }

    fn note_holes(&self, mut expected: u64, page: &[Record]) {
        for record in page {
            if record.offset > expected {
                self.holes().insert(record.offset);
            }
            expected = record.offset + 1;
        }
    }

    fn holes(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.holes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This entry never reaches a reader.
    fn note_hole_at(&self, offset: u64) {
        self.holes().insert(offset + 1);
    }

    /// The lowest offset that a reader of `offset` may still wait for. Holes above it say nothing: what is sent again from below one must
    /// not be taken for a repeat.
    fn kept_from(&self, offset: u64) -> u64 {
        let first = self.spool.first();
        let mut holes = self.holes();
        *holes = holes.split_off(&first);
        holes.range(..=offset).next_back().map_or(first, |end| first.max(*end))
    }

    fn unsettled(&self) -> u64 {
        self.spool.first().max(*self.settled.borrow() + 1)
    }

    /// Publishes in order until one fails; the last offset that the broker has.
    async fn publish_page(&self, page: &[Record]) -> Option<u64> {
        match self.destination {
            Destination::Metrics => self.publish_metrics(page).await,
            Destination::Reports(_) | Destination::Logs => {
                let mut last = None;
                for record in page {
                    if !self.publish_one(record).await {
                        break;
                    }
                    last = Some(record.offset);
                }
                last
            }
        }
    }

    async fn publish_metrics(&self, page: &[Record]) -> Option<u64> {
        let mut last = None;
        for part in page.chunks(BATCH_MOST) {
            let messages: Vec<_> = part.iter().filter_map(|record| Some((self.message(record)?, Expect::Any))).collect();
            let stored = match messages.len() {
                0 | 1 => false,
                _ => self.broker.publish_batch(StreamName::Metrics, messages).await.is_ok(),
            };
            if stored {
                last = part.last().map(|record| record.offset);
            } else {
                // One by one: the sender of a batch that failed in part is told by each.
                for record in part {
                    if !self.publish_one(record).await {
                        self.forget(last).await;
                        return last;
                    }
                    last = Some(record.offset);
                }
            }
        }
        self.forget(last).await;
        last
    }

    /// METRICS is durable when it answers: what it has is settled.
    async fn forget(&self, last: Option<u64>) {
        if let Some(last) = last {
            self.settled.send_replace(last);
        }
    }

    /// Whether the entry is out of the way: stored, or kept aside as one that can never be.
    async fn publish_one(&self, record: &Record) -> bool {
        let Some(message) = self.message(record) else {
            tracing::error!(offset = record.offset, destination = ?self.destination, "unreadable entry skipped");
            self.note_hole_at(record.offset);
            return true;
        };
        // When all is sent again, what was refused for good holds up nothing.
        if self.aside.has(&self.aside_name(record)) {
            self.note_hole_at(record.offset);
            return true;
        }
        let mut refusals = 0;
        loop {
            match self.broker.publish(self.stream(), message.clone(), Expect::Any).await {
                Ok(_) => return true,
                Err(PublishError::Refused(why)) => {
                    refusals += 1;
                    tracing::error!(%why, subject = %message.subject, offset = record.offset, "refused");
                    if refusals >= REFUSALS_MOST {
                        return self.keep_aside(record).await;
                    }
                    tokio::time::sleep(PAUSE.1).await;
                }
                // Unknown: sent again; the reader drops the repeat.
                Err(
                    PublishError::Unknown(_)
                    | PublishError::Stuck(_)
                    | PublishError::Full(_)
                    | PublishError::Unavailable(_)
                    | PublishError::Conflict,
                ) => return false,
            }
        }
    }

    fn aside_name(&self, record: &Record) -> String {
        format!("{}-{}-{}", self.destination.name(), self.spool.id(), record.offset)
    }

    async fn keep_aside(&self, record: &Record) -> bool {
        let (aside, name, payload) = (self.aside.clone(), self.aside_name(record), record.payload.clone());
        let kept = tokio::task::spawn_blocking(move || aside.keep_bytes(&name, &payload)).await;
        let kept = matches!(kept, Ok(Ok(())));
        if kept {
            self.note_hole_at(record.offset);
        }
        kept
    }

    fn stream(&self) -> StreamName {
        match self.destination {
            Destination::Reports(_) => StreamName::Reports,
            Destination::Logs => StreamName::Logs,
            Destination::Metrics => StreamName::Metrics,
        }
    }

    fn message(&self, record: &Record) -> Option<Message> {
        match self.destination {
            Destination::Reports(service) => {
                let stored = StoredReport::from_bytes(&record.payload)?;
                let at = SpoolPosition { spool: self.spool.id(), offset: record.offset };
                let headers = stored.traceparent.iter().map(|trace| ("traceparent", trace.clone())).collect::<Vec<_>>().into();
                let report = Report {
                    node: self.node.clone(),
                    epoch: stored.epoch,
                    at,
                    kept_from: self.kept_from(record.offset),
                    body: stored.body,
                    traceparent: stored.traceparent,
                };
                let payload = serde_json::to_vec(&report).ok()?.into();
                Some(Message { subject: report_subject(&self.node, service), headers, payload })
            }
            Destination::Logs => {
                let (header, body) = record::unpack::<LogRecord>(&record.payload)?;
                let subject = log_subject(&self.node, header.of.run);
                let header = LogHeader {
                    spool: self.spool.id(),
                    offset: record.offset,
                    kept_from: self.kept_from(record.offset),
                    project: header.of.project,
                    run: header.of.run,
                    attempt: header.of.attempt,
                    member: header.of.member,
                    rank: header.rank,
                    stream: header.stream,
                    at: header.at,
                };
                Some(Message { subject, headers: header.to_headers().into(), payload: body })
            }
            Destination::Metrics => {
                let (header, body) = record::unpack::<MetricHeader>(&record.payload)?;
                Some(Message { subject: header.subject, headers: Headers::default(), payload: body })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spool::SpoolOptions;
    use footplate_eventlog::{
        inbox::{SpoolCursor, Turn},
        memory::MemoryBroker,
    };
    use footplate_events::{facts::NodeHealthChanged, messages::InventoryReport, messages::ReportBody};
    use footplate_types::Epoch;

    fn shipper(dir: &std::path::Path, broker: Arc<MemoryBroker>) -> Shipper {
        Shipper {
            node: NodeName::parse("n1").unwrap(),
            destination: Destination::Reports("gpu-inventory"),
            spool: Spool::open(&dir.join("spool"), SpoolOptions::default(), footplate_clock::spool_id).unwrap(),
            broker,
            settled: watch::Sender::new(0),
            published: watch::Sender::new(0),
            resend_after: Duration::from_secs(1),
            aside: Arc::new(Aside::new(dir, crate::AsideLimits::default())),
            holes: Mutex::default(),
        }
    }

    fn report() -> bytes::Bytes {
        let changed = NodeHealthChanged { gpu: None, healthy: true, reason: String::new() };
        let body = ReportBody::Inventory(InventoryReport::HealthChanged { changed });
        StoredReport { epoch: Epoch(1), body, traceparent: None, origin: None }.to_bytes()
    }

    /// What a new reader makes of what the broker holds from `from` on.
    async fn turns(broker: &MemoryBroker, from: u64) -> Vec<(u64, Turn)> {
        let stored = broker.read(StreamName::Reports, "fp.report.>", from, 100).await.unwrap().messages;
        let reports = stored.iter().map(|stored| serde_json::from_slice::<Report>(&stored.payload).unwrap());
        let mut cursor = SpoolCursor::default();
        reports.map(|report| (report.at.offset, cursor.take(&report.node, report.at, report.kept_from))).collect()
    }

    #[tokio::test]
    async fn a_reader_passes_an_unreadable_entry_and_a_refused_one_and_loses_nothing_when_all_is_sent_again() {
        let dir = tempfile::tempdir().unwrap();
        let broker = Arc::new(MemoryBroker::new());
        let shipper = shipper(dir.path(), broker.clone());
        shipper.spool.append_all(vec![report(), "damaged".into(), report(), report(), report()]).await.unwrap();
        let page = shipper.spool.read_from(1, usize::MAX).await.unwrap();
        assert!(shipper.keep_aside(&page[3]).await, "as after the last refusal");
        for time in 0..2 {
            let from = broker.bounds(StreamName::Reports).await.unwrap().last + 1;
            assert_eq!(shipper.publish_page(&page).await, Some(5));
            let expected = [1, 3, 5].map(|offset| (offset, Turn::Next));
            assert_eq!(turns(&broker, from).await, expected, "time {time}");
        }
    }
}
