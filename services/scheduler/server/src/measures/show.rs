//! The newest census in Prometheus form: written anew at every scrape from what is there, so that nothing that is gone stands on, and waits grow by themselves.

use super::census::{Census, Units};
use footplate_clock::SharedClock;
use footplate_eventlog::Standing;
use footplate_events::facts::Quota;
use footplate_types::GpuMilli;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, GaugeValueEncoder};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The newest census. A cheap handle.
#[derive(Clone, Debug)]
pub(super) struct Board {
    newest: Arc<Mutex<Arc<Census>>>,
    clock: SharedClock,
    standing: watch::Receiver<Standing>,
}

impl Board {
    pub(super) fn new(clock: SharedClock, standing: watch::Receiver<Standing>) -> Self {
        Self { newest: Arc::default(), clock, standing }
    }

    pub(super) fn put(&self, census: Census) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(census);
    }

    fn newest(&self) -> Arc<Census> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Writes one gauge with all its samples; nothing at all when there are none.
fn gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    samples: impl IntoIterator<Item = (L, V)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut written = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        written.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Writes one gauge with one sample.
fn one(encoder: &mut DescriptorEncoder<'_>, (name, help): (&str, &str), value: impl EncodeGaugeValue) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

/// An amount that is mostly whole: GPUs, of which a job may hold a part.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Whole(i64),
    Part(f64),
}

impl EncodeGaugeValue for Amount {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(count) => count.encode(encoder),
            Self::Part(part) => part.encode(encoder),
        }
    }
}

/// Thousandths of a GPU as GPUs.
fn gpus(milli: u64) -> Amount {
    let one = GpuMilli::WHOLE.0;
    if milli.is_multiple_of(one) { Amount::Whole(whole(milli / one)) } else { Amount::Part(milli as f64 / one as f64) }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The amounts that are set; what is not set is not there, and never 0.
fn set(quota: Quota) -> impl Iterator<Item = (&'static str, u64)> {
    let amounts = [("gpus", quota.gpus), ("slots", quota.slots)];
    amounts.into_iter().filter_map(|(resource, amount)| Some((resource, u64::from(amount?))))
}

fn states(units: &Units) -> [(&'static str, u64); 3] {
    [("allocated", units.allocated), ("free", units.free), ("out", units.out)]
}

impl Collector for Board {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (census, now) = (self.newest(), self.clock.now());
        let encoder = &mut encoder;
        let leads = i64::from(super::leads(&self.standing));
        one(encoder, ("leads", "1 while this instance leads, else 0"), leads)?;
        let told = "Ledger sequence up to which the view stood when it was counted";
        one(encoder, ("view_position", told), whole(census.view))?;
        queues(encoder, &census, now)?;
        // Exactly 0 when nobody waits: an alert on it must be able to end.
        let oldest = census.waits().longest(now).unwrap_or(0.0);
        one(encoder, ("oldest_pending_seconds", "How long the job has waited that waits longest; 0 when none waits"), oldest)?;
        fleet(encoder, &census)
    }
}

fn queues(encoder: &mut DescriptorEncoder<'_>, census: &Census, now: footplate_types::Timestamp) -> fmt::Result {
    let jobs = census.queues.iter().flat_map(|(name, queue)| {
        let states = [("pending", queue.pending), ("held", queue.held), ("after", queue.after), ("active", queue.active)];
        states.map(|(state, count)| ([("queue", name.as_str()), ("state", state)], whole(count)))
    });
    gauge(encoder, ("jobs", "Jobs that have not ended, by queue and state"), jobs)?;
    let longest = census.queues.iter().filter_map(|(name, queue)| Some(([("queue", name.as_str())], queue.waits.longest(now)?)));
    gauge(encoder, ("wait_longest_seconds", "How long the pending job of a queue has waited that waits longest"), longest)?;
    let mean = census.queues.iter().filter_map(|(name, queue)| Some(([("queue", name.as_str())], queue.waits.mean(now)?)));
    gauge(encoder, ("wait_mean_seconds", "How long the pending jobs of a queue have waited, on average"), mean)?;
    let of = |name, resource| [("queue", name), ("resource", resource)];
    let told = || census.queues.iter().filter(|(name, _)| name.as_str() != super::census::OTHER);
    let used = told().flat_map(|(name, queue)| {
        let used = [("gpus", gpus(queue.used.gpu_milli)), ("slots", Amount::Whole(whole(queue.used.slots)))];
        used.map(|(resource, amount)| (of(name.as_str(), resource), amount))
    });
    gauge(encoder, ("queue_used", "What the jobs of a queue and of all below it hold"), used)?;
    let quotas = told().flat_map(|(name, queue)| set(queue.quota).map(move |(resource, most)| (of(name.as_str(), resource), whole(most))));
    gauge(encoder, ("queue_quota", "The most that a queue and all below it may hold; absent where it is not limited"), quotas)?;
    let own =
        told().flat_map(|(name, queue)| set(queue.guarantee).map(move |(resource, least)| (of(name.as_str(), resource), whole(least))));
    gauge(encoder, ("queue_guarantee", "What is a queue's own; absent where nothing is guaranteed"), own)
}

fn fleet(encoder: &mut DescriptorEncoder<'_>, census: &Census) -> fmt::Result {
    let all = census.gpus.iter().flat_map(|((pool, model), units)| {
        let labels = move |state| [("pool", pool.as_str()), ("model", model.as_str()), ("state", state)];
        states(units).map(|(state, milli)| (labels(state), gpus(milli)))
    });
    gauge(encoder, ("gpus", "GPUs of all nodes, by pool, model and state"), all)?;
    let fragmented = census.gpus.iter().map(|((pool, model), units)| {
        let labels = [("pool", pool.as_str()), ("model", model.as_str())];
        (labels, gpus(units.fragmented))
    });
    gauge(encoder, ("gpus_fragmented", "Free GPUs on nodes on which something stands"), fragmented)?;
    let slots = census
        .slots
        .iter()
        .flat_map(|(pool, units)| states(units).map(|(state, count)| ([("pool", pool.as_str()), ("state", state)], whole(count))));
    gauge(encoder, ("slots", "CPU slots of all nodes, by pool and state"), slots)?;
    let fragmented = census.slots.iter().map(|(pool, units)| ([("pool", pool.as_str())], whole(units.fragmented)));
    gauge(encoder, ("slots_fragmented", "Free CPU slots on nodes on which something stands"), fragmented)?;
    let nodes = census.nodes.iter().flat_map(|(pool, nodes)| {
        let states = [("idle", nodes.idle), ("used", nodes.used), ("closed", nodes.closed)];
        states.map(|(state, count)| ([("pool", pool.as_str()), ("state", state)], whole(count)))
    });
    gauge(encoder, ("nodes", "Nodes, by pool and state"), nodes)
}
