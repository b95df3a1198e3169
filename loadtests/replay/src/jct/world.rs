//! Virtual time: jobs come, run, are stopped, go on, and end; what schedulers may see and do.

use super::audit::Audit;
use super::floor::{Floor, JobId};
use super::philly::Job;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What it costs to preempt, and what protects from it. The same for every policy that preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// What a job loses each time it goes on after it was stopped: to write its checkpoint, to be set up and to read it.
    pub cost_s: u64,
    /// How long a job runs undisturbed once it has started or gone on.
    pub minimum_run_s: u64,
}

impl Default for Preemption {
    fn default() -> Self {
        Self { cost_s: 60, minimum_run_s: 600 }
    }
}

/// How a job stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Seconds of its work that are done, as of when it last was stopped.
    pub done_s: u64,
    /// When it began to wait, or to run.
    pub since_s: u64,
    /// How often it was stopped.
    pub stops: u32,
    /// The nodes it holds; none when it waits.
    pub nodes: Vec<usize>,
    /// When it ended.
    pub ended_s: Option<u64>,
    /// The longest it waited in one stretch.
    pub longest_wait_s: u64,
    /// Which of its starts this is; what is known of an earlier one is out of date.
    epoch: u32,
    /// What this start loses before it goes on.
    lost_s: u64,
}

/// Who decides.
pub trait Scheduler {
    /// A job came, or was stopped.
    fn waits(&mut self, world: &World, job: JobId);

    /// A job ended.
    fn ended(&mut self, _world: &World, _job: JobId) {}

    /// When to tell that so many seconds of a job are done: the next such number above what is done.
    fn next_mark(&self, _world: &World, _job: JobId, _done_s: u64) -> Option<u64> {
        None
    }

    /// A running job has so many seconds done.
    fn marked(&mut self, _world: &World, _job: JobId, _done_s: u64) {}

    /// Starts and stops jobs.
    fn look(&mut self, world: &mut World);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ends(JobId, u32),
    Marks(JobId, u32, u64),
    Comes(JobId),
    Wakes,
}

