//! Who is let in: a submission is refused at once when it can never run as asked, with what would have to change.

use crate::DEFAULT_QUEUE;
use crate::decide::never;
use crate::state::{DEPTH_MAX, State};
use footplate_events::facts::{JobSpec, QueueConfigured, Quota};
use footplate_types::{Invalid, ProjectName, QueueName, RunId};

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
    /// Other queues stand below it: jobs go into those.
    #[error("queue {queue} has queues below it ({below}); submit to one of those")]
    NotALeaf {
        /// What was asked.
        queue: QueueName,
        /// What stands below, joined by commas.
        below: String,
    },
    /// The queue that is to stand above is not there, closed, below the other, too deep, or has jobs of its own: name another one.
    #[error("queue {queue} cannot stand below {parent}: {why}")]
    BadParent {
        /// The queue.
        queue: QueueName,
        /// What was asked to stand above it.
        parent: QueueName,
        /// Why not.
        why: String,
    },
    /// More is guaranteed than there is to guarantee: ask less, or give the queue above more.
    #[error("queue {of} cannot be guaranteed {asked} {what}: {detail}")]
    OverGuarantee {
        /// The queue whose settings would not hold together.
        of: QueueName,
        /// Of which resource.
        what: &'static str,
        /// How much would be its own.
        asked: u32,
        /// How much may be, in words.
        allowed: String,
        /// The numbers.
        detail: String,
    },
    /// It is to come after a run that is no job of its project: name one that is.
    #[error("there is no job {run} in project {project} that it could come after")]
    NoSuchRun {
        /// What was asked.
        run: RunId,
        /// The project.
        project: ProjectName,
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
    if let Some((name, _)) = state.line(&spec.queue).into_iter().find(|(_, queue)| queue.settings.closed) {
        return Err(Refusal::QueueClosed { queue: name.clone() });
    }
    let below = below(state, &spec.queue);
    if !below.is_empty() {
        return Err(Refusal::NotALeaf { queue: spec.queue.clone(), below: joined(&below) });
    }
    if queue_anyway {
        return Ok(());
    }
    if let Some(detail) = state.quota_never(&spec.queue, spec.all_gpus(), spec.all_slots()) {
        return Err(Refusal::OverQuota { queue: spec.queue.clone(), detail });
    }
    match never(state, spec) {
        Some(detail) if !state.nodes().is_empty() => Err(Refusal::NeverFits { detail }),
        _ => Ok(()),
    }
}

/// How many of a list are named.
const SHOWN: usize = 5;

fn joined<T: std::fmt::Display>(all: &[T]) -> String {
    let shown: Vec<String> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    format!("{}{}", shown.join(", "), if all.len() > SHOWN { ", ..." } else { "" })
}

/// The queues right below one that are not closed.
fn below<'s>(state: &'s State, name: &QueueName) -> Vec<&'s QueueName> {
    let open = state.queues().iter().filter(|(_, queue)| !queue.settings.closed);
    open.map(|(below, _)| below).filter(|below| state.parent(below) == Some(name)).collect()
}

/// Whether a queue may be closed for good: not while jobs of it or of queues below it live.
pub fn can_close(state: &State, queue: &QueueName) -> Result<(), Refusal> {
    let within = |name: &QueueName| state.line(name).iter().any(|(above, _)| *above == queue);
    let living = state.jobs().values().filter(|job| job.spec.queue == *queue || within(&job.spec.queue));
    let runs: Vec<RunId> = living.map(|job| job.run).collect();
    if runs.is_empty() {
        return Ok(());
    }
    Err(Refusal::QueueInUse { queue: queue.clone(), count: runs.len() as u64, runs: joined(&runs) })
}

/// Whether a queue may have these settings beside those of the others. (Two that are set at the same moment may still not hold together; then each
/// of them stands at the top, see the tree of [`State`].)
pub fn can_configure(state: &State, name: &QueueName, settings: &QueueConfigured) -> Result<(), Refusal> {
    if let Some(parent) = &settings.parent {
        can_stand_below(state, name, parent)?;
    }
    for (what, of) in [("gpus", (|quota| quota.gpus) as fn(&Quota) -> Option<u32>), ("slots", |quota| quota.slots)] {
        let own = of(&settings.guarantee).unwrap_or(0);
        let over = |allowed, detail| Err(Refusal::OverGuarantee { of: name.clone(), what, asked: own, allowed, detail });
        if let Some(quota) = of(&settings.quota).filter(|quota| own > *quota) {
            return over(format!("at most {quota}"), format!("its own quota is {quota}"));
        }
        let sum_below = |parent: &QueueName| -> u64 {
            let others = below(state, parent).into_iter().filter(|below| *below != name);
            others.filter_map(|below| of(&state.queue(below).settings.guarantee)).map(u64::from).sum()
        };
        let given = sum_below(name);
        if given > u64::from(own) {
            return over(format!("{given} or more"), format!("queues below it are guaranteed {given}"));
        }
        if let Some(parent) = settings.parent.as_ref().filter(|_| own > 0) {
            let (of_parent, others) = (of(&state.queue(parent).settings.guarantee).unwrap_or(0), sum_below(parent));
            if others + u64::from(own) > u64::from(of_parent) {
                let detail = format!("{parent} above it is guaranteed {of_parent}, of which others have {others}");
                return over(format!("at most {}", u64::from(of_parent).saturating_sub(others)), detail);
            }
        }
    }
    Ok(())
}

fn can_stand_below(state: &State, name: &QueueName, parent: &QueueName) -> Result<(), Refusal> {
    let bad = |why: String| Err(Refusal::BadParent { queue: name.clone(), parent: parent.clone(), why });
    let above = state.queue(parent);
    if above.sequence == 0 {
        return bad("there is no such queue; make it first (queue set)".to_owned());
    }
    if above.settings.closed {
        return bad("it is closed".to_owned());
    }
    let line = state.line(parent);
    if line.iter().any(|(known, _)| *known == name) {
        return bad("it stands below that one itself".to_owned());
    }
    let depth = |name: &QueueName| {
        state.queues().keys().map(|other| state.line(other)).filter_map(|line| line.iter().position(|(above, _)| *above == name)).max()
    };
    if line.len() + 1 + depth(name).unwrap_or(0) > DEPTH_MAX {
        return bad(format!("a tree of queues is at most {DEPTH_MAX} deep"));
    }
    if above.living > 0 {
        return bad(format!("{} jobs of it live, and a queue with others below it has none of its own", above.living));
    }
    Ok(())
}
