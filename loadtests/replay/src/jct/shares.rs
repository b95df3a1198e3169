//! Policies that stop jobs for others: who runs is worked out anew from ranks, and from what each VC is entitled to.

use super::floor::JobId;
use super::history::{self, History};
use super::philly::Job;
use super::seating::Seating;
use super::world::{Scheduler, World};
use std::collections::{BTreeMap, VecDeque};

/// How jobs rank among each other: a lower rank first, among equals who runs, then who came first.
#[derive(Clone, Debug)]
pub enum Ranks {
    /// Least attained service: by queues of GPU-seconds used so far (Tiresias, NSDI 2019: discretised 2D-LAS).
    Attained {
        /// Where one queue ends and the next begins, in GPU-seconds.
        thresholds: Vec<u64>,
    },
    /// By the GPU-seconds that an end is expected to cost, as others of the VC and width took.
    Expected(Box<History>),
}

/// Waiting jobs that rank alike: of one VC, one size and one level, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bucket {
    vc: usize,
    gpus: u32,
    level: usize,
}

/// A policy that stops jobs.
pub struct Shares {
    ranks: Ranks,
    /// Whether each VC first gets what it is entitled to.
    quotas: bool,
    /// After how long a wait a job gets a turn whatever its rank.
    patience_s: Option<u64>,
    waiting: BTreeMap<Bucket, VecDeque<JobId>>,
    /// Everybody that began to wait, and when, in order; some wait no more.
    since: VecDeque<(u64, JobId)>,
    levels: Vec<usize>,
    looked_at: Option<u64>,
    woken_for: u64,
}

impl Shares {
    /// How often jobs are stopped for others at most, in seconds: arrivals of a minute are looked at together.
    const INTERVAL_S: u64 = 60;
    /// How often those who have waited their patience get their turns, in seconds: not one after the other without end, or what they
    /// borrow would be lent for good.
    const TURNS_EVERY_S: u64 = 3_600;

    /// Discretised least attained service.
    pub fn least_attained(thresholds: &[u64], jobs: usize, quotas: bool) -> Self {
        Self::new(Ranks::Attained { thresholds: thresholds.to_vec() }, None, jobs, quotas)
    }

    /// Expected cost of an end, by history; who has waited its patience gets a turn.
    pub fn expected(vcs: usize, patience_s: u64, jobs: usize, quotas: bool) -> Self {
        Self::new(Ranks::Expected(Box::new(History::new(vcs))), Some(patience_s), jobs, quotas)
    }

    fn new(ranks: Ranks, patience_s: Option<u64>, jobs: usize, quotas: bool) -> Self {
        let (waiting, since, levels) = (BTreeMap::new(), VecDeque::new(), vec![0; jobs]);
        Self { ranks, quotas, patience_s, waiting, since, levels, looked_at: None, woken_for: 0 }
    }

    fn rank(&self, bucket: &Bucket, held: u32) -> f64 {
        match &self.ranks {
            Ranks::Attained { .. } => bucket.level as f64,
            Ranks::Expected(history) => history.cost_of_an_end(bucket.vc, history::width_of(bucket.gpus), bucket.level) * f64::from(held),
        }
    }

    fn bucket(&self, world: &World, job: JobId) -> Bucket {
        let Job { vc, gpus, .. } = world.jobs[job];
        Bucket { vc, gpus, level: self.levels[job] }
    }

    fn level(&self, job: &Job, done_s: u64) -> usize {
        match &self.ranks {
            Ranks::Attained { thresholds } => thresholds.partition_point(|end| *end <= done_s * u64::from(job.gpus)),
            Ranks::Expected(_) => history::level_of(done_s),
        }
    }

    fn no_longer_waits(&mut self, world: &World, job: JobId) {
        let bucket = self.bucket(world, job);
        let Some(jobs) = self.waiting.get_mut(&bucket) else { return };
        if let Ok(at) = jobs.binary_search(&job) {
            jobs.remove(at);
        }
        if jobs.is_empty() {
            self.waiting.remove(&bucket);
        }
    }