/// The world at a moment.
pub struct World {
    /// The time.
    pub now_s: u64,
    /// The jobs of the trace.
    pub jobs: Vec<Job>,
    /// How each stands.
    pub standings: Vec<Standing>,
    /// The nodes.
    pub floor: Floor,
    /// Who runs, in no order.
    pub running: Vec<JobId>,
    /// GPUs that each VC is entitled to.
    pub quotas: Vec<u32>,
    /// GPUs that each VC holds.
    pub held: Vec<u32>,
    /// What preempting costs.
    pub preemption: Preemption,
    /// What is counted on the way.
    pub audit: Audit,
    /// How many events there were.
    pub events: u64,
    queue: BinaryHeap<Reverse<(u64, Event)>>,
    /// Jobs that were stopped since the scheduler was last told.
    stopped: Vec<JobId>,
    marks: Vec<JobId>,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(jobs: Vec<Job>, quotas: Vec<u32>, gpus: u32, preemption: Preemption) -> Self {
        let queue = jobs.iter().enumerate().map(|(id, job)| Reverse((job.submitted_s, Event::Comes(id)))).collect();
        Self {
            now_s: 0,
            standings: vec![Standing::default(); jobs.len()],
            floor: Floor::new(gpus),
            running: Vec::new(),
            held: vec![0; quotas.len()],
            audit: Audit::new(&jobs, &quotas, gpus, preemption),
            events: 0,
            jobs,
            quotas,
            preemption,
            queue,
            stopped: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Lets everything happen.
    pub fn play(&mut self, scheduler: &mut dyn Scheduler) {
        while let Some(Reverse((at, _))) = self.queue.peek() {
            let at = *at;
            self.audit.advance(self.now_s, at, &self.held);
            self.now_s = at;
            while let Some(Reverse((_, event))) = self.queue.peek().copied().filter(|Reverse((then, _))| *then == at) {
                self.queue.pop();
                self.events += 1;
                self.take_in(event, scheduler);
            }
            scheduler.look(self);
            self.tell(scheduler);
        }
    }

    fn take_in(&mut self, event: Event, scheduler: &mut dyn Scheduler) {
        match event {
            Event::Comes(job) => {
                self.standings[job].since_s = self.now_s;
                self.audit.waits(self.jobs[job]);
                scheduler.waits(self, job);
            }
            Event::Ends(job, epoch) if self.standings[job].epoch == epoch => {
                self.leave(job);
                self.standings[job].done_s = self.jobs[job].takes_s;
                self.standings[job].ended_s = Some(self.now_s);
                scheduler.ended(self, job);
            }
            Event::Marks(job, epoch, done_s) if self.standings[job].epoch == epoch => {
                scheduler.marked(self, job, done_s);
                self.mark(job, done_s, scheduler);
            }
            Event::Ends(..) | Event::Marks(..) | Event::Wakes => {}
        }
    }

    /// Tells the scheduler whom it stopped, and arranges the marks of whom it started.
    fn tell(&mut self, scheduler: &mut dyn Scheduler) {
        for job in std::mem::take(&mut self.stopped) {
            // Who was only moved runs again already.
            if self.standings[job].nodes.is_empty() {
                scheduler.waits(self, job);
            }
        }
        for job in std::mem::take(&mut self.marks) {
            if !self.standings[job].nodes.is_empty() {
                self.mark(job, self.standings[job].done_s, scheduler);
            }
        }
    }

    fn mark(&mut self, job: JobId, done_s: u64, scheduler: &dyn Scheduler) {
        let Some(next) = scheduler.next_mark(self, job, done_s).filter(|next| *next < self.jobs[job].takes_s) else { return };
        let standing = &self.standings[job];
        let at = standing.since_s + standing.lost_s + next - standing.done_s;
        self.queue.push(Reverse((at, Event::Marks(job, standing.epoch, next))));
    }

    /// For how many seconds a running job runs undisturbed still.
    pub fn protected_for_s(&self, job: JobId) -> u64 {
        (self.standings[job].since_s + self.preemption.minimum_run_s).saturating_sub(self.now_s)
    }

    /// Whether a running job runs undisturbed still.
    pub fn is_protected(&self, job: JobId) -> bool {
        self.protected_for_s(job) > 0
    }

    /// Asks for a look at a time, should nothing happen until then.
    pub fn wake_at(&mut self, at_s: u64) {
        self.queue.push(Reverse((at_s.max(self.now_s + 1), Event::Wakes)));
    }

    /// Starts a waiting job on nodes that have room for it.
    pub fn start(&mut self, job: JobId, nodes: Vec<usize>) {
        let Job { takes_s, vc, .. } = self.jobs[job];
        self.floor.take(job, self.jobs[job].held(), &nodes);
        self.held[vc] += self.jobs[job].held();
        self.running.push(job);
        let standing = &mut self.standings[job];
        standing.longest_wait_s = standing.longest_wait_s.max(self.now_s - standing.since_s);
        standing.lost_s = if standing.stops > 0 { self.preemption.cost_s } else { 0 };
        standing.epoch += 1;
        standing.since_s = self.now_s;
        standing.nodes = nodes;
        let ends = self.now_s + standing.lost_s + takes_s - standing.done_s;
        self.queue.push(Reverse((ends, Event::Ends(job, standing.epoch))));
        self.marks.push(job);
        self.audit.starts(self.jobs[job], self.standings[job].lost_s);
    }

    /// Stops a running job; what it has done stays done, and it waits again.
    pub fn stop(&mut self, job: JobId) {
        self.leave(job);
        let standing = &mut self.standings[job];
        let ran = self.now_s - standing.since_s;
        standing.done_s += ran.saturating_sub(standing.lost_s);
        standing.stops += 1;
        standing.epoch += 1;
        standing.since_s = self.now_s;
        self.audit.stops(self.jobs[job]);
        self.stopped.push(job);
    }

    fn leave(&mut self, job: JobId) {
        let nodes = std::mem::take(&mut self.standings[job].nodes);
        self.floor.give(job, &nodes);
        self.held[self.jobs[job].vc] -= self.jobs[job].held();
        if let Some(at) = self.running.iter().position(|running| *running == job) {
            self.running.swap_remove(at);
        }
    }
}
