//! Following a stream: an ephemeral pull consumer of our own, made anew whenever anything is odd, from the message after the last one
//! that was yielded. So there is no gap and no repeat, whatever becomes of the broker, the connection or the consumer.

use super::Core;
use super::api::{self, ApiError};
use super::read;
use crate::port::{ReadError, Stored, StreamName, TailItem, any_matches};
use async_nats::{Message, Subscriber};
use footplate_types::Timestamp;
use futures::{FutureExt, StreamExt, stream::BoxStream};
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Messages that one pull asks for.
const PULL_MESSAGES: u64 = 500;
/// The next pull is sent while so many may still come: the broker never waits for it.
const PULL_AGAIN_BELOW: u64 = PULL_MESSAGES / 2;
/// Bytes that one pull asks for.
const PULL_BYTES: u64 = 8 << 20;
/// How long a pull waits at the broker.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// How often the broker says that it is still there while a pull waits.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Silence after which the consumer is given up.
const SILENCE_MAX: Duration = Duration::from_secs(11);
/// After how long without a pull the broker removes the consumer.
const INACTIVE_MAX: Duration = Duration::from_secs(60);
/// Items that are handed to the reader at once, when so many are there: a hand-over costs about as much as the decoding of an event.
const CHUNK: usize = 64;
/// Chunks that may wait for a slow reader.
const QUEUE: usize = 4;
/// How often an idle tail looks for a position to tell when nobody waits for one.
const POSITION_EVERY: Duration = Duration::from_secs(1);
/// The least time between two looks for a position.
const POSITION_PAUSE: Duration = Duration::from_millis(10);
/// The first pause before a consumer is made anew; doubled up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(5);
/// The longest pause before a consumer is made anew.
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// What a pull that has ended still owed.
const OWED: &str = "Nats-Pending-Messages";
/// How long a message may be there and not come before the consumer is given up: the broker counts it as delivered, and it was lost on the way.
const OVERDUE_MAX: Duration = Duration::from_secs(5);
/// After so many messages of a consumer with filters it is looked at whether filtering here is cheaper.
const LOOKED_AT_AFTER: u64 = 1_000;
/// It is where more than one message in so many matches: to find the next one among many subjects costs nats-server 2.15 about 0.3 ms of a processor, to
/// send the next one whatever its subject a fortieth of that.
const ONE_IN: u64 = 16;
/// How many yielded messages are remembered, to notice a stream whose end was lost.
const REMEMBERED: usize = 512;

/// Follows `stream` from `from` on.
pub(super) fn tail(core: Arc<Core>, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem> {
    let (items, receiver) = mpsc::channel(QUEUE);
    let tailer = Tailer {
        core,
        stream,
        filters,
        wide: false,
        next: from.max(1),
        created: None,
        told: None,
        due: None,
        yielded: VecDeque::new(),
        chunk: Vec::new(),
        items,
    };
    tokio::spawn(tailer.run());
    let chunks = futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|chunk| (chunk, receiver)) });
    chunks.flat_map(futures::stream::iter).boxed()
}

struct Tailer {
    core: Arc<Core>,
    stream: StreamName,
    filters: Vec<String>,
    /// Whether filters are applied here: the broker took no consumer with them (it refuses overlapping ones), or most of the stream matches.
    wide: bool,
    /// The first sequence that is still wanted.
    next: u64,
    /// When the stream was made that is followed; absent until it was first looked at.
    created: Option<Timestamp>,
    /// The last position that was told.
    told: Option<u64>,
    /// Since when a message from that sequence on is known to be there.
    due: Option<(u64, Instant)>,
    yielded: VecDeque<(u64, Timestamp)>,
    /// What is to be handed over next; what is in it counts as yielded.
    chunk: Vec<TailItem>,
    items: mpsc::Sender<Vec<TailItem>>,
}

/// Why a consumer was left.
enum End {
    /// Nobody reads any more.
    Unread,
    /// It is to be made anew.
    Again(String),
}

impl From<ReadError> for End {
    fn from(error: ReadError) -> Self {
        Self::Again(error.to_string())
    }
}

/// One consumer at the broker.
struct Consumer {
    name: String,
    inbox: String,
    messages: Subscriber,
    pulls: u64,
    /// Messages that may at least still come unasked.
    outstanding: u64,
    sequence: u64,
    /// From which sequence of the stream on it was made.
    from: u64,
}

