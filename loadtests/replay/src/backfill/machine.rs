//! One machine in virtual time: jobs come, start as the plan says, and leave.

use super::swf::Job;
use footplate_scheduler_core::plan::{Candidate, Occupant, Rules, Turn, plan};
use footplate_types::Millis;
use std::collections::BTreeMap;

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The job.
    pub job: Job,
    /// When it started, in seconds.
    pub started_s: u64,
}

impl Past {
    /// How long it waited, in seconds.
    pub fn waited_s(&self) -> u64 {
        self.started_s.saturating_sub(self.job.submitted_s)
    }

    /// Its bounded slowdown: how much longer it was there than it ran, where no job counts as shorter than ten seconds, and none as
    /// quicker than it was (Feitelson and others, JSSPP 1997).
    pub fn bounded_slowdown(&self) -> f64 {
        let there = (self.waited_s() + self.job.runs_s) as f64;
        (there / self.job.runs_s.max(10) as f64).max(1.0)
    }
}

/// What waits at a look of the policy, oldest submission first.
pub struct Queue<'a> {
    /// The time, in seconds.
    pub now_s: u64,
    /// Units that are free.
    pub free: u32,
    /// The jobs.
    pub waiting: &'a [Job],
}

/// Who says in which order jobs should start.
pub trait Policy {
    /// The order of the queue: positions in it, each once.
    fn order(&mut self, queue: &Queue<'_>) -> Vec<usize>;

    /// Who may overtake whom.
    fn rules(&self) -> Rules;
}

/// Replays jobs (by submission) on a machine of so many units under a policy; what became of them, in the order in which they started. One
/// event at a time: an arrival before an end of the same second, ends of the same second in the order of the starts, and a look after each,
/// as the authors of the published table have it. (With ends in order of width one of their twelve figures is another: 235.76 for 235.82.)
pub fn replay(jobs: &[Job], units: u32, policy: &mut dyn Policy) -> Vec<Past> {
    let mut machine = Machine { free: units, waiting: Vec::new(), running: BTreeMap::new(), past: Vec::with_capacity(jobs.len()) };
    let mut arrivals = jobs.iter().peekable();
    loop {
        let arrival = arrivals.peek().map(|job| job.submitted_s);
        let end = machine.running.keys().next().map(|(at, _)| *at);
        let now_s = match (arrival, end) {
            (Some(arrival), end) if end.is_none_or(|end| arrival <= end) => {
                machine.waiting.extend(arrivals.next());
                arrival
            }
            (_, Some(end)) => {
                machine.end_first();
                end
            }
            _ => return machine.past,
        };
        machine.look(now_s, policy);
    }
}

struct Machine {
    free: u32,
    /// By submission.
    waiting: Vec<Job>,
    /// By (end in seconds, how many had started before).
    running: BTreeMap<(u64, usize), Occupant>,
    past: Vec<Past>,
}

impl Machine {
    fn end_first(&mut self) {
        if let Some((_, occupant)) = self.running.pop_first() {
            self.free += occupant.units;
        }
    }

    fn look(&mut self, now_s: u64, policy: &mut dyn Policy) {
        if self.waiting.is_empty() {
            return;
        }
        let order = policy.order(&Queue { now_s, free: self.free, waiting: &self.waiting });
        let candidate = |at: &usize| Candidate { units: self.waiting[*at].units, estimate: Millis::from_secs(self.waiting[*at].asked_s) };
        let candidates: Vec<Candidate> = order.iter().map(candidate).collect();
        let occupants: Vec<Occupant> = self.running.values().copied().collect();
        let turns = plan(Millis::from_secs(now_s), self.free, &occupants, &candidates, &policy.rules(), |_| true);
        let mut starting: Vec<usize> = order.iter().zip(&turns).filter(|(_, turn)| **turn == Turn::Now).map(|(at, _)| *at).collect();
        for at in &starting {
            self.start(self.waiting[*at], now_s);
        }
        starting.sort_unstable();
        for at in starting.into_iter().rev() {
            self.waiting.remove(at);
        }
    }

    fn start(&mut self, job: Job, now_s: u64) {
        let (started, estimate) = (Millis::from_secs(now_s), Millis::from_secs(job.asked_s));
        self.free -= job.units;
        self.running.insert((now_s + job.runs_s, self.past.len()), Occupant { units: job.units, started, estimate });
        self.past.push(Past { job, started_s: now_s });
    }
}