    /// When to look again at the earliest, if not now.
    fn is_too_soon(&self, now_s: u64) -> Option<u64> {
        self.looked_at.map(|last| last + Self::INTERVAL_S).filter(|next| now_s < *next)
    }

    fn wake(&mut self, world: &mut World, at_s: u64) {
        if self.woken_for < at_s {
            self.woken_for = at_s;
            world.wake_at(at_s);
        }
    }
}

impl Scheduler for Shares {
    fn waits(&mut self, world: &World, job: JobId) {
        if let Ranks::Expected(history) = &mut self.ranks
            && world.standings[job].stops == 0
        {
            history.came(&world.jobs[job], 0);
        }
        let jobs = self.waiting.entry(self.bucket(world, job)).or_default();
        // Who was stopped is older than most, and goes back to its place.
        let at = jobs.partition_point(|other| *other < job);
        jobs.insert(at, job);
        self.since.push_back((world.standings[job].since_s, job));
    }

    fn ended(&mut self, world: &World, job: JobId) {
        if let Ranks::Expected(history) = &mut self.ranks {
            history.ended(&world.jobs[job]);
        }
    }

    fn next_mark(&self, world: &World, job: JobId, done_s: u64) -> Option<u64> {
        match &self.ranks {
            Ranks::Attained { thresholds } => {
                let gpus = u64::from(world.jobs[job].gpus);
                thresholds.iter().map(|end| end.div_ceil(gpus)).find(|mark| *mark > done_s)
            }
            Ranks::Expected(_) => history::next_begin(done_s),
        }
    }

    fn marked(&mut self, world: &World, job: JobId, done_s: u64) {
        let level = self.level(&world.jobs[job], done_s);
        self.levels[job] = level;
        if let Ranks::Expected(history) = &mut self.ranks {
            history.came(&world.jobs[job], level);
        }
    }

    fn look(&mut self, world: &mut World) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(next) = self.is_too_soon(world.now_s) {
            return self.wake(world, next);
        }
        self.looked_at = Some(world.now_s);
        let urgent = self.urgent(world);
        let (starting, keeps, is_protected) = Choice::of(self, world, &urgent).made(&urgent);
        let started = Seating::new(world, &keeps).seat_all(&starting);
        for job in started {
            self.no_longer_waits(world, job);
        }
        if is_protected || !starting.is_empty() {
            self.wake(world, world.now_s + Self::INTERVAL_S);
        }
    }
}

impl Shares {
    /// Who has waited its patience, the longest first, up to a quarter of all GPUs, while turns are given: for as long as it takes until who is
    /// protected has run its time.
    fn urgent(&mut self, world: &World) -> Vec<JobId> {
        let Some(patience_s) = self.patience_s else { return Vec::new() };
        if world.now_s % Self::TURNS_EVERY_S > world.preemption.minimum_run_s {
            return Vec::new();
        }
        let waits = |(since_s, job): &(u64, JobId)| {
            let standing = &world.standings[*job];
            standing.nodes.is_empty() && standing.ended_s.is_none() && standing.since_s == *since_s
        };
        while self.since.front().is_some_and(|entry| !waits(entry)) {
            self.since.pop_front();
        }
        let mut left = world.floor.gpus() / 4;
        let mut urgent = Vec::new();
        let overdue = self.since.iter().take_while(|(since_s, _)| since_s + patience_s <= world.now_s).filter(|entry| waits(entry));
        for (_, job) in overdue {
            let held = world.jobs[*job].held();
            // The first has its turn however wide it is.
            if held > left && !urgent.is_empty() {
                break;
            }
            left = left.saturating_sub(held);
            urgent.push(*job);
        }
        urgent
    }
}

/// One that may be chosen: a running job, or those of a bucket.
#[derive(Clone, Copy, Debug)]
struct Contender<'a> {
    rank: f64,
    /// Who runs, or the first of those that wait.
    job: JobId,
    vc: usize,
    held: u32,
    /// None for who runs.
    waiting: Option<&'a VecDeque<JobId>>,
    /// How many of them have been looked at; for who runs 1 once it is chosen.
    taken: usize,
}