/// What a message says of its place.
struct Place {
    stream_sequence: u64,
    consumer_sequence: u64,
    time: Timestamp,
    pending: u64,
}

impl Consumer {
    /// A pull has ended; the broker says how many messages it still owed. (With nats-server 2.15 a pull that has brought everything ends so too:
    /// asked for anew each time without this count, pulls piled up until their messages overran the subscription, and the client dropped some.)
    fn ended(&mut self, status: &Message) {
        let owed = status.headers.as_ref().and_then(|headers| headers.get(OWED)?.as_str().parse().ok());
        // Without a word nothing is counted upon; what the pull yet brings is taken all the same.
        self.outstanding = self.outstanding.saturating_sub(owed.unwrap_or(u64::MAX));
    }
}

impl Tailer {
    async fn run(mut self) {
        let mut pause = AGAIN;
        let mut connections = self.core.connections.subscribe();
        loop {
            let (before, items) = (self.next, self.items.clone());
            connections.mark_unchanged();
            match self.follow(&mut connections).await {
                End::Unread => return,
                End::Again(why) => tracing::debug!(stream = self.stream.as_str(), next = self.next, why, "following anew"),
            }
            if self.flush().await.is_err() {
                return;
            }
            pause = if self.next > before { AGAIN } else { (pause * 2).min(AGAIN_MAX) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = connections.changed() => pause = AGAIN,
                () = items.closed() => return,
            }
        }
    }

    async fn follow(&mut self, connections: &mut watch::Receiver<u64>) -> End {
        if !self.core.is_connected() {
            return End::Again("not connected".to_owned());
        }
        if let Err(error) = self.rewind().await {
            return error.into();
        }
        let mut consumer = match self.consumer().await {
            Ok(consumer) => consumer,
            Err(ApiError::Refused(refusal)) if self.filters.len() > 1 && !self.wide => {
                tracing::debug!(stream = self.stream.as_str(), refusal = refusal.description, "filtering here instead");
                self.wide = true;
                return End::Again("without filters".to_owned());
            }
            Err(error) => {
                tracing::warn!(stream = self.stream.as_str(), %error, "no consumer can be made");
                return End::Again(error.to_string());
            }
        };
        // What was overdue at another consumer says nothing about this one.
        self.due = None;
        let end = self.pull(&mut consumer, connections).await;
        let delete = format!("$JS.API.CONSUMER.DELETE.{}.{}", self.stream.as_str(), consumer.name);
        // A courtesy: the broker removes it by itself after a while.
        let _ = self.core.client.publish(delete, bytes::Bytes::new()).await;
        end
    }

    async fn consumer(&self) -> Result<Consumer, ApiError> {
        let name = format!("tail-{}", footplate_clock::event_id());
        let inbox = self.core.client.new_inbox();
        let messages = self.core.client.subscribe(format!("{inbox}.*")).await.map_err(|error| ApiError::Away(error.to_string()))?;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let mut config = json!({
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.next,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "mem_storage": true,
            "num_replicas": 1,
            "inactive_threshold": nanos(INACTIVE_MAX),
        });
        match self.filters.as_slice() {
            [] => {}
            _ if self.wide => {}
            [one] => config["filter_subject"] = json!(one),
            more => config["filter_subjects"] = json!(more),
        }
        let ask = json!({ "stream_name": self.stream.as_str(), "config": config });
        api::ask(&self.core.client, &format!("CONSUMER.CREATE.{}.{name}", self.stream.as_str()), &ask).await?;
        Ok(Consumer { name, inbox, messages, pulls: 0, outstanding: 0, sequence: 0, from: self.next })
    }

