//! A broker whose ledger begins in segments: what has left the broker below is read from the archive, so that nobody above need know.

use super::chain::{Archive, Known};
use super::gone::Place;
use crate::port::{
    Bounds, Broker, Expect, Message, Page, PublishError, ReadError, Stored, StreamName, TailItem, any_matches, subject_matches,
};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often a page is read again because the archive moved meanwhile.
const TRIES: u32 = 3;
/// Items of a tail that are looked at together.
const CHUNK: usize = 256;
/// Messages of a segment that a tail unpacks together.
const PIECE: usize = if cfg!(test) { 3 } else { 1_000 };
/// The pause of a tail before it asks an archive that is away again.
const AGAIN: Duration = Duration::from_secs(1);

/// A broker with the archive of its ledger.
#[derive(Clone, Debug)]
pub struct Archived {
    archive: Archive,
}

impl Archived {
    /// The broker of an archive, with it.
    pub fn new(archive: Archive) -> Self {
        Self { archive }
    }

    fn below(&self) -> &Arc<dyn Broker> {
        self.archive.broker()
    }

    async fn page(&self, filter: &str, from: u64, most: usize) -> Result<Page, ReadError> {
        let one = !filter.contains(['*', '>']);
        for _ in 0..TRIES {
            let known = self.archive.current().await?;
            if one && let Some(place) = known.place(filter) {
                return self.page_of_one(&known, place, filter, from, most).await;
            }
            let mut page = Page { messages: Vec::new(), next: Some(from.max(1)) };
            if !one {
                self.take_archived(&known, filter, most, &mut page).await?;
            }
            let Some(next) = page.next.filter(|_| page.messages.len() < most) else { return Ok(page) };
            let rest = self.below().read(StreamName::Ledger, filter, next, most - page.messages.len()).await?;
            let known = self.archive.assured().await?;
            // What was named meanwhile may have been gone when the broker was asked.
            if if one { known.place(filter).is_none() } else { known.horizon() < next } {
                page.messages.extend(rest.messages);
                return Ok(Page { next: rest.next, ..page });
            }
        }
        Err(ReadError::Unavailable("the archive of the ledger moves".to_owned()))
    }

    /// Takes from segments what the broker may lack, and moves on behind it. With as many messages as are wanted, `next` is the next one of them.
    async fn take_archived(&self, known: &Known, filter: &str, most: usize, page: &mut Page) -> Result<(), ReadError> {
        while let Some(next) = page.next.filter(|next| *next <= known.horizon()) {
            let Some(segment) = self.archive.segment_at(known, next).await? else { return Ok(()) };
            for stored in segment.matching(next, |subject| subject_matches(filter, subject)) {
                if page.messages.len() == most {
                    page.next = Some(stored.sequence);
                    return Ok(());
                }
                page.messages.push(stored);
            }
            page.next = Some(segment.entry().head.last + 1);
        }
        Ok(())
    }

    /// A page of one aggregate of which something has left: segments, then the broker.
    async fn page_of_one(&self, known: &Known, place: Place, subject: &str, from: u64, most: usize) -> Result<Page, ReadError> {
        let mut messages = Vec::new();
        let mut archived = from.saturating_sub(1);
        for number in place.first_segment..=place.last_segment {
            if known.entries.get(number as usize - 1).is_some_and(|entry| entry.head.last < from) {
                continue;
            }
            let segment = self.archive.segment(known, number).await?;
            for stored in segment.matching(from, |other| other == subject) {
                if messages.len() == most {
                    return Ok(Page { messages, next: Some(stored.sequence) });
                }
                archived = stored.sequence;
                messages.push(stored);
            }
        }
        let page = self.below().read(StreamName::Ledger, subject, archived + 1, most - messages.len()).await?;
        messages.extend(page.messages);
        Ok(Page { messages, next: page.next })
    }

