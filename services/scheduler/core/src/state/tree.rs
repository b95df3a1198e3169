//! The tree of queues: which stand above one, what it holds with all below it, and what a quota on the way up keeps from starting.
//!
//! Parents are client-written, each on its queue's own aggregate, so two writers at once may close a circle or name a queue that is not there. A queue
//! whose way up does not end at a top within [`DEPTH_MAX`] steps counts as standing at the top itself: nothing is lost, and its own settings hold.

use super::queue::{Holding, Queue};
use super::{Job, State};
use crate::DEFAULT_QUEUE;
use footplate_events::facts::Quota;
use footplate_types::{GpuMilli, QueueName};

/// The most queues on the way from a queue to the top, both counted.
pub const DEPTH_MAX: usize = 8;

impl State {
    /// The queue itself, then those above it up to the top. One that nobody configured stands alone.
    pub fn line<'s>(&'s self, name: &'s QueueName) -> Vec<(&'s QueueName, &'s Queue)> {
        let mut line: Vec<(&QueueName, &Queue)> = Vec::new();
        let mut next = Some(name);
        while let Some((name, queue)) = next.and_then(|name| self.queues.get_key_value(name)) {
            if line.len() == DEPTH_MAX || line.iter().any(|(known, _)| *known == name) {
                // No end in sight: it stands alone.
                line.truncate(1);
                return line;
            }
            line.push((name, queue));
            next = queue.settings.parent.as_ref();
        }
        if next.is_some() && line.len() > 1 {
            line.truncate(1);
        }
        line
    }

    /// The queue above, when its way up ends at a top.
    pub fn parent<'s>(&'s self, name: &'s QueueName) -> Option<&'s QueueName> {
        self.line(name).get(1).map(|(parent, _)| *parent)
    }

    /// What the jobs of a queue and of all below it hold.
    pub fn held_below(&self, name: &QueueName) -> Holding {
        let within = |below: &QueueName| self.line(below).iter().any(|(above, _)| *above == name);
        self.queues.iter().filter(|(below, _)| within(below)).fold(Holding::default(), |sum, (_, queue)| sum.with(queue.holding))
    }

    /// Whether nothing of the queue is placed now: it or one above it is held or closed, or nobody configured it.
    pub fn is_shut(&self, name: &QueueName) -> bool {
        match self.line(name).as_slice() {
            [] => name.as_str() != DEFAULT_QUEUE,
            line => line.iter().any(|(name, queue)| queue.is_shut(name)),
        }
    }

    /// Why an ask does not fit now under the quota of its queue or of one above it, in words; `None` when it fits.
    fn quota_lacks(&self, name: &QueueName, asked: Holding) -> Option<String> {
        let bound = |queue: &Queue| !queue.settings.quota.is_none();
        let line = self.line(name);
        let bounds = line.iter().filter(|(_, queue)| bound(queue));
        let mut lacks = bounds.filter_map(|(above, queue)| told(name, above, lack(&queue.settings.quota, self.held_below(above), asked)));
        lacks.next()
    }

    /// Why an ask can never fit under these quotas, in words; `None` when it could.
    pub fn quota_never(&self, name: &QueueName, asked: Holding) -> Option<String> {
        let line = self.line(name);
        let mut lacks = line.iter().filter_map(|(above, queue)| told(name, above, lack(&queue.settings.quota, Holding::default(), asked)));
        lacks.next()
    }

    /// Whether the jobs that are placed on a queue's line would let one more of these start.
    pub(super) fn lets_start(&self, job: &Job) -> bool {
        let line = self.line(&job.spec.queue);
        !line.iter().any(|(_, queue)| queue.settings.held) && self.quota_lacks(&job.spec.queue, Holding::asked(&job.spec)).is_none()
    }
}

/// Names the queue whose quota it is, when it is another one's.
pub(crate) fn told(name: &QueueName, above: &QueueName, lack: Option<String>) -> Option<String> {
    lack.map(|lack| if name == above { lack } else { format!("queue {above} above it: {lack}") })
}

/// Why an ask does not fit under a quota beside what is held, as used and allowed with the ask, in words; `None` when it fits.
pub(crate) fn lack(quota: &Quota, held: Holding, asked: Holding) -> Option<String> {
    let (gpu_milli, slots) = Holding::limits(quota);
    let over = |used: u64, asked: u64, quota: Option<u64>| quota.filter(|quota| asked > 0 && used + asked > *quota);
    if let Some(quota) = over(held.gpu_milli, asked.gpu_milli, gpu_milli) {
        let (used, quota, asked) = (GpuMilli(held.gpu_milli), GpuMilli(quota), GpuMilli(asked.gpu_milli));
        return Some(format!("gpus: {used} of {quota} in use, {asked} asked"));
    }
    over(held.slots, asked.slots, slots).map(|quota| format!("slots: {} of {quota} in use, {} asked", held.slots, asked.slots))
}
