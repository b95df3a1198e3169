//! The bare broker: the same messages with the same expectations, sent and read with nothing of ours in between. What it reaches in a
//! mode is the limit of that mode.

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::jetstream::{self, consumer::DeliverPolicy, consumer::pull, context::ContextBuilder, message::PublishMessage};
use async_nats::{Client, HeaderMap, HeaderValue};
use bytes::Bytes;
use footplate_eventlog::{Expect, Message};
use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::{Value, json};
use std::future::IntoFuture;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long any one answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands that may wait for the connection, as in the platform's own.
const COMMANDS_MAX: usize = 2_048;
/// Publications under way in the windowed mode.
pub(crate) const WINDOW: usize = 1_000;
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";

/// A message ready for the wire.
#[derive(Clone)]
pub(crate) struct Ready {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
}

impl Ready {
    /// Makes a message ready, with its expectation.
    pub(crate) fn new(message: &Message, expect: &Expect) -> Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in message.headers.iter() {
            headers.append(name.as_ref(), value.parse::<HeaderValue>().context("a header")?);
        }
        headers.insert("Nats-Expected-Stream", "LEDGER");
        match expect {
            Expect::Any => {}
            Expect::Subject(sequence) => headers.insert(EXPECTED, sequence.to_string().as_str()),
            Expect::Other { subject, sequence } => {
                headers.insert(EXPECTED, sequence.to_string().as_str());
                headers.insert(EXPECTED_SUBJECT, subject.as_str());
            }
        }
        Ok(Self { subject: message.subject.clone(), headers, payload: message.payload.clone() })
    }

    /// A message without headers or expectation.
    pub(crate) fn plain(subject: String, payload: Bytes) -> Self {
        Self { subject, headers: HeaderMap::new(), payload }
    }

    /// How long its payload is.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// A connection of its own to the broker.
pub(crate) struct Raw {
    client: Client,
    context: jetstream::Context,
    batches: u64,
}

impl Raw {
    /// Connects.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let options = async_nats::ConnectOptions::new().client_capacity(COMMANDS_MAX).request_timeout(Some(PATIENCE));
        let client = options.connect(url).await?;
        let builder = ContextBuilder::new().timeout(PATIENCE).ack_timeout(PATIENCE).max_ack_inflight(WINDOW * 2);
        Ok(Self { context: builder.build(client.clone()), client, batches: 0 })
    }

    /// Publishes one and waits for its acknowledgement.
    pub(crate) async fn publish(&self, message: Ready) -> Result<u64> {
        let answer = self.client.request_with_headers(message.subject, message.headers, message.payload).await?;
        sequence(&answer.payload)
    }

    /// Publishes all, at most [`WINDOW`] without an acknowledgement at a time.
    pub(crate) async fn window(&self, messages: impl IntoIterator<Item = Result<Ready>>) -> Result<()> {
        let mut flying = FuturesUnordered::new();
        for message in messages {
            let Ready { subject, headers, payload } = message?;
            let message = PublishMessage::build().headers(headers).payload(payload);
            flying.push(self.context.send_publish(subject, message).await?.into_future());
            while flying.len() >= WINDOW {
                flying.next().await.transpose()?;
            }
        }
        while let Some(acknowledged) = flying.next().await {
            acknowledged?;
        }
        Ok(())
    }

    /// Publishes all as one atomic batch.
    pub(crate) async fn batch(&mut self, messages: &[Ready]) -> Result<u64> {
        self.batches += 1;
        let id = format!("raw-{}-{}", std::process::id(), self.batches);
        let last = messages.len();
        for (number, message) in (1..).zip(messages) {
            let Ready { subject, mut headers, payload } = message.clone();
            headers.insert("Nats-Batch-Id", id.as_str());
            headers.insert("Nats-Batch-Sequence", number.to_string().as_str());
            if number == last {
                headers.insert("Nats-Batch-Commit", "1");
                let answer = self.client.request_with_headers(subject, headers, payload).await?;
                return sequence(&answer.payload);
            }
            if number == 1 {
                let answer = self.client.request_with_headers(subject, headers, payload).await?;
                ensure!(answer.payload.is_empty(), "a batch was refused: {}", String::from_utf8_lossy(&answer.payload));
            } else {
                self.client.publish_with_headers(subject, headers, payload).await?;
            }
        }
        bail!("an empty batch")
    }

    /// Reads `count` messages from the stream's beginning with the client's own ordered consumer, and throws them away.
    pub(crate) async fn replay(&self, count: u64) -> Result<()> {
        let stream = self.context.get_stream_no_info("LEDGER").await?;
        let consumer = stream.create_consumer(pull::OrderedConfig::default()).await?;
        let mut messages = consumer.messages().await?;
        let mut bytes = 0;
        for _ in 0..count {
            bytes += messages.next().await.context("the consumer ended")??.payload.len();
        }
        ensure!(bytes > 0, "nothing was read");
        Ok(())
    }

    /// Follows the stream from its end on with the client's own ordered consumer; what it has read is told as it comes.
    pub(crate) async fn follow(&self) -> Result<Follower> {
        let mut stream = self.context.get_stream("LEDGER").await?;
        let start_sequence = stream.info().await?.state.last_sequence + 1;
        let config = pull::OrderedConfig { deliver_policy: DeliverPolicy::ByStartSequence { start_sequence }, ..Default::default() };
        let mut messages = stream.create_consumer(config).await?.messages().await?;
        let (read, seen) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                let message = message?;
                read.send_replace(message.info().map_err(anyhow::Error::from_boxed)?.stream_sequence);
            }
            bail!("the consumer ended")
        });
        Ok(Follower { seen, task })
    }

    /// Reads one subject with one direct get; how many messages came.
    pub(crate) async fn direct(&self, subject: &str, most: usize) -> Result<usize> {
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await?;
        let ask = json!({ "seq": 1, "next_by_subj": subject, "batch": most }).to_string();
        self.client.publish_with_reply("$JS.API.DIRECT.GET.LEDGER", inbox, ask.into()).await?;
        let mut count = 0;
        loop {
            let answer = tokio::time::timeout(PATIENCE, answers.next()).await?.context("the connection is closed")?;
            match answer.status {
                None => count += 1,
                Some(_) => return Ok(count),
            }
        }
    }
}

/// A bare reader; ends when dropped.
pub(crate) struct Follower {
    seen: watch::Receiver<u64>,
    task: JoinHandle<Result<()>>,
}

impl Follower {
    /// Waits until everything up to `sequence` was read.
    pub(crate) async fn has_read(&mut self, sequence: u64) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.seen.wait_for(|seen| *seen >= sequence)).await?.context("the reader ended")?;
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn sequence(answer: &[u8]) -> Result<u64> {
    let value: Value = serde_json::from_slice(answer)?;
    value["seq"].as_u64().with_context(|| format!("the broker refused: {value}"))
}
