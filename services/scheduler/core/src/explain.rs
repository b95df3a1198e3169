//! Why a job waits, told afresh: the recorded reason says only its kind for certain; the numbers are of this moment.

use crate::decide::{Board, Forecast, Lack, Shape, Shares, When, array, closed_and_free, forecast, lack, tainted_and_free, too_few_open};
use crate::state::{Job, Node, Part, Stage, State, Urgency};
use footplate_events::facts::{DeadlineMissed, JobSpec, WaitReason};
use footplate_types::{NodeName, RunId, Timestamp};
use std::collections::BTreeMap;

/// Why a job waits and what would have to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The reason, with the numbers of this moment; `None` when nothing is known against it: it is placed at the next look.
    pub reason: Option<WaitReason>,
    /// Its place in its queue, by priority and age, from 1; 0 while it waits for other jobs.
    pub position: u64,
    /// How many jobs are pending in its queue.
    pub pending: u64,
    /// What would have to change, in words.
    pub change: String,
    /// What each pool has for it, by the pool's name; the nodes of no pool come first, under an empty one.
    pub pools: Vec<PoolRoom>,
    /// How its deadline stands, in words; empty when it has none.
    pub deadline: String,
    /// When it is expected to start, when room and quotas alone keep it waiting.
    pub start: Option<Forecast>,
}

/// What one pool has for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRoom {
    /// The pool; empty for nodes of none.
    pub pool: String,
    /// The one thing that binds there, in words.
    pub binds: String,
}

/// Why the pending job of a run waits; `None` when there is no such job or it does not wait. `now` is any clock near the broker's: estimates rest on it.
pub fn explain(state: &State, run: &RunId, now: Timestamp) -> Option<Explanation> {
    let job = state.jobs().get(run)?;
    let Stage::Pending { reason, .. } = &job.stage else { return None };
    if let Some(waits) = crate::after::explain(state, job, now) {
        return Some(waits);
    }
    let waits = |other: &&Job| other.spec.queue == job.spec.queue && other.attempt().is_none() && !other.tied;
    let position = state.jobs().values().filter(waits).filter(|other| other.turn() < job.turn()).count() as u64 + 1;
    let pending = state.index().pending.get(&job.spec.queue).copied().unwrap_or(0);
    let reason = fresh(state, job, reason.as_ref());
    let change = reason.as_ref().map_or_else(|| "nothing: it is placed at the next look".to_owned(), |reason| change(state, job, reason));
    let waits_for_room = matches!(
        &reason,
        None | Some(WaitReason::Resources { .. } | WaitReason::Quota { .. } | WaitReason::Preempting | WaitReason::Backoff)
    );
    let start = waits_for_room.then(|| forecast(state, run, now));
    let pools = pools(state, Shape::of(job));
    Some(Explanation { reason, position, pending, change, pools, deadline: deadline(job, now), start })
}

/// How the deadline of a pending job stands, in words; empty when it has none.
pub(crate) fn deadline(job: &Job, now: Timestamp) -> String {
    let Some((deadline, latest)) = job.spec.limits.deadline.zip(job.spec.limits.latest_start()) else { return String::new() };
    let near = job.urgency == Urgency::Near;
    if job.urgency == Urgency::Missed || deadline <= now {
        let what = match job.spec.limits.deadline_missed {
            DeadlineMissed::Run => "it waits on, as if it had none (limits.deadline_missed: run)",
            DeadlineMissed::End => "it ends for it (limits.deadline_missed: end)",
        };
        format!("its deadline, {deadline}, has passed: {what}")
    } else if latest <= now {
        format!(
            "it should have started by {latest}: it is over by its deadline, {deadline}, only if it takes less than limits.max_duration"
        )
    } else if near {
        format!("it has to start by {latest} to be over by its deadline, {deadline}: it goes before others of its priority in its queue")
    } else {
        format!("it has to start by {latest} to be over by its deadline, {deadline}")
    }
}

/// What each pool has for jobs of a shape.
fn pools(state: &State, shape: Shape<'_>) -> Vec<PoolRoom> {
    let mut board = Board::of(state);
    match shape.parts {
        [] => _ = board.fit(shape),
        parts => parts.iter().for_each(|part| _ = board.fit(shape.of_part(part))),
    }
    let mut pools: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (_, node)) in board.nodes.iter().enumerate() {
        pools.entry(node.shape.pool.as_deref().unwrap_or_default()).or_default().push(at);
    }
    let room = |(pool, nodes): (&str, Vec<usize>)| PoolRoom { pool: pool.to_owned(), binds: binds(&board, shape, &nodes) };
    pools.into_iter().map(room).collect()
}

/// What binds among these nodes, in words: of a gang of roles for each role.
fn binds(board: &Board<'_>, shape: Shape<'_>, nodes: &[usize]) -> String {
    match shape.parts {
        [] => board.binds(shape, nodes),
        parts => {
            let told = parts.iter().map(|part| format!("{}: {}", part.name, board.binds(shape.of_part(part), nodes)));
            told.collect::<Vec<_>>().join("; ")
        }
    }
}

