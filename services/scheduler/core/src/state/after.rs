//! Who waits for whom: jobs whose conditions on the ends of other jobs are not all met stand out of line, and get in line when they are.
//!
//! A condition is looked at afresh whenever a job that it names is submitted or ends, so it does not matter in which order the events of jobs that
//! name each other came. Ends are final: a condition that is met stays met, one that never can be met stays so.

use super::index::Filing;
use super::{Job, Stage, Stamp, State};
use footplate_events::facts::{AfterJob, WaitReason};
use footplate_types::{ProjectName, RunId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How a condition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The run ended as it was waited for.
    Met,
    /// The run has not ended.
    Open,
    /// The run ended otherwise, or there is no such job in the project: it can never be met.
    Never,
}

/// The jobs that wait for others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ties {
    /// Who waits for a run that has not ended.
    waiters: BTreeMap<RunId, BTreeSet<RunId>>,
    /// Living jobs that are out of line.
    out_of_line: BTreeSet<RunId>,
    /// Those of them with a condition that can never be met.
    hopeless: BTreeSet<RunId>,
    /// Those of them with hope, of which nothing is told yet.
    untold: BTreeSet<RunId>,
}

impl State {
    /// Whether a living job still waits for others.
    pub fn waits_for_others(&self, run: &RunId) -> bool {
        self.ties.out_of_line.contains(run)
    }

    /// Jobs with a condition that can never be met.
    pub(crate) fn hopeless(&self) -> impl Iterator<Item = &Job> {
        self.ties.hopeless.iter().filter_map(|run| self.jobs.get(run))
    }

    /// Jobs that wait for others, of which nothing is told yet.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &Job> {
        self.ties.untold.iter().filter_map(|run| self.jobs.get(run))
    }

    /// Whether a run is a job of the project, submitted or about to be.
    pub(crate) fn knows(&self, project: &ProjectName, run: &RunId) -> bool {
        let of = |known: Option<&ProjectName>| known == Some(project);
        of(self.jobs.get(run).map(|job| &job.project))
            || of(self.ended.get(run).map(|job| &job.project))
            || of(self.wanted.get(run).map(|wanted| &wanted.project))
    }

    /// How a condition of a job of the project stands.
    pub(crate) fn standing(&self, project: &ProjectName, after: &AfterJob) -> Standing {
        match self.ended.get(&after.run).filter(|ended| ended.project == *project) {
            Some(ended) if after.when.is_met_by(ended.fact.outcome) => Standing::Met,
            Some(_) => Standing::Never,
            None if self.knows(project, &after.run) => Standing::Open,
            None => Standing::Never,
        }
    }

    /// How a condition of a living job stands. None waits for itself.
    pub(crate) fn stands(&self, job: &Job, after: &AfterJob) -> Standing {
        if after.run == job.run { Standing::Never } else { self.standing(&job.project, after) }
    }

    /// A job has come: it waits for what it names, and those that named it before look again. Tells whether it is in line at once.
    pub(super) fn tie(&mut self, run: RunId, stamp: Stamp) {
        let named: Vec<RunId> = self.jobs.get(&run).map(|job| job.spec.after.iter().map(|after| after.run).collect()).unwrap_or_default();
        if !named.is_empty() {
            self.ties.out_of_line.insert(run);
            if let Some(job) = self.jobs.get_mut(&run) {
                job.tied = true;
            }
            for other in named {
                self.ties.waiters.entry(other).or_default().insert(run);
            }
            self.look_at_ties(run, stamp);
        }
        self.look_at_waiters(run, stamp);
    }

    /// A job has ended: it waits for nobody any more, and those that wait for it look again.
    pub(super) fn untie(&mut self, run: RunId, named: &[AfterJob], stamp: Stamp) {
        self.forget_ties(run, named);
        self.look_at_waiters(run, stamp);
        self.ties.waiters.remove(&run);
    }

    fn forget_ties(&mut self, run: RunId, named: &[AfterJob]) {
        for set in [&mut self.ties.out_of_line, &mut self.ties.hopeless, &mut self.ties.untold] {
            set.remove(&run);
        }
        for after in named {
            if let Some(waiters) = self.ties.waiters.get_mut(&after.run) {
                waiters.remove(&run);
                if waiters.is_empty() {
                    self.ties.waiters.remove(&after.run);
                }
            }
        }
    }

    fn look_at_waiters(&mut self, run: RunId, stamp: Stamp) {
        let waiters: Vec<RunId> = self.ties.waiters.get(&run).into_iter().flatten().copied().collect();
        for waiter in waiters.into_iter().filter(|waiter| *waiter != run) {
            let filing = |state: &Self| state.jobs.get(&waiter).map(Filing::of);
            let before = filing(self);
            self.look_at_ties(waiter, stamp);
            let after = filing(self);
            self.refile(before, after);
        }
    }

    /// Looks at all conditions of a job that is out of line; gets it in line when they are met. Its wait begins then.
    fn look_at_ties(&mut self, run: RunId, stamp: Stamp) {
        let Some(job) = self.jobs.get(&run).filter(|job| self.waits_for_others(&job.run)) else { return };
        let spec = job.spec.clone();
        let standings: Vec<Standing> = spec.after.iter().map(|after| self.stands(job, after)).collect();
        if standings.contains(&Standing::Never) {
            self.ties.hopeless.insert(run);
        } else if standings.contains(&Standing::Open) {
            self.ties.hopeless.remove(&run);
        } else {
            self.forget_ties(run, &spec.after);
            if let Some(job) = self.jobs.get_mut(&run) {
                job.tied = false;
                if let Stage::Pending { since, reason, .. } = &mut job.stage {
                    *since = stamp;
                    *reason = reason.take().filter(|reason| !matches!(reason, WaitReason::Dependencies { .. }));
                }
            }
        }
        self.look_at_telling(&run);
    }

    /// What is told of a job has changed: whether its wait for others is still to be told.
    pub(super) fn look_at_telling(&mut self, run: &RunId) {
        let has_hope = self.waits_for_others(run) && !self.ties.hopeless.contains(run);
        let silent = |job: &Job| matches!(job.stage, Stage::Pending { reason: None, .. });
        if has_hope && self.jobs.get(run).is_some_and(silent) {
            self.ties.untold.insert(*run);
        } else {
            self.ties.untold.remove(run);
        }
    }

    /// Checks what must hold of them after every event; told as the first fault, in words.
    pub(super) fn check_ties(&self) -> Result<(), String> {
        for (run, job) in &self.jobs {
            let standings: Vec<Standing> = job.spec.after.iter().map(|after| self.stands(job, after)).collect();
            let out = standings.iter().any(|standing| *standing != Standing::Met);
            if out != self.waits_for_others(run) || out != job.tied {
                return Err(format!("{run} waits for others: {out}, and stands out of line: {}", !out));
            }
            if standings.contains(&Standing::Never) != self.ties.hopeless.contains(run) {
                return Err(format!("{run} with {standings:?} is not where the hopeless are told from the others"));
            }
        }
        let unknown = |set: &BTreeSet<RunId>| set.iter().find(|run| !self.jobs.contains_key(run)).copied();
        let sets = [&self.ties.out_of_line, &self.ties.hopeless, &self.ties.untold].into_iter().chain(self.ties.waiters.values());
        match sets.filter_map(unknown).next() {
            Some(run) => Err(format!("{run} does not live, and waits for others")),
            None => Ok(()),
        }
    }
}
