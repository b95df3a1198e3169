//! What the ledger says of queues, jobs, attempts, nodes and claims: a fold, rebuilt by replay alone.

mod after;
mod array;
mod attempt;
mod fingerprint;
mod fold;
mod index;
mod job;
mod kept;
mod node;
mod queue;
mod roles;
mod tree;

pub(crate) use after::Standing;
pub(crate) use array::{ArrayKey, Behind};
pub(crate) use attempt::Verdict;
pub use attempt::{Attempt, Checkpoint, Ending, How, Launch, Member, MemberStage, Stop};
#[cfg(test)]
pub(crate) use index::Limit;
pub(crate) use index::{Group, GroupKey, Index, Limits, Stoppable, Turn, Waiting};
pub(crate) use job::Wait;
pub use job::{Answer, Ask, Budget, Chain, EndedJob, Job, PastAttempt, Request, Stage, Urgency};
pub use node::{Claim, ClaimKey, Claimed, Mark, Node};
pub use queue::{Holding, Queue};
pub(crate) use roles::Part;
pub use tree::DEPTH_MAX;
pub(crate) use tree::{lack as quota_lack, told};

use footplate_es::Cause;
use footplate_events::facts::JobSpec;
use footplate_types::{EventId, NodeName, ProjectName, QueueName, RunId, Timestamp};
use index::Filing;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where an event stands, when the broker stored it, and which event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The ledger sequence.
    pub sequence: u64,
    /// The broker's time.
    pub at: Timestamp,
    /// The event's id.
    pub id: EventId,
}

/// A trial of a sweep that wants its job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// The tenant.
    pub project: ProjectName,
    /// What the job asks.
    pub spec: Arc<JobSpec>,
    /// What its submission follows from.
    pub cause: Cause,
    /// The cancel that the job is born with: the trial was pruned before its submission.
    pub(crate) cancel: Option<Request>,
}

/// Everything that the scheduler's decisions rest upon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "kept::Kept")]
pub struct State {
    /// The last sequence that was folded.
    position: u64,
    /// The sequence of the last event that changed what may be placed.
    revision: u64,
    /// The scheduler's newest term.
    term: Option<Stamp>,
    queues: BTreeMap<QueueName, Queue>,
    jobs: BTreeMap<RunId, Job>,
    ended: BTreeMap<RunId, EndedJob>,
    nodes: BTreeMap<NodeName, Node>,
    /// The sequence of the last event that added a node.
    joined_at: u64,
    /// Trials whose job is not submitted yet.
    wanted: BTreeMap<RunId, Wanted>,
    /// Jobs, living or ended, with requests that have no answer.
    asking: BTreeSet<RunId>,
    /// Jobs that wait for others, out of line.
    ties: after::Ties,
    /// Follows from the jobs.
    #[serde(skip)]
    index: Index,
}

impl State {
    /// The last sequence that was folded in.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The scheduler's newest term, once one has begun.
    pub fn term(&self) -> Option<&Stamp> {
        self.term.as_ref()
    }

    /// Every queue that was configured or has had a job, by name.
    pub fn queues(&self) -> &BTreeMap<QueueName, Queue> {
        &self.queues
    }

    /// Every job that has not ended, by run.
    pub fn jobs(&self) -> &BTreeMap<RunId, Job> {
        &self.jobs
    }

    /// Every job that has ended, by run.
    pub fn ended(&self) -> &BTreeMap<RunId, EndedJob> {
        &self.ended
    }

    /// Trials whose job is not submitted yet, by run.
    pub fn wanted(&self) -> &BTreeMap<RunId, Wanted> {
        &self.wanted
    }

    /// Every node that ever registered, by name.
    pub fn nodes(&self) -> &BTreeMap<NodeName, Node> {
        &self.nodes
    }

    /// The queue's settings; for one that nobody configured, weight 1 and no quota.
    pub fn queue(&self, name: &QueueName) -> Queue {
        self.queues.get(name).cloned().unwrap_or_default()
    }