    async fn pull(&mut self, consumer: &mut Consumer, connections: &mut watch::Receiver<u64>) -> End {
        let Some(nudges) = self.core.nudges.get(&self.stream) else { return End::Unread };
        let mut nudges = nudges.subscribe();
        nudges.mark_changed();
        let items = self.items.clone();
        let mut looked = Instant::now() - POSITION_PAUSE;
        let mut heard = Instant::now();
        let mut nudged = false;
        loop {
            if consumer.outstanding <= PULL_AGAIN_BELOW
                && let Err(why) = self.ask_for_more(consumer).await
            {
                return End::Again(why);
            }
            let look_at = looked + if nudged { POSITION_PAUSE } else { POSITION_EVERY };
            tokio::select! {
                biased;
                message = consumer.messages.next() => {
                    heard = Instant::now();
                    let Some(message) = message else { return End::Again("the subscription ended".to_owned()) };
                    if let Err(end) = self.take_all(consumer, message).await {
                        return end;
                    }
                }
                _ = connections.changed() => return End::Again("connected anew".to_owned()),
                changed = nudges.changed(), if !nudged => {
                    if changed.is_err() {
                        return End::Unread;
                    }
                    nudged = true;
                }
                () = sleep_until(look_at) => {
                    nudged = false;
                    looked = Instant::now();
                    if let Err(end) = self.look_for_position().await {
                        return end;
                    }
                }
                () = sleep_until(heard + SILENCE_MAX) => return End::Again("silence".to_owned()),
                () = items.closed() => return End::Unread,
            }
        }
    }

