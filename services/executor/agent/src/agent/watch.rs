//! The standing tasks: assignments in, reports out, what is settled, samples.

use super::open::Parts;
use crate::{
    config::AgentConfig,
    core::Input,
    hands::Hands,
    node::Sampler,
    record::{self, Batch, MetricHeader, StoredReport},
    ship::{Destination, Shipper},
    socket::{Intake, patiently},
    spool::Spool,
};
use footplate_eventlog::{Broker, StreamName};
use footplate_events::messages::{Assignment, InventoryReport, ReportBody, Settled, assign_subject, assigned_subject, settled_subject};
use footplate_series::SeriesSource;
use footplate_types::Rank;
use futures::StreamExt as _;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Pause before listening anew.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two trims of one spool.
const TRIM_EVERY: Duration = Duration::from_millis(500);
/// How much of the metrics spool the node's own samples may fill before they are left out: the trainings' points go first.
const SAMPLE_SHARE: u64 = 2;

fn spawn(life: &CancellationToken, work: impl Future<Output = ()> + Send + 'static) {
    let life = life.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = life.cancelled() => {}
            () = work => {}
        }
    });
}

/// `wait` and up to a fifth more.
fn jittered(wait: Duration) -> Duration {
    let random = u32::from(u16::from_le_bytes(footplate_clock::entropy()));
    wait + wait.mul_f64(0.2 * f64::from(random) / f64::from(u16::MAX))
}

/// Listens for the node's assignment, and reads it again and again: what was published while away is missed by a listener.
pub(super) fn assignments(config: &AgentConfig, broker: Arc<dyn Broker>, inputs: mpsc::Sender<Input>, life: &CancellationToken) {
    let (heard, listened, at) = (inputs.clone(), broker.clone(), assigned_subject(&config.node));
    spawn(life, async move {
        loop {
            match listened.listen(&at).await {
                Ok(mut messages) => {
                    while let Some(message) = messages.next().await {
                        hear(&heard, &message.payload).await;
                    }
                }
                Err(error) => tracing::warn!(%error, "assignments cannot be listened for"),
            }
            tokio::time::sleep(LISTEN_PAUSE).await;
        }
    });
    let (subject, every) = (assign_subject(&config.node), config.timings.assignment_every);
    spawn(life, async move {
        let mut connections = broker.connections();
        loop {
            match broker.last(StreamName::Assignments, &subject).await {
                Ok(Some(message)) => hear(&inputs, &message.payload).await,
                // A missing message means: change nothing.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the assignment cannot be read"),
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(every)) => {}
                _ = connections.changed() => {}
            }
        }
    });
}

async fn hear(inputs: &mpsc::Sender<Input>, payload: &[u8]) {
    match serde_json::from_slice::<Assignment>(payload) {
        Ok(assignment) => drop(inputs.send(Input::Assigned(assignment)).await),
        Err(error) => tracing::error!(%error, "unreadable assignment: nothing is changed"),
    }
}

/// What one spool has shipped, for the flush at the end.
pub(super) struct Shipped {
    spool: Spool,
    published: watch::Receiver<u64>,
}

/// Starts the five shippers and what trims behind them.
pub(super) fn ship(config: &AgentConfig, broker: Arc<dyn Broker>, parts: &Parts, life: &CancellationToken) -> Vec<Shipped> {
    let spools = &parts.spools;
    let ways = [
        (Destination::Reports("executor"), &spools.executor),
        (Destination::Reports("tracker"), &spools.tracker),
        (Destination::Reports("gpu-inventory"), &spools.inventory),
        (Destination::Logs, &spools.logs),
        (Destination::Metrics, &spools.metrics),
    ];
    let mut shipped = Vec::new();
    for (destination, spool) in ways {
        let shipper = Shipper {
            node: config.node.clone(),
            destination,
            spool: spool.clone(),
            broker: broker.clone(),
            settled: watch::Sender::new(spool.first() - 1),
            published: watch::Sender::new(spool.first() - 1),
            resend_after: config.timings.resend_after,
            aside: parts.aside.clone(),
            holes: Mutex::default(),
        };
        shipped.push(Shipped { spool: spool.clone(), published: shipper.published.subscribe() });
        spawn(life, trim(spool.clone(), shipper.settled.subscribe(), parts.hands.clone()));
        if destination != Destination::Metrics {
            let subject = settled_subject(&config.node, destination.name());
            spawn(life, settle(broker.clone(), subject, spool.clone(), shipper.settled.clone(), config.timings.settled_every));
        }
        let until = life.clone();
        tokio::spawn(async move { shipper.run(until).await });
    }
    shipped
}

