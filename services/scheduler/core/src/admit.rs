//! Who is let in: a submission is refused at once when it can never run as asked, with what would have to change.

use crate::DEFAULT_QUEUE;
use crate::decide::never;
use crate::state::State;
use footplate_events::facts::JobSpec;
use footplate_types::{Invalid, QueueName, RunId};

/// Why a submission, or the closing of a queue, is refused. Told by what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A value is out of its limits: mend it.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Nobody configured the queue: name one that is there, or configure it.
    #[error("there is no queue {queue}; there are: {there}")]
    NoSuchQueue {
        /// What was asked.
        queue: QueueName,
        /// What there is, joined by commas.
        there: String,
    },
    /// The queue takes no work any more: name another one.
    #[error("queue {queue} is closed; submit to another one")]
    QueueClosed {
        /// What was asked.
        queue: QueueName,
    },
    /// No set of known nodes could ever take it: ask less, or queue it all the same until such nodes join.
    #[error("it can never run here: {detail}")]
    NeverFits {
        /// What the nearest node lacks.
        detail: String,
    },
    /// Its queue's hard quota is smaller than what it asks: ask less, use another queue, or have the quota raised.
    #[error("it can never run in queue {queue}: {detail}")]
    OverQuota {
        /// The queue.
        queue: QueueName,
        /// What is asked and allowed.
        detail: String,
    },
    /// Jobs of the queue live: end them first.
    #[error("queue {queue} cannot be closed while {count} of its jobs live: {runs}")]
    QueueInUse {
        /// The queue.
        queue: QueueName,
        /// How many.
        count: u64,
        /// The first of them, joined by commas.
        runs: String,
    },
}

/// Whether a submission may enter its queue. `queue_anyway`: let it wait though no node that is there now could ever take it, or its
/// queue's quota never let it start. Without any node nothing can be said, and it may wait.
pub fn admit(state: &State, spec: &JobSpec, queue_anyway: bool) -> Result<(), Refusal> {
    spec.validate()?;
    let queue = state.queue(&spec.queue);
    if queue.is_unknown(&spec.queue) {
        let mut names: Vec<&str> = state.queues().iter().filter(|(_, queue)| queue.sequence > 0).map(|(name, _)| name.as_str()).collect();
        if !names.contains(&DEFAULT_QUEUE) {
            names.insert(0, DEFAULT_QUEUE);
        }
        return Err(Refusal::NoSuchQueue { queue: spec.queue.clone(), there: names.join(", ") });
    }
    if queue.settings.closed {
        return Err(Refusal::QueueClosed { queue: spec.queue.clone() });
    }
    if queue_anyway {
        return Ok(());
    }
    let of_all = |per_node: u32| u64::from(per_node) * u64::from(spec.resources.nodes);
    if let Some(detail) = queue.quota_never(of_all(spec.resources.per_node.gpus), of_all(spec.resources.per_node.slots)) {
        return Err(Refusal::OverQuota { queue: spec.queue.clone(), detail });
    }
    match never(state, spec) {
        Some(detail) if !state.nodes().is_empty() => Err(Refusal::NeverFits { detail }),
        _ => Ok(()),
    }
}

/// Whether a queue may be closed for good: not while jobs of it live.
pub fn can_close(state: &State, queue: &QueueName) -> Result<(), Refusal> {
    const SHOWN: usize = 5;
    let living = state.jobs().values().filter(|job| job.spec.queue == *queue);
    let runs: Vec<RunId> = living.map(|job| job.run).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = runs.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = if runs.len() > SHOWN { ", ..." } else { "" };
    Err(Refusal::QueueInUse { queue: queue.clone(), count: runs.len() as u64, runs: format!("{}{more}", shown.join(", ")) })
}