    async fn ask_for_more(&self, consumer: &mut Consumer) -> Result<(), String> {
        consumer.pulls += 1;
        consumer.outstanding += PULL_MESSAGES;
        let ask = json!({
            "batch": PULL_MESSAGES,
            "max_bytes": PULL_BYTES,
            "expires": PULL_EXPIRES.as_nanos() as u64,
            "idle_heartbeat": HEARTBEAT.as_nanos() as u64,
        });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream.as_str(), consumer.name);
        let reply = format!("{}.{}", consumer.inbox, consumer.pulls);
        self.core.client.publish_with_reply(subject, reply, ask.to_string().into()).await.map_err(|error| error.to_string())
    }

    /// Takes a message and those that have come with it, up to a chunk.
    async fn take_all(&mut self, consumer: &mut Consumer, first: Message) -> Result<(), End> {
        self.take(consumer, first)?;
        while self.chunk.len() < CHUNK {
            match consumer.messages.next().now_or_never() {
                Some(Some(message)) => self.take(consumer, message)?,
                Some(None) => return Err(End::Again("the subscription ended".to_owned())),
                None => break,
            }
        }
        self.flush().await
    }

    fn take(&mut self, consumer: &mut Consumer, message: Message) -> Result<(), End> {
        if let Some(status) = message.status {
            let description = message.description.as_deref().unwrap_or_default();
            return match status.as_u16() {
                100 => Ok(()),
                404 | 408 => {
                    consumer.ended(&message);
                    Ok(())
                }
                409 if description.contains("MaxBytes") || description.contains("Batch Completed") => {
                    consumer.ended(&message);
                    Ok(())
                }
                other => Err(End::Again(format!("{other} {description}"))),
            };
        }
        let place = message.reply.as_deref().and_then(place).ok_or_else(|| End::Again("a message without a place".to_owned()))?;
        if place.consumer_sequence != consumer.sequence + 1 || place.stream_sequence < self.next {
            return Err(End::Again(format!("message {} of the consumer after {}", place.consumer_sequence, consumer.sequence)));
        }
        consumer.sequence = place.consumer_sequence;
        consumer.outstanding = consumer.outstanding.saturating_sub(1);
        if self.wide && !any_matches(&self.filters, &message.subject) {
            self.next = place.stream_sequence + 1;
        } else {
            self.hand_over(message, &place);
        }
        if place.pending == 0 {
            self.tell(place.stream_sequence);
        }
        self.is_sparse(consumer)
    }

    /// Where most of the ledger matches, the broker is not to look for what does. (Messages of other streams are large: of those it sends none in vain.)
    fn is_sparse(&mut self, consumer: &Consumer) -> Result<(), End> {
        let passed = self.next.saturating_sub(consumer.from);
        let narrow = self.stream == StreamName::Ledger && !self.wide && !self.filters.is_empty();
        if narrow && consumer.sequence >= LOOKED_AT_AFTER && consumer.sequence.saturating_mul(ONE_IN) > passed {
            self.wide = true;
            return Err(End::Again("most of it matches: filtering here instead".to_owned()));
        }
        Ok(())
    }

    fn hand_over(&mut self, message: Message, place: &Place) {
        let stored = Stored {
            sequence: place.stream_sequence,
            subject: message.subject.to_string(),
            headers: message.headers.as_ref().map(read::plain_headers).unwrap_or_default(),
            payload: message.payload,
            recorded_at: place.time,
        };
        self.next = stored.sequence + 1;
        self.yielded.push_back((stored.sequence, stored.recorded_at));
        if self.yielded.len() > REMEMBERED {
            self.yielded.pop_front();
        }
        self.chunk.push(TailItem::Message(stored));
    }

    fn tell(&mut self, position: u64) {
        self.told = Some(position);
        self.chunk.push(TailItem::Position(position));
    }

    /// Hands over what is there.
    async fn flush(&mut self) -> Result<(), End> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.items.send(std::mem::take(&mut self.chunk)).await.map_err(|_| End::Unread)
    }

    /// Tells the stream's end as it was before the leader said that nothing more matches (rule 10). A consumer may run on a replica that
    /// lags, so its own "nothing pending" would not do.
    async fn look_for_position(&mut self) -> Result<(), End> {
        let end = read::bounds(&self.core, self.stream).await?.last;
        if self.told.is_some_and(|told| told >= end) {
            return Ok(());
        }
        let everything = [">".to_owned()];
        let filters = if self.filters.is_empty() { &everything[..] } else { &self.filters[..] };
        for filter in filters {
            if read::following(&self.core, self.stream, filter, self.next).await?.is_some() {
                return self.due();
            }
        }
        self.tell(end);
        self.flush().await
    }

    /// A message is there that has not come yet.
    fn due(&mut self) -> Result<(), End> {
        match self.due {
            Some((next, since)) if next == self.next && since.elapsed() > OVERDUE_MAX => {
                self.due = None;
                Err(End::Again(format!("what stands from {next} on does not come")))
            }
            Some((next, _)) if next == self.next => Ok(()),
            _ => {
                self.due = Some((self.next, Instant::now()));
                Ok(())
            }
        }
    }

    /// A broker that was killed may have lost the end of a stream that is not synced, and gives the same sequences again: go back to the
    /// last message that is still the same. A stream that was removed and made anew begins anew.
    async fn rewind(&mut self) -> Result<(), ReadError> {
        let bounds = read::bounds(&self.core, self.stream).await?;
        if self.created.replace(bounds.created).is_some_and(|created| created != bounds.created) {
            self.yielded.clear();
            (self.next, self.told) = (1, None);
            tracing::warn!(stream = self.stream.as_str(), "a stream was made anew; reading it from its beginning");
        }
        let Some((oldest, _)) = self.yielded.front().copied() else { return Ok(()) };
        let last = bounds.last;
        let mut cut = false;
        while let Some((sequence, at)) = self.yielded.back().copied() {
            if sequence <= last {
                // A message that is gone from the middle was purged or replaced, not lost.
                let found = read::at(&self.core, self.stream, sequence).await?;
                if found.is_none_or(|stored| stored.recorded_at == at) {
                    break;
                }
            }
            self.yielded.pop_back();
            cut = true;
        }
        if cut {
            self.next = match self.yielded.back() {
                Some((sequence, _)) => sequence + 1,
                None if oldest <= last => oldest,
                None => 1,
            };
            self.told = None;
            tracing::warn!(stream = self.stream.as_str(), next = self.next, "the broker lost the end of a stream; reading it again");
        }
        Ok(())
    }
}

/// Reads `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`, or the newer form with domain and
/// account hash before the stream.
fn place(reply: &str) -> Option<Place> {
    let tokens: Vec<&str> = reply.split('.').collect();
    let numbers = match tokens.len() {
        9 => tokens.get(5..9)?,
        11.. => tokens.get(7..11)?,
        _ => return None,
    };
    Some(Place {
        stream_sequence: numbers[0].parse().ok()?,
        consumer_sequence: numbers[1].parse().ok()?,
        time: Timestamp::from_nanos(numbers[2].parse().ok()?),
        pending: numbers[3].parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_place_are_read() {
        let old = place("$JS.ACK.LEDGER.c.1.42.7.1700000000000000001.3");
        let new = place("$JS.ACK.hub.ACCHASH.LEDGER.c.1.42.7.1700000000000000001.3.token");
        for read in [old, new] {
            let read = read.expect("a place");
            assert_eq!((read.stream_sequence, read.consumer_sequence, read.pending), (42, 7, 3));
            assert_eq!(read.time, Timestamp::from_nanos(1_700_000_000_000_000_001));
        }
        assert!(place("_INBOX.x").is_none());
    }
}