/// What would keep a job waiting if it were submitted now; `None` when it could start at once (others that wait are not looked at).
pub fn outlook(state: &State, spec: &JobSpec) -> Option<WaitReason> {
    if state.is_shut(&spec.queue) {
        return Some(WaitReason::QueueHeld);
    }
    let mut board = Board::of(state);
    if let Some(detail) = Shares::new(state, &board).lacks(spec, false) {
        return Some(WaitReason::Quota { detail });
    }
    let parts = Part::all(spec, &[]);
    let shape = Shape::of_spec(spec, &parts);
    if board.seat(shape, When::Now).is_some() {
        return None;
    }
    Some(told(state, &mut board, shape))
}

fn told(state: &State, board: &mut Board<'_>, shape: Shape<'_>) -> WaitReason {
    match lack(state, board, shape) {
        Lack::Never(detail) => WaitReason::NoSuchNode { detail },
        Lack::Now(detail) => WaitReason::Resources { detail },
    }
}

/// The reason with the numbers of this moment.
fn fresh(state: &State, job: &Job, recorded: Option<&WaitReason>) -> Option<WaitReason> {
    if job.held {
        return Some(WaitReason::Held);
    }
    if state.is_shut(&job.spec.queue) {
        return Some(WaitReason::QueueHeld);
    }
    if let Some(behind) = state.stands_behind(job) {
        return Some(WaitReason::Array { detail: array::stands(job, behind) });
    }
    let mut board = Board::of(state);
    if let Some(detail) = Shares::new(state, &board).lacks(&job.spec, false) {
        return Some(WaitReason::Quota { detail });
    }
    match recorded {
        // A quota that lacks nothing is kept for what has waited longer, which a look alone can tell.
        None | Some(WaitReason::Backoff | WaitReason::Preempting | WaitReason::Quota { .. }) => recorded.cloned(),
        Some(WaitReason::Held | WaitReason::QueueHeld | WaitReason::Dependencies { .. } | WaitReason::Array { .. }) => None,
        Some(WaitReason::Resources { .. } | WaitReason::NoSuchNode { .. }) => Some(told(state, &mut board, Shape::of(job))),
    }
}

/// The most nodes that are named.
const NODES_NAMED: usize = 3;

/// What opens a closed node again.
fn opened_by((name, node): (&NodeName, &Node)) -> String {
    if node.lost.is_some() {
        format!("{name} has to come back (it is lost: look at its agent)")
    } else if node.drained.is_some() || node.cordoned.is_some() || node.quarantined.is_some() {
        format!("`footplate node uncordon {name}`")
    } else {
        format!("{name} has to be healthy again")
    }
}

/// What would let the job onto nodes that a taint keeps it off, behind the other ways out; empty when none would.
fn tolerating(state: &State, spec: &JobSpec) -> String {
    let Some((name, taint)) = tainted_and_free(state, spec).next() else { return String::new() };
    format!("; or it has to tolerate {taint} (placement.tolerations), or the taint be taken off: `footplate node untaint {name} {taint}`")
}

/// What would free what the job asks for.
fn room_comes(state: &State, job: &Job) -> String {
    let closed: Vec<String> = closed_and_free(state, Shape::of(job)).into_iter().take(NODES_NAMED).map(opened_by).collect();
    let opened = closed.join(", or ");
    let tolerating = tolerating(state, &job.spec);
    if too_few_open(&mut Board::of(state), Shape::of(job)) && !opened.is_empty() {
        return format!("a closed node has to be opened: {opened}; or a node has to join{tolerating}");
    }
    let preempting = if job.spec.preemptible { "" } else { "; a larger priority may also preempt what is preemptible" };
    let opened = if opened.is_empty() { opened } else { format!("; or a closed node be opened: {opened}") };
    format!("running work has to end, or a node has to join{preempting}{opened}{tolerating}")
}

fn change(state: &State, job: &Job, reason: &WaitReason) -> String {
    match reason {
        WaitReason::Held => "someone has to release it (job release)".to_owned(),
        WaitReason::QueueHeld => {
            let queue = state.queue(&job.spec.queue);
            let what = if queue.is_unknown(&job.spec.queue) {
                "made"
            } else if queue.settings.closed {
                "opened"
            } else {
                "released"
            };
            format!("queue {} has to be {what} (queue set)", job.spec.queue)
        }
        WaitReason::Quota { .. } => {
            format!("work of queue {} has to end, its quota or guarantee be raised, or the job ask for less", job.spec.queue)
        }
        WaitReason::Resources { .. } => room_comes(state, job),
        WaitReason::NoSuchNode { .. } => {
            format!("a node that can take it has to join, or the job has to ask for less{}", tolerating(state, &job.spec))
        }
        WaitReason::Backoff => "its back-off after a failed attempt has to be over; it is then tried again by itself".to_owned(),
        WaitReason::Preempting => "preempted work has to leave; it starts right after".to_owned(),
        WaitReason::Array { .. } => "others of its array have to end: it was submitted with this limit (array.at_once)".to_owned(),
        WaitReason::Dependencies { .. } => "the runs that it waits for have to end".to_owned(),
    }
}
