//! Following a stream in memory.

use super::Shared;
use crate::port::{Stored, StreamName, TailItem};
use footplate_types::Timestamp;
use futures::{StreamExt, stream::BoxStream};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

/// How many messages are taken out of the log at once.
const CHUNK: usize = 256;
/// How many delivered messages are remembered, to notice a stream whose end was lost.
const REMEMBERED: usize = 512;

struct Tail {
    shared: Arc<Shared>,
    moved: watch::Receiver<u64>,
    stream: StreamName,
    filters: Vec<String>,
    next: u64,
    /// When the stream was made that is followed.
    created: Timestamp,
    told: Option<u64>,
    ready: VecDeque<TailItem>,
    delivered: VecDeque<(u64, Timestamp)>,
}

pub(super) fn tail(shared: Arc<Shared>, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem> {
    let moved = shared.moved.subscribe();
    let created = shared.with(stream, |log| log.bounds().created);
    let tail =
        Tail { shared, moved, stream, filters, next: from.max(1), created, told: None, ready: VecDeque::new(), delivered: VecDeque::new() };
    futures::stream::unfold(tail, |mut tail| async move {
        loop {
            if let Some(item) = tail.ready.pop_front() {
                return Some((item, tail));
            }
            tail.moved.borrow_and_update();
            tail.look();
            if tail.ready.is_empty() && tail.moved.changed().await.is_err() {
                return None;
            }
        }
    })
    .boxed()
}

impl Tail {
    fn look(&mut self) {
        if self.shared.faults.is_unavailable() {
            return;
        }
        self.rewind();
        let (last, found) = self.shared.with(self.stream, |log| (log.bounds().last, log.matching(&self.filters, self.next, CHUNK)));
        if found.is_empty() {
            // `last` was read under the same lock that showed nothing pending.
            self.next = self.next.max(last + 1);
            if self.told.is_none_or(|told| last > told) {
                self.told = Some(last);
                self.ready.push_back(TailItem::Position(last));
            }
            return;
        }
        for stored in found {
            self.deliver(stored);
        }
    }

    fn deliver(&mut self, stored: Stored) {
        self.next = stored.sequence + 1;
        self.told = None;
        self.delivered.push_back((stored.sequence, stored.recorded_at));
        if self.delivered.len() > REMEMBERED {
            self.delivered.pop_front();
        }
        let again = self.shared.faults.redelivers().then(|| stored.clone());
        self.ready.push_back(TailItem::Message(stored));
        self.ready.extend(again.map(TailItem::Message));
    }

    /// A broker that lost the end of a stream gives the same sequences again: go back to the last message that is still the same. A stream
    /// that was made anew begins anew.
    fn rewind(&mut self) {
        let bounds = self.shared.with(self.stream, |log| log.bounds());
        if std::mem::replace(&mut self.created, bounds.created) != bounds.created {
            self.delivered.clear();
            (self.next, self.told) = (1, None);
        }
        let last = bounds.last;
        let oldest = self.delivered.front().map(|(sequence, _)| *sequence);
        let mut cut = false;
        while let Some((sequence, at)) = self.delivered.back().copied() {
            let stamp = self.shared.with(self.stream, |log| log.stamp(sequence));
            // A message that is gone from the middle was purged or replaced, not lost.
            if sequence <= last && stamp.is_none_or(|stamp| stamp == at) {
                break;
            }
            self.delivered.pop_back();
            cut = true;
        }
        if cut {
            let resume = match (self.delivered.back(), oldest) {
                (Some((sequence, _)), _) => sequence + 1,
                (None, Some(oldest)) if oldest <= last => oldest,
                (None, _) => 1,
            };
            self.next = resume;
            self.told = None;
        }
    }
}
