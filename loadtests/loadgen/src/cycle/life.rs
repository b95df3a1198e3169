//! Whole lives: from the submit over gRPC to the end, with scheduler, executor, gpu-inventory and agents over a real broker; and the bare broker with as
//! many messages of the same sizes on the same streams.

use crate::gang::stage::Stage;
use crate::raw::{Raw, Ready};
use anyhow::{Context as _, Result, bail};
use footplate_api::{types, v1};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig};
use footplate_eventlog::port::BATCH_MAX;
use footplate_eventlog::{Broker, LedgerItem, StreamName};
use footplate_events::Event;
use footplate_events::facts::Outcome;
use footplate_testkit::nats;
use footplate_types::Digest;
use futures::{StreamExt, TryStreamExt};
use std::time::{Duration, Instant};

/// Submits under way.
const SUBMITS: usize = 256;
/// How long all of them may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Streams that a life writes to. (Beats come with time, not with lives.)
const STREAMS: [StreamName; 4] = [StreamName::Ledger, StreamName::Reports, StreamName::Settled, StreamName::Assignments];

/// What the lives have cost.
pub(super) struct Lives {
    lives: u32,
    took: Duration,
    messages: u64,
    raw_took: Duration,
}

impl Lives {
    pub(super) fn per_s(&self) -> f64 {
        f64::from(self.lives) / self.took.as_secs_f64()
    }

    /// Lives a second, if only the broker had to take their messages.
    pub(super) fn raw_per_s(&self) -> f64 {
        f64::from(self.lives) / self.raw_took.as_secs_f64()
    }

    pub(super) fn messages_each(&self) -> f64 {
        self.messages as f64 / f64::from(self.lives)
    }
}

/// Messages of one stream: how many, and the size of those that are still there, with one of their subjects.
struct Sent {
    stream: StreamName,
    subject: String,
    count: u64,
    bytes: usize,
}

/// Lives so many, then sends as many messages to a broker of its own.
pub(super) async fn measure(lives: u32, agents: u32) -> Result<Lives> {
    let stage = Stage::open(agents, Duration::ZERO).await?;
    let broker = stage.ledger.broker().clone();
    let mut before = Vec::new();
    for stream in STREAMS {
        before.push(broker.bounds(stream).await?.last);
    }
    let from = stage.ledger.end().await? + 1;
    let began = Instant::now();
    let ends = ends(&stage, from, lives);
    let submits = futures::stream::iter(0..lives).map(|at| submit(&stage, at)).buffer_unordered(SUBMITS).try_collect::<Vec<()>>();
    let (ended, submitted) = tokio::join!(tokio::time::timeout(PATIENCE, ends), submits);
    submitted?;
    ended.context("the jobs did not end in time")??;
    let took = began.elapsed();
    let mut sent = Vec::new();
    for (stream, before) in STREAMS.into_iter().zip(before) {
        sent.push(sent_to(broker.as_ref(), stream, before).await?);
    }
    stage.close().await?;
    let messages = sent.iter().map(|of| of.count).sum();
    Ok(Lives { lives, took, messages, raw_took: send(&sent).await? })
}

async fn submit(stage: &Stage, at: u32) -> Result<()> {
    let per_node = types::PerNode { gpus: 1, ..types::PerNode::default() };
    let spec = types::JobSpec {
        name: format!("life-{at}"),
        resources: Some(types::ResourceAsk { nodes: 1, per_node: Some(per_node) }),
        launch: Some(types::DocumentRef { digest: Digest::of(b"on paper").to_string(), bytes: 8 }),
        ..types::JobSpec::default()
    };
    let asked = v1::SubmitJobRequest { project: stage.project.to_string(), spec: Some(spec), ..v1::SubmitJobRequest::default() };
    stage.client.once(stage.client.jobs().submit_job(asked)).await?;
    Ok(())
}

/// Reads on until so many jobs have ended well.
async fn ends(stage: &Stage, from: u64, lives: u32) -> Result<()> {
    let mut items = stage.ledger.tail(Vec::new(), from);
    let mut ended = 0;
    while ended < lives {
        match items.next().await.context("the tail ended")? {
            LedgerItem::Fact(recorded) => match &recorded.envelope.event {
                Event::JobEnded(end) if end.outcome == Outcome::Succeeded => ended += 1,
                Event::JobEnded(end) => bail!("{} ended {:?}: {}", recorded.envelope.subject, end.outcome, end.message),
                _ => {}
            },
            LedgerItem::Position(_) => {}
            other => bail!("after {ended} ends came {other:?}"),
        }
    }
    Ok(())
}

async fn sent_to(broker: &dyn Broker, stream: StreamName, before: u64) -> Result<Sent> {
    let last = broker.bounds(stream).await?.last;
    let page = broker.read(stream, stream.subjects()[0], (before + 1).max(1), 500).await?;
    let sizes: Vec<usize> = page.messages.iter().map(|stored| stored.payload.len()).collect();
    let subject = page.messages.first().map(|stored| stored.subject.clone()).context("a life left no message on a stream")?;
    Ok(Sent { stream, subject, count: last - before, bytes: sizes.iter().sum::<usize>() / sizes.len().max(1) })
}

/// How long a broker takes for these messages alone, all streams at once: the ledger's in full atomic batches, which is the quickest way to have a message
/// durable; the others, whose streams take no batches, one by one, as many at a time as it likes best.
async fn send(sent: &[Sent]) -> Result<Duration> {
    let server = nats().try_start().await?;
    // It makes the streams.
    let _streams = JetStreamBroker::connect(JetStreamConfig::single(server.url(), "load")).await?;
    let mut writers = Vec::new();
    for of in sent {
        writers.push((Raw::connect(&server.url()).await?, of));
    }
    let began = Instant::now();
    futures::future::try_join_all(writers.into_iter().map(|(raw, of)| write(raw, of))).await?;
    Ok(began.elapsed())
}

async fn write(mut raw: Raw, sent: &Sent) -> Result<()> {
    let message = Ready::plain(sent.subject.clone(), vec![b'x'; sent.bytes].into());
    if sent.stream != StreamName::Ledger {
        return raw.window((0..sent.count).map(|_| Ok(message.clone()))).await;
    }
    let mut left = sent.count as usize;
    while left > 0 {
        let batch = left.min(BATCH_MAX);
        raw.batch(&vec![message.clone(); batch]).await?;
        left -= batch;
    }
    Ok(())
}