    async fn last_of(&self, subject: &str) -> Result<Option<Stored>, ReadError> {
        let held = self.below().last(StreamName::Ledger, subject).await?;
        for _ in 0..TRIES {
            let known = self.archive.current().await?;
            match (&held, known.place(subject)) {
                // What left is older. A hand may have removed the last one alone.
                (Some(held), place) if known.unlisted || place.is_none_or(|place| held.sequence >= place.through) => {
                    return Ok(Some(held.clone()));
                }
                (_, Some(place)) => {
                    let archived = self.last_archived(&known, place, subject).await?;
                    return Ok(archived.into_iter().chain(held).max_by_key(|stored| stored.sequence));
                }
                _ => {}
            }
            if self.archive.assured().await?.place(subject).is_none() {
                return Ok(None);
            }
        }
        Err(ReadError::Unavailable("the archive of the ledger moves".to_owned()))
    }

    async fn last_archived(&self, known: &Known, place: Place, subject: &str) -> Result<Option<Stored>, ReadError> {
        for number in (place.first_segment..=place.last_segment).rev() {
            let segment = self.archive.segment(known, number).await?;
            if let Some(stored) = segment.matching(1, |other| other == subject).last() {
                return Ok(Some(stored));
            }
        }
        Ok(None)
    }

    /// What the broker must be asked so that an expectation means what it meant before the aggregate left. An id that the archive holds is not new.
    async fn expected(&self, subject: &str, expected: u64) -> Result<u64, PublishError> {
        let away = |error| match error {
            ReadError::Unavailable(why) => PublishError::Unavailable(why),
            ReadError::Refused(why) => PublishError::Refused(why),
        };
        // Only who takes an id for new could be wrong unnoticed.
        let known = if expected == 0 { self.archive.assured().await } else { self.archive.current().await };
        let known = known.map_err(away)?;
        let Some(place) = known.place(subject) else { return Ok(expected) };
        let held = self.below().last(StreamName::Ledger, subject).await.map_err(away)?.map_or(0, |stored| stored.sequence);
        // It may leave before the broker is asked again, and be new to it then.
        if held > 0 && expected == 0 {
            return Err(PublishError::Conflict);
        }
        // While the broker has its last event, its own answer is the right one.
        if held >= place.through || known.unlisted && held > 0 {
            return Ok(expected);
        }
        if expected > place.through {
            return Err(PublishError::Conflict);
        }
        // A list says what the last one was; no segment need be read.
        if !known.unlisted && expected == place.through {
            return Ok(held);
        }
        let last = self.last_archived(&known, place, subject).await.map_err(away)?;
        match last.map_or(held, |stored| stored.sequence.max(held)) {
            last if last == expected => Ok(held),
            _ => Err(PublishError::Conflict),
        }
    }

    async fn translated(&self, messages: Vec<(Message, Expect)>) -> Result<Vec<(Message, Expect)>, PublishError> {
        let mut translated = Vec::with_capacity(messages.len());
        for (message, expect) in messages {
            let expect = match expect {
                Expect::Subject(expected) => Expect::Subject(self.expected(&message.subject, expected).await?),
                // Terms never leave.
                other @ (Expect::Any | Expect::Other { .. }) => other,
            };
            translated.push((message, expect));
        }
        Ok(translated)
    }
}

impl Broker for Archived {
    fn publish(&self, stream: StreamName, message: Message, expect: Expect) -> BoxFuture<'_, Result<u64, PublishError>> {
        let (StreamName::Ledger, Expect::Subject(expected)) = (stream, &expect) else {
            return self.below().publish(stream, message, expect);
        };
        let expected = *expected;
        async move {
            let expected = self.expected(&message.subject, expected).await?;
            self.below().publish(stream, message, Expect::Subject(expected)).await
        }
        .boxed()
    }

    fn publish_batch(&self, stream: StreamName, messages: Vec<(Message, Expect)>) -> BoxFuture<'_, Result<u64, PublishError>> {
        if stream != StreamName::Ledger {
            return self.below().publish_batch(stream, messages);
        }
        async move {
            let messages = self.translated(messages).await?;
            self.below().publish_batch(stream, messages).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, stream: StreamName, filter: &'a str, from: u64, most: usize) -> BoxFuture<'a, Result<Page, ReadError>> {
        match stream {
            StreamName::Ledger => self.page(filter, from, most).boxed(),
            other => self.below().read(other, filter, from, most),
        }
    }

    fn last<'a>(&'a self, stream: StreamName, subject: &'a str) -> BoxFuture<'a, Result<Option<Stored>, ReadError>> {
        match stream {
            StreamName::Ledger => self.last_of(subject).boxed(),
            other => self.below().last(other, subject),
        }
    }

    fn bounds(&self, stream: StreamName) -> BoxFuture<'_, Result<Bounds, ReadError>> {
        self.below().bounds(stream)
    }

    fn tail(&self, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem> {
        if stream != StreamName::Ledger {
            return self.below().tail(stream, filters, from);
        }
        let tail = Tail { archive: self.archive.clone(), filters, next: from.max(1), ready: VecDeque::new(), live: None };
        futures::stream::unfold(tail, |mut tail| async move {
            loop {
                if let Some(item) = tail.ready.pop_front() {
                    return Some((item, tail));
                }
                if !tail.fill().await {
                    return None;
                }
            }
        })
        .boxed()
    }

    fn purge(&self, stream: StreamName, filter: Option<String>, below: u64) -> BoxFuture<'_, Result<(), ReadError>> {
        self.below().purge(stream, filter, below)
    }

    fn listen(&self, subject: &str) -> BoxFuture<'_, Result<BoxStream<'static, Stored>, ReadError>> {
        self.below().listen(subject)
    }

    fn nudge(&self, stream: StreamName) {
        self.below().nudge(stream);
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.below().connections()
    }
}

