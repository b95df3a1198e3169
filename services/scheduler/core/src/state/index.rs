//! What the decisions look up of the jobs, kept beside them: who waits where, who may be due, who could be stopped. All of it follows from the jobs alone
//! and is brought up to date with every event, so that a look costs what there is to decide and not what there is.

use super::array::{ArrayKey, Arrays, Ready};
use super::{Holding, Job, Stage, Stamp, Wait};
use footplate_events::facts::JobSpec;
use footplate_types::{Digest, Millis, QueueName, RunId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// The place of a pending job in its queue: a larger priority first; then those whose latest start is near, in the order of those
/// ([`NOT_NEAR`] for the others); then their places from submission on (`Job::order_of`).
pub(crate) type Turn = (Reverse<i32>, (i64, u64), RunId);

/// The latest start of a job that none is near of.
pub(crate) const NOT_NEAR: i64 = i64::MAX;

/// Jobs of one queue that stand or fall together: what the first of them cannot get, none behind it can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    /// They fit on the same nodes.
    pub(crate) class: Digest,
    /// They may borrow alike.
    pub(crate) preemptible: bool,
}

/// The jobs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// What each of them asks.
    pub(crate) asked: Holding,
    /// How many members each has.
    pub(crate) nodes: usize,
    /// The jobs, by what was told last of why.
    jobs: BTreeMap<Option<Wait>, BTreeMap<Turn, Waiting>>,
    /// The first of them all.
    first: Option<(Turn, Waiting)>,
}

/// What is asked of a job that waits, beside its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Since when.
    pub(crate) since: Stamp,
    /// How long it stands somewhere at the most, in milliseconds; none without a limit.
    pub(crate) stay: Option<u64>,
}

impl Group {
    /// The first job behind `last`; the first of all without it.
    pub(crate) fn next(&self, last: Option<&Turn>) -> Option<Turn> {
        let Some(last) = last else { return self.first.map(|(turn, _)| turn) };
        self.jobs.values().filter_map(|jobs| jobs.range((Excluded(last), Unbounded)).next()).map(|(turn, _)| *turn).min()
    }

    /// The first so many jobs behind `last`, in order.
    pub(crate) fn behind(&self, last: &Turn, most: usize) -> Vec<(Turn, Waiting)> {
        let of = |jobs: &BTreeMap<Turn, Waiting>| {
            jobs.range((Excluded(last), Unbounded)).take(most).map(|(turn, of)| (*turn, *of)).collect::<Vec<_>>()
        };
        let mut behind: Vec<(Turn, Waiting)> = self.jobs.values().flat_map(of).collect();
        behind.sort_unstable_by_key(|(turn, _)| *turn);
        behind.truncate(most);
        behind
    }

    /// The jobs that were told something else.
    pub(crate) fn told_otherwise(&self, wait: Wait) -> impl Iterator<Item = &Turn> {
        self.jobs.iter().filter(move |(told, _)| **told != Some(wait)).flat_map(|(_, jobs)| jobs.keys())
    }

    /// The first job.
    pub(crate) fn first(&self) -> Option<&(Turn, Waiting)> {
        self.first.as_ref()
    }

    fn add(&mut self, told: Option<Wait>, turn: Turn, waiting: Waiting) {
        self.jobs.entry(told).or_default().insert(turn, waiting);
        if self.first.is_none_or(|(first, _)| turn <= first) {
            self.first = Some((turn, waiting));
        }
    }

    fn remove(&mut self, told: Option<Wait>, turn: &Turn) {
        if let Some(jobs) = self.jobs.get_mut(&told) {
            jobs.remove(turn);
            if jobs.is_empty() {
                self.jobs.remove(&told);
            }
        }
        if self.first.is_some_and(|(first, _)| first == *turn) {
            let firsts = self.jobs.values().filter_map(BTreeMap::first_key_value);
            self.first = firsts.min_by_key(|(turn, _)| **turn).map(|(turn, waiting)| (*turn, *waiting));
        }
    }

    /// The largest priority of them.
    pub(crate) fn priority(&self) -> i32 {
        self.first().map_or(i32::MIN, |((Reverse(priority), _, _), _)| *priority)
    }
}

/// A limit that runs from an event on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) since: Stamp,
    pub(crate) limit: Millis,
}

/// Limits by the sequence of the event that each runs from, which is the one that brings it here: whoever has read as far as an event knows all that were
/// there then.
pub(crate) type Limits = BTreeMap<(u64, RunId), Limit>;

