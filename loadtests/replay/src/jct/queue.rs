//! Policies that never stop a job: FIFO, SJF with an oracle, and FIFO with EASY backfill.

use super::floor::JobId;
use super::history::{self, History};
use super::philly::Job;
use super::world::{Scheduler, World};
use footplate_scheduler_core::plan::{Backfill, Candidate, Occupant, Rules, Turn, plan};
use footplate_types::Millis;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Strictly as they came: nobody starts before the first has.
#[derive(Default)]
pub struct Fifo {
    waiting: VecDeque<JobId>,
}

impl Scheduler for Fifo {
    fn waits(&mut self, _world: &World, job: JobId) {
        self.waiting.push_back(job);
    }

    fn look(&mut self, world: &mut World) {
        while let Some(first) = self.waiting.front().copied() {
            let Some(nodes) = world.floor.seat(world.jobs[first].held()) else { return };
            world.start(first, nodes);
            self.waiting.pop_front();
        }
    }
}

/// The shortest first of those that fit, by an oracle that knows how long each will take.
#[derive(Default)]
pub struct ShortestFirst {
    /// By the GPUs they hold; then by how long they take.
    waiting: BTreeMap<u32, BTreeSet<(u64, JobId)>>,
}

impl Scheduler for ShortestFirst {
    fn waits(&mut self, world: &World, job: JobId) {
        let Job { takes_s, .. } = world.jobs[job];
        self.waiting.entry(world.jobs[job].held()).or_default().insert((takes_s, job));
    }

    fn look(&mut self, world: &mut World) {
        loop {
            let fits = |(held, jobs): (&u32, &BTreeSet<(u64, JobId)>)| Some((*jobs.first()?, *held, world.floor.seat(*held)?));
            let Some(((takes_s, job), held, nodes)) = self.waiting.iter().filter_map(fits).min_by_key(|(first, ..)| *first) else { return };
            world.start(job, nodes);
            self.waiting.entry(held).or_default().remove(&(takes_s, job));
        }
    }
}

/// EASY backfill in order of arrival, by the core's planner. A job is expected to take as long as half of those of its VC and width do, in whole
/// levels of the history; of a half, four fifths, and nineteen of twenty, a half gave the shortest mean wait.
pub struct Easy {
    /// With what was expected of each when it came.
    waiting: VecDeque<(JobId, Candidate)>,
    history: History,
    /// What was expected of those that run, when they started.
    estimates: BTreeMap<JobId, u64>,
    /// Whether somebody came or left since the last look.
    is_changed: bool,
}

impl Easy {
    /// How many waiting jobs one plan looks at.
    const CANDIDATES_MAX: usize = 1_000;

    /// Nothing waits, and nothing is known.
    pub fn new(vcs: usize) -> Self {
        Self { waiting: VecDeque::new(), history: History::new(vcs), estimates: BTreeMap::new(), is_changed: false }
    }
}

impl Scheduler for Easy {
    fn waits(&mut self, world: &World, job: JobId) {
        self.is_changed = true;
        let estimate = Millis::from_secs(self.history.median_s(&world.jobs[job]));
        self.waiting.push_back((job, Candidate { units: world.jobs[job].held(), estimate }));
    }

    fn next_mark(&self, _world: &World, _job: JobId, done_s: u64) -> Option<u64> {
        history::next_begin(done_s)
    }

    fn marked(&mut self, world: &World, job: JobId, done_s: u64) {
        self.history.came(&world.jobs[job], history::level_of(done_s));
    }

    fn ended(&mut self, world: &World, job: JobId) {
        self.is_changed = true;
        self.history.ended(&world.jobs[job]);
        self.estimates.remove(&job);
    }

    fn look(&mut self, world: &mut World) {
        if !std::mem::take(&mut self.is_changed) || self.waiting.is_empty() || world.floor.free_gpus() == 0 {
            return;
        }
        let candidates: Vec<Candidate> = self.waiting.iter().take(Self::CANDIDATES_MAX).map(|(_, candidate)| *candidate).collect();
        let occupant = |(job, estimate): (&JobId, &u64)| Occupant {
            units: world.jobs[*job].held(),
            started: Millis::from_secs(world.standings[*job].since_s),
            estimate: Millis::from_secs(*estimate),
        };
        let occupants: Vec<Occupant> = self.estimates.iter().map(occupant).collect();
        let (now, free) = (Millis::from_secs(world.now_s), world.floor.free_gpus());
        // Where a job did not find a seat, no wider one does.
        let mut too_wide = u32::MAX;
        let turns = plan(now, free, &occupants, &candidates, &Rules::of(Backfill::Easy), |at| {
            let (job, Candidate { units, .. }) = self.waiting[at];
            let seat = if units < too_wide { world.floor.seat(units) } else { None };
            match seat {
                Some(nodes) => world.start(job, nodes),
                None => {
                    too_wide = too_wide.min(units);
                    return false;
                }
            }
            true
        });
        let started: Vec<usize> = (0..turns.len()).filter(|at| turns[*at] == Turn::Now).collect();
        for at in started.into_iter().rev() {
            if let Some((job, candidate)) = self.waiting.remove(at) {
                self.history.came(&world.jobs[job], 0);
                self.estimates.insert(job, candidate.estimate.0 / 1_000);
            }
        }
    }
}
