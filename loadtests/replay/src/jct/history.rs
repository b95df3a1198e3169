//! What is known of how long jobs take: how long others of the same VC and width took that came before.
//!
//! Lengths are counted in levels, each twice as long as the one before. A class that has seen little borrows from its width, and that from all.

use super::philly::Job;

/// How many levels there are; the last begins after two months.
pub const LEVELS: usize = 18;

/// Where the first level ends, in seconds.
const FIRST_S: u64 = 60;

/// How many widths are told apart: 1, 2, 4, 8 GPUs and more than a node.
pub const WIDTHS: usize = 5;

/// As how many jobs of its own what is known of a wider group counts for a class.
const BORROWED: f64 = 10.0;

/// Where a level begins, in seconds of a job's work.
pub fn begin_of(level: usize) -> u64 {
    if level == 0 { 0 } else { FIRST_S << (level - 1) }
}

/// The level in which so many seconds lie.
pub fn level_of(seconds: u64) -> usize {
    let doublings = (seconds / FIRST_S).checked_ilog2().map_or(0, |whole| whole as usize + 1);
    doublings.min(LEVELS - 1)
}

/// Where the next level begins for a job that has so much done; none in the last.
pub fn next_begin(done_s: u64) -> Option<u64> {
    Some(level_of(done_s) + 1).filter(|next| *next < LEVELS).map(begin_of)
}

/// The width of a job of so many GPUs.
pub fn width_of(gpus: u32) -> usize {
    (gpus.next_power_of_two().ilog2() as usize).min(WIDTHS - 1)
}

/// How many jobs came into each level, and how many ended in it.
#[derive(Clone, Copy, Debug, Default)]
struct Levels {
    came: [f64; LEVELS],
    ended: [f64; LEVELS],
}

impl Levels {
    /// The part of those that come into a level which ends in it, where few have come as a wider group has it.
    fn hazard(&self, level: usize, wider: f64) -> f64 {
        (self.ended[level] + BORROWED * wider) / (self.came[level] + BORROWED)
    }
}

/// What has been seen so far.
#[derive(Clone, Debug)]
pub struct History {
    classes: Vec<[Levels; WIDTHS]>,
    widths: [Levels; WIDTHS],
    all: Levels,
    /// How much a class has seen since its costs were worked out.
    fresh: Vec<[u32; WIDTHS]>,
    costs: Vec<[[f64; LEVELS]; WIDTHS]>,
}

impl History {
    /// Nothing has been seen yet.
    pub fn new(vcs: usize) -> Self {
        let mut history = Self {
            classes: vec![[Levels::default(); WIDTHS]; vcs],
            widths: [Levels::default(); WIDTHS],
            all: Levels::default(),
            fresh: vec![[0; WIDTHS]; vcs],
            costs: vec![[[0.0; LEVELS]; WIDTHS]; vcs],
        };
        (0..vcs).for_each(|vc| (0..WIDTHS).for_each(|width| history.work_out(vc, width)));
        history
    }

    /// A job has come into a level. That those are counted which have not ended, and may never, keeps the long ones from being forgotten
    /// (Kaplan and Meier, JASA 53, 1958).
    pub fn came(&mut self, job: &Job, level: usize) {
        let width = width_of(job.gpus);
        for levels in [&mut self.classes[job.vc][width], &mut self.widths[width], &mut self.all] {
            levels.came[level] += 1.0;
        }
        self.seen(job.vc, width);
    }

    /// A job has ended.
    pub fn ended(&mut self, job: &Job) {
        let (width, level) = (width_of(job.gpus), level_of(job.takes_s));
        for levels in [&mut self.classes[job.vc][width], &mut self.widths[width], &mut self.all] {
            levels.ended[level] += 1.0;
        }
        self.seen(job.vc, width);
    }

    fn seen(&mut self, vc: usize, width: usize) {
        self.fresh[vc][width] += 1;
        let so_far = self.classes[vc][width].came[0];
        if f64::from(self.fresh[vc][width]) >= (so_far / 20.0).clamp(1.0, 50.0) {
            self.fresh[vc][width] = 0;
            self.work_out(vc, width);
        }
    }

    /// The part of a class that ends in a level, of those that come into it. Where nothing at all is known, half of them: who has come so far
    /// goes on for as long again, as lengths in general are spread.
    fn hazard(&self, vc: usize, width: usize, level: usize) -> f64 {
        let of_all = self.all.hazard(level, 0.5);
        self.classes[vc][width].hazard(level, self.widths[width].hazard(level, of_all))
    }

    /// How many seconds of running an end costs, at best, for a job of a class that has come into a level: less is better. Gittins' index,
    /// upside down ("Bandit processes and dynamic allocation indices", JRSS B 41(2), 1979), as Tiresias uses it (Gu and others, NSDI 2019),
    /// but by VC and width.
    pub fn cost_of_an_end(&self, vc: usize, width: usize, level: usize) -> f64 {
        self.costs[vc][width][level]
    }

    fn work_out(&mut self, vc: usize, width: usize) {
        let hazards: [f64; LEVELS] = std::array::from_fn(|level| self.hazard(vc, width, level));
        for level in 0..LEVELS {
            let (mut left, mut spent, mut ended, mut best) = (1.0, 0.0, 0.0, f64::INFINITY);
            for (ahead, hazard) in hazards.iter().enumerate().skip(level) {
                let through = (begin_of(ahead + 1) - begin_of(ahead)) as f64;
                let ends = left * hazard;
                // Who ends in a level ends halfway.
                spent += left * through - ends * through / 2.0;
                ended += ends;
                left -= ends;
                best = f64::min(best, spent / ended);
            }
            self.costs[vc][width][level] = best;
        }
    }

    /// Within what time half of its class ends, for a job that has just come, in seconds.
    pub fn median_s(&self, job: &Job) -> u64 {
        let mut left = 1.0;
        for level in 0..LEVELS {
            left *= 1.0 - self.hazard(job.vc, width_of(job.gpus), level);
            if left <= 0.5 {
                return begin_of(level + 1);
            }
        }
        begin_of(LEVELS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(takes_s: u64) -> Job {
        Job { submitted_s: 0, takes_s, gpus: 1, vc: 0 }
    }

    #[test]
    fn a_level_begins_where_the_one_before_ends() {
        assert_eq!([0, 59, 60, 119, 120, 239, 240].map(level_of), [0, 0, 1, 1, 2, 2, 3]);
        for level in 0..LEVELS {
            assert_eq!(level_of(begin_of(level)), level);
        }
        assert_eq!(level_of(u64::MAX), LEVELS - 1);
        assert_eq!([next_begin(0), next_begin(60), next_begin(u64::MAX)], [Some(60), Some(120), None]);
        assert_eq!([1, 2, 3, 4, 8, 12, 128].map(width_of), [0, 1, 2, 2, 3, 4, 4]);
    }

    #[test]
    fn an_end_costs_little_where_many_end_and_much_where_few_do() {
        let mut history = History::new(2);
        // Nine of ten end in their first minute; the tenth goes on for hours.
        for at in 0..500 {
            history.came(&job(30), 0);
            if at % 10 > 0 {
                history.ended(&job(30));
            } else {
                (1..10).for_each(|level| history.came(&job(30), level));
            }
        }
        let (young, old) = (history.cost_of_an_end(0, 0, 0), history.cost_of_an_end(0, 0, 1));
        assert!(young < 60.0 && old > 10.0 * young, "{young} {old}");
        assert_eq!(history.median_s(&job(1)), 60);
        // A class that has seen nothing borrows from its width.
        assert!(history.cost_of_an_end(1, 0, 0) < 120.0);
    }
}
