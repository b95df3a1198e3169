//! A broker that tells what was read of it, and whose news can be held back.

use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Bounds, Broker, Expect, Message, Page, PublishError, ReadError, Stored, StreamName, TailItem};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Mutex;
use tokio::sync::watch;

/// A broker in memory, watched.
pub(crate) struct Watched {
    inner: MemoryBroker,
    reads: Mutex<Vec<(String, usize)>>,
    held: watch::Sender<bool>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self { inner: MemoryBroker::new(), reads: Mutex::default(), held: watch::Sender::new(false) }
    }

    /// Whether whoever follows a stream learns nothing new.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// How many messages were asked for by each read of a subject.
    pub(crate) fn reads_of(&self, subject: &str) -> Vec<usize> {
        self.reads.lock().unwrap().iter().filter(|(filter, _)| filter == subject).map(|(_, most)| *most).collect()
    }
}

impl Broker for Watched {
    fn publish(&self, stream: StreamName, message: Message, expect: Expect) -> BoxFuture<'_, Result<u64, PublishError>> {
        self.inner.publish(stream, message, expect)
    }

    fn publish_batch(&self, stream: StreamName, messages: Vec<(Message, Expect)>) -> BoxFuture<'_, Result<u64, PublishError>> {
        self.inner.publish_batch(stream, messages)
    }

    fn read<'a>(&'a self, stream: StreamName, filter: &'a str, from: u64, most: usize) -> BoxFuture<'a, Result<Page, ReadError>> {
        self.reads.lock().unwrap().push((filter.to_owned(), most));
        self.inner.read(stream, filter, from, most)
    }

    fn last<'a>(&'a self, stream: StreamName, subject: &'a str) -> BoxFuture<'a, Result<Option<Stored>, ReadError>> {
        self.inner.last(stream, subject)
    }

    fn bounds(&self, stream: StreamName) -> BoxFuture<'_, Result<Bounds, ReadError>> {
        self.inner.bounds(stream)
    }

    fn tail(&self, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem> {
        let held = self.held.subscribe();
        let let_through = move |item| {
            let mut held = held.clone();
            async move {
                let _ = held.wait_for(|held| !held).await;
                item
            }
        };
        self.inner.tail(stream, filters, from).then(let_through).boxed()
    }

    fn purge(&self, stream: StreamName, filter: Option<String>, below: u64) -> BoxFuture<'_, Result<(), ReadError>> {
        self.inner.purge(stream, filter, below)
    }

    fn listen(&self, subject: &str) -> BoxFuture<'_, Result<BoxStream<'static, Stored>, ReadError>> {
        self.inner.listen(subject)
    }

    fn nudge(&self, stream: StreamName) {
        self.inner.nudge(stream);
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.inner.connections()
    }
}