/// A choice of who should run, in the making.
struct Choice<'a> {
    contenders: Vec<Contender<'a>>,
    quotas: bool,
    left: u32,
    /// What owners wait for until who is protected has run its time: it is lent to nobody meanwhile, or small borrowers that follow each other
    /// keep a wide job out for ever.
    owed: u32,
    /// What each VC may have still within its quota.
    left_of: Vec<u32>,
    starting: Vec<JobId>,
    keeps: Vec<bool>,
    is_protected: bool,
}

impl<'a> Choice<'a> {
    fn of(shares: &'a Shares, world: &World, urgent: &[JobId]) -> Self {
        let mut contenders: Vec<Contender<'a>> = Vec::with_capacity(world.running.len() + shares.waiting.len());
        for job in &world.running {
            let (vc, held) = (world.jobs[*job].vc, world.jobs[*job].held());
            let rank = shares.rank(&shares.bucket(world, *job), held);
            contenders.push(Contender { rank, job: *job, vc, held, waiting: None, taken: 0 });
        }
        for (bucket, jobs) in &shares.waiting {
            let Some(job) = jobs.front().copied() else { continue };
            let held = world.jobs[job].held();
            contenders.push(Contender { rank: shares.rank(bucket, held), job, vc: bucket.vc, held, waiting: Some(jobs), taken: 0 });
        }
        contenders.sort_unstable_by(|one, other| {
            let runs_first = one.waiting.is_some().cmp(&other.waiting.is_some());
            one.rank.total_cmp(&other.rank).then(runs_first).then(one.job.cmp(&other.job))
        });
        let mut choice = Self {
            contenders,
            quotas: shares.quotas,
            left: world.floor.gpus(),
            owed: 0,
            left_of: world.quotas.clone(),
            starting: Vec::new(),
            keeps: vec![false; world.jobs.len()],
            is_protected: false,
        };
        choice.keep_protected(world);
        for job in urgent {
            if world.jobs[*job].held() <= choice.left {
                choice.take(world.jobs[*job].vc, world.jobs[*job].held());
                choice.starting.push(*job);
            }
        }
        choice
    }

    /// Who is protected keeps what it has; it counts against its VC.
    fn keep_protected(&mut self, world: &World) {
        for at in 0..self.contenders.len() {
            let Contender { job, vc, held, waiting, .. } = self.contenders[at];
            if waiting.is_none() && world.is_protected(job) {
                self.contenders[at].taken = 1;
                self.keeps[job] = true;
                self.is_protected = true;
                self.take(vc, held);
            }
        }
    }

    fn take(&mut self, vc: usize, held: u32) {
        self.left = self.left.saturating_sub(held);
        self.left_of[vc] = self.left_of[vc].saturating_sub(held);
    }

    /// First everybody within its quota, by rank, then by rank alone.
    fn made(mut self, urgent: &[JobId]) -> (Vec<JobId>, Vec<bool>, bool) {
        if self.quotas {
            (0..self.contenders.len()).for_each(|at| self.contend(at, true, urgent));
            self.left = self.left.saturating_sub(self.owed);
        }
        for at in 0..self.contenders.len() {
            if self.left == 0 {
                break;
            }
            self.contend(at, false, urgent);
        }
        (self.starting, self.keeps, self.is_protected)
    }

    fn contend(&mut self, at: usize, within_quotas: bool, urgent: &[JobId]) {
        let Contender { job, vc, held, waiting, .. } = self.contenders[at];
        let fits = |choice: &Self| held <= choice.left && (!within_quotas || held <= choice.left_of[vc]);
        let Some(jobs) = waiting else {
            if self.contenders[at].taken == 0 && fits(self) {
                self.contenders[at].taken = 1;
                self.keeps[job] = true;
                self.take(vc, held);
            }
            return;
        };
        while fits(self)
            && let Some(job) = jobs.get(self.contenders[at].taken).copied()
        {
            self.contenders[at].taken += 1;
            if !urgent.contains(&job) {
                self.starting.push(job);
                self.take(vc, held);
            }
        }
        let is_left = self.contenders[at].taken < jobs.len();
        if within_quotas && is_left && held <= self.left_of[vc] {
            self.owed = self.owed.saturating_add(held);
            self.left_of[vc] -= held;
        }
    }
}
