//! Placements that are durable: by the real scheduler over a real broker, every write synced, each acknowledged under the term, and the assignments that
//! follow from them acknowledged too.

use crate::raw::{Raw, Ready};
use crate::sample::encoded;
use anyhow::{Context as _, Result, bail};
use footplate_clock::SystemClock;
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig};
use footplate_eventlog::{Expect, Ledger, LedgerItem, StreamName};
use footplate_events::facts::{JobSubmitted, NodeRegistered, PerNode, QueueConfigured, ResourceAsk};
use footplate_events::messages::Assignment;
use footplate_events::{Envelope, Event, Subject};
use footplate_replay::cycle::{node_shape, one_job};
use footplate_service::Context;
use footplate_testkit::nats;
use footplate_types::{Digest, Epoch, EventId, NodeName, PrincipalId, ProjectName, QueueName, RunId, Timestamp};
use futures::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GPUS: u32 = 8;
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// What was placed.
pub(super) struct Placed {
    pub(super) jobs: u32,
    /// How long they had waited.
    pub(super) waited: Duration,
    /// From the release of their queue, as stored, to the last assignment, as stored.
    pub(super) took: Duration,
}

struct Writer {
    actor: PrincipalId,
    next: u64,
}

impl Writer {
    fn ready(&mut self, subject: Subject, event: Event) -> Result<Ready> {
        self.next += 1;
        let id = EventId::derived(&[b"durable", &self.next.to_be_bytes()]);
        let (source, time, actor) = ("load/host-1".to_owned(), footplate_clock::now(), self.actor.clone());
        let envelope = Envelope { id, subject, event, source, time, actor, correlation: id, causation: None, trace: None };
        Ready::new(&encoded(&envelope)?, &Expect::Any)
    }
}

/// Submits jobs to a queue that is held, lets them wait, and releases it.
pub(super) async fn measure(jobs: u32, age: Duration) -> Result<Placed> {
    let server = nats().try_start().await?;
    let ledger = Ledger::new(Arc::new(JetStreamBroker::connect(JetStreamConfig::single(server.url(), "scheduler")).await?));
    let raw = Raw::connect(&server.url()).await?;
    let mut writer = Writer { actor: PrincipalId::parse("user:load")?, next: 0 };
    let project = ProjectName::parse("vision")?;
    let queue = Subject::queue(&QueueName::parse("default")?);
    let held = |held| QueueConfigured { held, ..QueueConfigured::default() };
    let mut all = vec![writer.ready(queue.clone(), held(true).into())];
    for at in 0..jobs.div_ceil(GPUS) {
        let name = format!("n{at:05}");
        let registered = NodeRegistered {
            epoch: Epoch(1),
            boot_id: "6f1e0a52-1a2b-4c3d-8e9f-000000000000".to_owned(),
            shape: node_shape(&name, at, GPUS),
            address: "10.0.0.7".to_owned(),
            agent_version: "0.1.0".to_owned(),
            clock_ahead_ms: None,
        };
        all.push(writer.ready(Subject::node(&NodeName::parse(&name)?), registered.into()));
    }
    for at in 0..jobs {
        let resources = ResourceAsk { nodes: 1, per_node: PerNode { gpus: 1, cpus: 8, memory_bytes: 32 << 30, ..PerNode::default() } };
        let submitted = JobSubmitted { spec: one_job(at, resources), body: Digest::of(b"on paper") };
        all.push(writer.ready(Subject::job(&project, RunId::derived(&[b"durable", &at.to_be_bytes()])), submitted.into()));
    }
    raw.window(all).await?;
    let submitted = Instant::now();
    let context = Context::new(Duration::from_secs(30));
    let config = footplate_scheduler_server::Config::new("load");
    let handle = footplate_scheduler_server::start(&config, &ledger, &SystemClock::shared(), &context.within("scheduler")).await;
    // Everybody is told that the queue is held: the leader is at work, and at rest again.
    let told = u64::from(jobs.div_ceil(GPUS)) + 2 * u64::from(jobs);
    wait_for("everybody is told why he waits", || async { Ok(handle.live().position() >= told) }).await?;
    tokio::time::sleep(age.saturating_sub(submitted.elapsed())).await;

    let waited = submitted.elapsed();
    let from = ledger.end().await?;
    raw.window([writer.ready(queue, held(false).into())]).await?;
    let released = placed_from(&ledger, from + 1, jobs).await?;
    let last = assigned(&ledger, jobs).await?;
    context.shutdown.request();
    context.supervisor.stopped().await.context("the scheduler did not stop in good order")?;
    let took = Duration::from_nanos(u64::try_from(last.as_nanos() - released.as_nanos())?);
    Ok(Placed { jobs, waited, took })
}

async fn wait_for<F: Future<Output = Result<bool>>>(what: &str, look: impl Fn() -> F) -> Result<()> {
    let began = Instant::now();
    while !look().await? {
        if began.elapsed() > PATIENCE {
            bail!("not within {} s: {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Reads on until so many jobs are placed; when the event before the first of them was stored.
async fn placed_from(ledger: &Ledger, from: u64, jobs: u32) -> Result<Timestamp> {
    let mut items = ledger.tail(Vec::new(), from);
    let (mut released, mut placed) = (None, 0);
    let read = async {
        while placed < jobs {
            match items.next().await.context("the tail ended")? {
                LedgerItem::Fact(recorded) => match &recorded.envelope.event {
                    Event::QueueConfigured(_) => released = released.or(Some(recorded.recorded_at)),
                    Event::JobPlaced(_) => placed += 1,
                    _ => {}
                },
                LedgerItem::Position(_) => {}
                other => bail!("after {placed} placements came {other:?}"),
            }
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, read).await.context("the jobs were not placed in time")??;
    released.context("the release was not seen")
}

/// Waits until every placement stands in an assignment; when the last of these was stored.
async fn assigned(ledger: &Ledger, jobs: u32) -> Result<Timestamp> {
    let began = Instant::now();
    loop {
        let (mut tasks, mut last, mut from) = (0, Timestamp::default(), Some(1));
        while let Some(next) = from {
            let page = ledger.broker().read(StreamName::Assignments, "fp.assign.*", next, 500).await?;
            for stored in &page.messages {
                tasks += serde_json::from_slice::<Assignment>(&stored.payload)?.tasks.len();
                last = last.max(stored.recorded_at);
            }
            from = page.next;
        }
        if tasks == jobs as usize {
            return Ok(last);
        }
        if began.elapsed() > PATIENCE {
            bail!("{tasks} of {jobs} placements stand in assignments after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