    /// How a request about a job was answered; `None` while it was not.
    pub fn answer(&self, run: &RunId, request: &footplate_types::RequestId) -> Option<&Answer> {
        let living = self.jobs.get(run).and_then(|job| job.answers.get(request));
        living.or_else(|| self.ended.get(run).and_then(|job| job.answers.get(request)))
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn joined_at(&self) -> u64 {
        self.joined_at
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = (&Job, &Attempt)> {
        self.jobs.values().filter_map(|job| Some((job, job.attempt()?)))
    }

    /// The pending jobs that stand or fall with this one.
    pub(crate) fn group_of(&self, job: &Job) -> Option<&Group> {
        let key = GroupKey { class: job.class, preemptible: job.spec.preemptible };
        self.index.waiting.get(&job.spec.queue)?.get(&key)
    }

    /// Brings the index up to date with the jobs.
    fn refile(&mut self, before: Option<Filing>, after: Option<Filing>) {
        if before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| before.is_like(after)) {
            return;
        }
        before.iter().for_each(|filing| self.index.unfile(filing));
        after.iter().for_each(|filing| self.index.file(filing));
    }

    /// Gives the jobs of a queue their places anew.
    fn reorder(&mut self, name: &QueueName) {
        let Some(settings) = self.queues.get(name).map(|queue| queue.settings.clone()) else { return };
        let runs: Vec<RunId> = self.jobs.values().filter(|job| job.spec.queue == *name).map(|job| job.run).collect();
        for run in runs {
            let Some(job) = self.jobs.get_mut(&run) else { continue };
            let before = Filing::of(job);
            job.order = Job::order_of(&job.spec, &job.submitted, &settings);
            let after = Filing::of(job);
            self.refile(Some(before), Some(after));
        }
    }

    pub(crate) fn asking(&self) -> &BTreeSet<RunId> {
        &self.asking
    }

    /// Checks what must hold after every event: no slot of a node is claimed twice, and of no GPU more than there is of it, every living member of an attempt holds
    /// exactly its claim, the queues' holdings are the sum of the claims, who waits for others stands out of line. Told as the first fault, in
    /// words.
    pub fn check(&self) -> Result<(), String> {
        self.check_claims()?;
        self.check_ties()?;
        self.check_holdings()?;
        self.check_index()
    }

    /// Checks that every job stands at its place, and that the index is what it would be, built anew.
    fn check_index(&self) -> Result<(), String> {
        for job in self.jobs.values() {
            let order = Job::order_of(&job.spec, &job.submitted, &self.queue(&job.spec.queue).settings);
            if job.order != order {
                return Err(format!("run {} stands at {}, its place is {order}", job.run, job.order));
            }
        }
        let anew = Self::indexed(&self.jobs);
        if anew == self.index { Ok(()) } else { Err(format!("the index is {:?}, its jobs are {anew:?}", self.index)) }
    }

    fn indexed(jobs: &BTreeMap<RunId, Job>) -> Index {
        let mut index = Index::default();
        jobs.values().for_each(|job| index.file(&Filing::of(job)));
        index
    }

    fn check_claims(&self) -> Result<(), String> {
        let mut held = 0usize;
        for (name, node) in &self.nodes {
            node.check_claims().map_err(|fault| format!("{name}: {fault}"))?;
            held += node.claims.len();
        }
        let living: usize =
            self.active().filter(|(_, a)| !a.void).map(|(_, a)| a.members.iter().filter(|m| !m.is_released()).count()).sum();
        if living == held { Ok(()) } else { Err(format!("{living} members live, {held} claims are held")) }
    }

    fn check_holdings(&self) -> Result<(), String> {
        let mut sums: BTreeMap<&QueueName, Holding> = BTreeMap::new();
        for (job, attempt) in self.active().filter(|(_, attempt)| !attempt.void) {
            for member in attempt.members.iter().filter(|member| !member.is_released()) {
                sums.entry(&job.spec.queue).or_default().add(&Claim::of(&member.placement));
            }
        }
        for (name, queue) in &self.queues {
            let sum = sums.get(name).copied().unwrap_or_default();
            if sum != queue.holding {
                return Err(format!("queue {name} holds {:?}, its claims are {sum:?}", queue.holding));
            }
        }
        Ok(())
    }
}