/// Which attempt would go first among those that may be stopped for others: of the lowest priority, then the youngest.
pub(crate) type Stoppable = (i32, Reverse<u64>, RunId);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Pending jobs that may be considered together, by queue.
    pub(crate) waiting: BTreeMap<QueueName, BTreeMap<GroupKey, Group>>,
    /// Pending jobs for which others are being stopped.
    pub(crate) first: BTreeSet<Turn>,
    /// Pending jobs that wait for their back-off, or are held and were not told so.
    pub(crate) apart: BTreeSet<Turn>,
    /// Active jobs of which something may have to be said, whatever the clock and their nodes say.
    pub(crate) stirring: BTreeSet<RunId>,
    /// Active jobs whose attempt holds nothing any more.
    pub(crate) released: BTreeSet<RunId>,
    /// What limits the attempts of active jobs.
    pub(crate) timed: Limits,
    /// What limits how long pending jobs wait for their first placement.
    pub(crate) expiring: Limits,
    /// Attempts that may be stopped for others, by queue.
    pub(crate) stoppable: BTreeMap<QueueName, BTreeSet<Stoppable>>,
    /// Pending jobs with a deadline whose latest start has not come near, by that.
    pub(crate) nearing: BTreeSet<(Timestamp, RunId)>,
    /// Pending jobs with a deadline that has not passed, by that.
    pub(crate) missing: BTreeSet<(Timestamp, RunId)>,
    /// How many jobs are pending, by queue.
    pub(crate) pending: BTreeMap<QueueName, u64>,
    /// Arrays of which only so many jobs are placed at a time.
    pub(crate) arrays: Arrays,
}

/// Where a job stands in the index.
#[derive(Clone, Debug)]
pub(super) struct Filing {
    spec: Arc<JobSpec>,
    class: Digest,
    turn: Turn,
    /// Since when it is pending; of an active job its submission.
    since: Stamp,
    pending: Option<Sort>,
    expiring: Option<Limit>,
    /// The latest start that is to come near, and the deadline that is to pass.
    nearing: Option<Timestamp>,
    missing: Option<Timestamp>,
    stirring: bool,
    released: bool,
    timed: Option<Limit>,
    stoppable: Option<Stoppable>,
    /// Its array, when that has a limit.
    array: Option<ArrayKey>,
    placed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Group(Option<Wait>),
    First,
    Apart,
    /// Held, and told so: nothing is to be said of it.
    Parked,
}

impl Filing {
    /// Whether both stand at the same places.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let of =
            |filing: &Self| (filing.class, filing.turn, filing.since, filing.pending, filing.expiring, filing.stirring, filing.released);
        let of_attempt = |filing: &Self| (filing.timed, filing.stoppable, filing.placed, filing.nearing, filing.missing);
        Arc::ptr_eq(&self.spec, &other.spec) && of(self) == of(other) && of_attempt(self) == of_attempt(other)
    }

    /// Whether it is one of those of which its array may have only so many: placed, or others are being stopped for it.
    fn takes_a_place(&self) -> bool {
        self.placed || self.pending == Some(Sort::First)
    }

    pub(super) fn of(job: &Job) -> Self {
        let mut filing = Self {
            spec: job.spec.clone(),
            class: job.class,
            turn: job.turn(),
            since: job.submitted,
            pending: None,
            expiring: None,
            nearing: job.nearing(),
            missing: job.missing(),
            stirring: false,
            released: false,
            timed: None,
            stoppable: None,
            array: ArrayKey::of(job),
            placed: false,
        };
        match &job.stage {
            // It waits for others out of line: nothing here is asked of it.
            Stage::Pending { .. } if job.tied => {}
            Stage::Pending { backoff, reason, since } => {
                filing.since = *since;
                let told = reason.as_ref().map(Wait::of);
                filing.pending = Some(match told {
                    Some(Wait::Held) if job.held => Sort::Parked,
                    _ if job.held || backoff.0 > 0 => Sort::Apart,
                    Some(Wait::Preempting) => Sort::First,
                    told => Sort::Group(told),
                });
                let limit = job.spec.limits.max_pending;
                // What waits for others of its array is not in line.
                if limit.0 > 0 && job.last_attempt.0 == 0 && told != Some(Wait::Array) {
                    filing.expiring = Some(Limit { since: *since, limit });
                }
            }
            Stage::Active(attempt) => {
                filing.placed = true;
                filing.released = attempt.is_released();
                let goes_on = !filing.released && attempt.stop.is_none();
                let launches = attempt.launched.is_none() && attempt.is_ready() && attempt.rendezvous.is_some();
                filing.stirring = goes_on && (launches || attempt.first_failure().is_some());
                if goes_on {
                    filing.timed = match &attempt.launched {
                        None => Some(Limit { since: attempt.placed, limit: attempt.ready_within }),
                        Some(launch) => {
                            Some(Limit { since: launch.stamp, limit: job.spec.limits.max_duration }).filter(|of| of.limit.0 > 0)
                        }
                    };
                    let first = (job.priority, Reverse(attempt.placed.sequence), job.run);
                    filing.stoppable = job.spec.preemptible.then_some(first);
                }
            }
        }
        filing
    }
}