/// A tail that begins in segments and goes on in the broker; it goes back to segments when what it has not read yet has left meanwhile.
struct Tail {
    archive: Archive,
    filters: Vec<String>,
    /// The sequence that comes next.
    next: u64,
    ready: VecDeque<TailItem>,
    /// The broker's own tail, from `next` on.
    live: Option<BoxStream<'static, Vec<TailItem>>>,
}

impl Tail {
    /// Gets something ready, or moves on. False when the broker's tail has ended.
    async fn fill(&mut self) -> bool {
        let Some(live) = &mut self.live else {
            self.begin().await;
            return true;
        };
        let Some(items) = live.next().await else { return false };
        // A broker that lost the end of the stream gives sequences a second time.
        let messages = items.iter().filter(|item| matches!(item, TailItem::Message(_)));
        let from = messages.map(sequence).min().unwrap_or(self.next).min(self.next);
        if may_lack(&self.archive, from).await {
            (self.live, self.next) = (None, from);
            return true;
        }
        self.next = items.last().map_or(self.next, |item| sequence(item) + 1);
        self.ready.extend(items);
        true
    }

    /// Reads a segment, or opens the broker's tail where none is needed.
    async fn begin(&mut self) {
        match self.archived().await {
            Ok(true) => {}
            Ok(false) => {
                let items = self.archive.broker().tail(StreamName::Ledger, self.filters.clone(), self.next);
                self.live = Some(items.ready_chunks(CHUNK).boxed());
            }
            Err(error) => {
                tracing::warn!(%error, "the ledger's older part cannot be read now");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Gets a piece of a segment ready where the broker may lack what comes next; false where it lacks nothing.
    async fn archived(&mut self) -> Result<bool, ReadError> {
        let known = self.archive.assured().await?;
        if self.next > known.horizon() {
            return Ok(false);
        }
        let Some(segment) = self.archive.segment_at(&known, self.next).await? else { return Ok(false) };
        let wanted = segment.matching(self.next, |subject| any_matches(&self.filters, subject));
        self.ready.extend(wanted.take(PIECE).map(TailItem::Message));
        self.next = match self.ready.back() {
            Some(item) if self.ready.len() == PIECE => sequence(item) + 1,
            _ => segment.entry().head.last + 1,
        };
        Ok(true)
    }
}

/// Whether something from `from` on may have left before it was read.
async fn may_lack(archive: &Archive, from: u64) -> bool {
    loop {
        let known = match archive.assured().await {
            // Looked up again: a ledger that was made anew begins anew, and is not to be read from another one's segments.
            Ok(known) if known.horizon() >= from => archive.look().await.map_err(ReadError::from),
            other => other,
        };
        match known {
            Ok(known) => return known.horizon() >= from,
            Err(error) => {
                tracing::warn!(%error, "a reader of the ledger waits for its archive");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn sequence(item: &TailItem) -> u64 {
    match item {
        TailItem::Message(stored) => stored.sequence,
        TailItem::Position(position) => *position,
    }
}