/// Asks what the service has settled, while there is anything unsettled.
async fn settle(broker: Arc<dyn Broker>, subject: String, spool: Spool, settled: watch::Sender<u64>, every: Duration) {
    let mut appended = spool.watch();
    loop {
        if spool.durable() <= *settled.borrow() {
            if appended.changed().await.is_err() {
                return;
            }
            continue;
        }
        match broker.last(StreamName::Settled, &subject).await {
            Ok(Some(message)) => match serde_json::from_slice::<Settled>(&message.payload) {
                Ok(told) if told.up_to.spool == spool.id() => {
                    let up_to = told.up_to.offset.min(spool.durable());
                    settled.send_if_modified(|known| *known < up_to && std::mem::replace(known, up_to) != up_to);
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, %subject, "unreadable settlement"),
            },
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, %subject, "settlement cannot be read"),
        }
        tokio::time::sleep(jittered(every)).await;
    }
}

/// Forgets what is settled, after what must be known without it is on disk.
async fn trim(spool: Spool, mut settled: watch::Receiver<u64>, hands: Arc<dyn Hands>) {
    while settled.changed().await.is_ok() {
        let up_to = *settled.borrow_and_update();
        match hands.write_progress().await {
            Ok(()) => {
                if let Err(error) = spool.trim(up_to).await {
                    tracing::warn!(%error, "spool not trimmed");
                }
            }
            Err(error) => tracing::warn!(%error, "progress not written: spool not trimmed"),
        }
        tokio::time::sleep(TRIM_EVERY).await;
    }
}

/// Waits until everything in the spools was published once, at most `patience`.
pub(super) async fn flush(shipped: &[Shipped], patience: Duration) {
    let all = async {
        for way in shipped {
            let mut published = way.published.clone();
            let durable = way.spool.durable();
            let _ = published.wait_for(|known| *known >= durable).await;
        }
    };
    if tokio::time::timeout(patience, all).await.is_err() {
        tracing::warn!("the agent ends before everything was shipped; the next one goes on from here");
    }
}

/// Samples host and GPUs into the series of `node:<name>`, and reports health: how it stands after each registration, then what changes.
pub(super) fn samples(config: &AgentConfig, parts: &Parts, life: &CancellationToken) {
    let every = config.timings.sample_every;
    if every.is_zero() {
        return;
    }
    let mut registered = parts.intake.registered.subscribe();
    let (intake, most, work) = (parts.intake.clone(), config.spools.metrics / SAMPLE_SHARE, config.work.clone());
    let aside = parts.aside.clone();
    spawn(life, async move {
        let session = footplate_clock::session_id();
        let mut sampler = Sampler::new(work, aside);
        let mut number = 0;
        loop {
            tokio::time::sleep(every).await;
            // The inventory may know this node's health from an earlier agent, which it has outlived.
            if registered.has_changed().unwrap_or(false) {
                registered.mark_unchanged();
                sampler.tell_all();
            }
            let time_ms = footplate_clock::now().as_millis();
            let looked = tokio::task::spawn_blocking(move || {
                let seen = sampler.look(time_ms);
                (sampler, seen)
            });
            let Ok((back, seen)) = looked.await else { return };
            sampler = back;
            for changed in seen.changed {
                report_health(&intake, changed).await;
            }
            if intake.spools.metrics.held_bytes() > most || seen.points.is_empty() {
                continue;
            }
            number += 1;
            let source = SeriesSource::Node(intake.node.clone());
            let batch =
                Batch { project: "_".to_owned(), run: source.to_string(), session: session.to_string(), n: number, ..Batch::default() };
            let subject = format!("fp.metrics.{}.{}", source.shard(), intake.node);
            let header = MetricHeader { subject, of: None, rank: Rank(0), session, batch: number, op: 0 };
            let entry = record::pack(&header, &record::encode_batch(batch, &seen.points));
            patiently(|| intake.spools.metrics.append(entry.clone())).await;
        }
    });
}

async fn report_health(intake: &Arc<Intake>, changed: footplate_events::facts::NodeHealthChanged) {
    let body = ReportBody::Inventory(InventoryReport::HealthChanged { changed });
    let stored = StoredReport { epoch: intake.epoch(), body, traceparent: None, origin: None };
    patiently(|| intake.spools.inventory.append(stored.to_bytes())).await;
}