impl Index {
    pub(super) fn file(&mut self, filing: &Filing) {
        let Filing { spec, class, turn, .. } = filing;
        if let Some(sort) = filing.pending {
            *self.pending.entry(spec.queue.clone()).or_default() += 1;
            match sort {
                Sort::Group(told) => match &filing.array {
                    None => self.file_group(spec, *class, told, *turn, filing.since),
                    Some(array) => {
                        let ready = Ready { spec: spec.clone(), class: *class, told, since: filing.since };
                        self.line_up(array, *turn, ready);
                    }
                },
                Sort::First => _ = self.first.insert(*turn),
                Sort::Apart => _ = self.apart.insert(*turn),
                Sort::Parked => {}
            }
        }
        if let Some(array) = filing.array.as_ref().filter(|_| filing.takes_a_place()) {
            self.count_placed(array, true);
        }
        if filing.stirring {
            self.stirring.insert(turn.2);
        }
        if filing.released {
            self.released.insert(turn.2);
        }
        if let Some(limit) = filing.timed {
            self.timed.insert((limit.since.sequence, turn.2), limit);
        }
        if let Some(limit) = filing.expiring {
            self.expiring.insert((limit.since.sequence, turn.2), limit);
        }
        self.nearing.extend(filing.nearing.map(|at| (at, turn.2)));
        self.missing.extend(filing.missing.map(|at| (at, turn.2)));
        if let Some(first) = filing.stoppable {
            self.stoppable.entry(spec.queue.clone()).or_default().insert(first);
        }
    }

    pub(super) fn unfile(&mut self, filing: &Filing) {
        let Filing { spec, class, turn, .. } = filing;
        if let Some(sort) = filing.pending {
            if let Some(count) = self.pending.get_mut(&spec.queue) {
                *count -= 1;
                if *count == 0 {
                    self.pending.remove(&spec.queue);
                }
            }
            match sort {
                Sort::Group(told) => match &filing.array {
                    None => self.unfile_group(spec, *class, told, turn),
                    Some(array) => self.fall_out(array, turn),
                },
                Sort::First => _ = self.first.remove(turn),
                Sort::Apart => _ = self.apart.remove(turn),
                Sort::Parked => {}
            }
        }
        if let Some(array) = filing.array.as_ref().filter(|_| filing.takes_a_place()) {
            self.count_placed(array, false);
        }
        if filing.stirring {
            self.stirring.remove(&turn.2);
        }
        if filing.released {
            self.released.remove(&turn.2);
        }
        if let Some(limit) = filing.timed {
            self.timed.remove(&(limit.since.sequence, turn.2));
        }
        if let Some(limit) = filing.expiring {
            self.expiring.remove(&(limit.since.sequence, turn.2));
        }
        filing.nearing.iter().for_each(|at| _ = self.nearing.remove(&(*at, turn.2)));
        filing.missing.iter().for_each(|at| _ = self.missing.remove(&(*at, turn.2)));
        if let (Some(first), Some(all)) = (filing.stoppable, self.stoppable.get_mut(&spec.queue)) {
            all.remove(&first);
            if all.is_empty() {
                self.stoppable.remove(&spec.queue);
            }
        }
    }

    pub(super) fn file_group(&mut self, spec: &JobSpec, class: Digest, told: Option<Wait>, turn: Turn, since: Stamp) {
        let groups = self.waiting.entry(spec.queue.clone()).or_default();
        let nodes = spec.members() as usize;
        let new = || Group { asked: Holding::asked(spec), nodes, jobs: BTreeMap::new(), first: None };
        let group = groups.entry(GroupKey { class, preemptible: spec.preemptible }).or_insert_with(new);
        group.add(told, turn, Waiting { since, stay: spec.stay() });
    }

    pub(super) fn unfile_group(&mut self, spec: &JobSpec, class: Digest, told: Option<Wait>, turn: &Turn) {
        let Some(groups) = self.waiting.get_mut(&spec.queue) else { return };
        let key = GroupKey { class, preemptible: spec.preemptible };
        let Some(group) = groups.get_mut(&key) else { return };
        group.remove(told, turn);
        if group.jobs.is_empty() {
            groups.remove(&key);
        }
        if groups.is_empty() {
            self.waiting.remove(&spec.queue);
        }
    }
}
