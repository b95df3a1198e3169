//! Orders of the queue: those of the published table, as their authors apply them, and the core's.

use super::machine::{Policy, Queue};
use super::swf::Job;
use footplate_scheduler_core::plan::{Applicant, Backfill, Order, Rules};
use footplate_types::Millis;

/// The order of a published policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// First come, first served.
    Fcfs,
    /// The shortest asked time first.
    Sjf,
    /// F1 of Carastan-Santos and de Camargo, "Obtaining dynamic scheduling policies with simulation and machine learning" (SC 2017).
    F1,
}

impl Named {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Sjf, Self::F1];

    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Sjf => "sjf",
            Self::F1 => "f1",
        }
    }

    fn score(self, job: &Job) -> f64 {
        let log10 = |seconds: u64| if seconds > 0 { seconds as f64 } else { 0.1 }.log10();
        match self {
            Self::Fcfs => job.submitted_s as f64,
            Self::Sjf => job.asked_s as f64,
            Self::F1 => log10(job.asked_s) * f64::from(job.units) + 870.0 * log10(job.submitted_s),
        }
    }
}

/// A published policy as its authors run it: the first in the order that does not fit stays the first until it has started, whoever comes;
/// the others may overtake it in order of submission, whatever the policy's own order.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    order: Named,
    backfill: Backfill,
    first: Option<u32>,
}

impl Published {
    /// This order with this way to overtake.
    pub fn new(order: Named, backfill: Backfill) -> Self {
        Self { order, backfill, first: None }
    }

    fn next(&self, queue: &Queue<'_>, left: &[usize]) -> usize {
        let first = self.first.and_then(|number| left.iter().position(|at| queue.waiting[*at].number == number));
        let score = |at: &usize| self.order.score(&queue.waiting[left[*at]]);
        let least = || (0..left.len()).min_by(|one, other| score(one).total_cmp(&score(other)));
        first.or_else(least).unwrap_or(0)
    }
}

impl Policy for Published {
    fn order(&mut self, queue: &Queue<'_>) -> Vec<usize> {
        let mut left: Vec<usize> = (0..queue.waiting.len()).collect();
        let mut order = Vec::with_capacity(left.len());
        let mut free = queue.free;
        while !left.is_empty() {
            let at = left.remove(self.next(queue, &left));
            order.push(at);
            let job = &queue.waiting[at];
            if job.units > free {
                self.first = Some(job.number);
                break;
            }
            free -= job.units;
            self.first = None;
        }
        order.extend(left);
        order
    }

    fn rules(&self) -> Rules {
        Rules::of(self.backfill)
    }
}

/// An order of the core with its rules: every look orders anew, and who may overtake is looked for in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub struct InOrder {
    /// The order.
    pub order: Order,
    /// The rules of its plans.
    pub rules: Rules,
}

impl Policy for InOrder {
    fn order(&mut self, queue: &Queue<'_>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..queue.waiting.len()).collect();
        order.sort_by_cached_key(|at| {
            let job = &queue.waiting[*at];
            let (submitted, estimate) = (Millis::from_secs(job.submitted_s), Millis::from_secs(job.asked_s));
            self.order.rank(&Applicant { submitted, units: job.units, estimate })
        });
        order
    }

    fn rules(&self) -> Rules {
        self.rules
    }
}
