//! The account of a simulation: what every job went through, what was in use when, and what each queue had of what it was entitled to.

use crate::fair::{Knot, entitled};
use crate::outcome::{Never, Outcome, Point, Spread, Stay, Use, percentile, rounded, seconds};
use crate::scenario::{Arrival, Scenario};
use footplate_events::facts::{JobSpec, Outcome as Ending};
use footplate_scheduler_core::DEFAULT_QUEUE;
use footplate_types::{GpuMilli, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// How many steps the series has.
const STEPS: usize = 120;
/// How many reasons are told for which jobs never started: the most frequent.
const REASONS_MAX: usize = 20;

/// What one job went through. Times in milliseconds of the simulation.
#[derive(Clone, Debug, Default)]
struct Track {
    came: bool,
    first_placed: Option<u64>,
    ended: Option<(u64, Ending)>,
    preemptions: u32,
    /// Why it never started.
    never: Option<String>,
}

/// What is held and waited for at a moment; of GPUs thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moment {
    gpus: u64,
    slots: u64,
    pending: u64,
    running: u64,
}

/// One resource of one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    held: u64,
    asked: u64,
    used_unit_ms: f64,
    entitled_unit_ms: f64,
}

/// GPUs, slots.
const UNITS: [&str; 2] = ["gpus", "slots"];
/// What is counted of each inside: thousandths of a GPU, whole slots.
const PARTS: [u64; 2] = [GpuMilli::WHOLE.0, 1];

pub(crate) struct Book<'a> {
    scenario: &'a Scenario,
    tracks: Vec<Track>,
    now: u64,
    moment: Moment,
    /// When which moment began.
    changes: Vec<(u64, Moment)>,
    queues: Vec<QueueName>,
    places: BTreeMap<QueueName, usize>,
    trees: [Vec<Knot>; 2],
    accounts: [Vec<Account>; 2],
    rights: [Vec<f64>; 2],
    /// Whether the rights are those of the moment.
    fresh: bool,
    preempted: Vec<usize>,
    lost_unit_ms: f64,
}

fn asked(spec: &JobSpec) -> [u64; 2] {
    [spec.all_gpu_milli(), spec.all_slots()]
}

/// The sizes that waits are told by.
fn size(spec: &JobSpec) -> (u8, &'static str) {
    let [milli, _] = asked(spec);
    if (1..PARTS[0]).contains(&milli) {
        return (0, "part of a gpu");
    }
    match milli.div_ceil(PARTS[0]) {
        0 => (6, "no gpus"),
        1 => (1, "1 gpu"),
        2..=4 => (2, "2-4 gpus"),
        5..=8 => (3, "5-8 gpus"),
        9..=64 => (4, "9-64 gpus"),
        _ => (5, "65+ gpus"),
    }
}

impl<'a> Book<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let mut queues: Vec<QueueName> = scenario.queues.iter().map(|(name, _)| name.clone()).collect();
        let known: BTreeSet<&QueueName> = queues.iter().collect();
        let others: BTreeSet<QueueName> =
            scenario.arrivals.iter().map(|arrival| arrival.spec.queue.clone()).filter(|name| !known.contains(name)).collect();
        queues.extend(others);
        let places: BTreeMap<QueueName, usize> = queues.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect();
        let tree = |unit: usize| -> Vec<Knot> {
            let knot = |name: &QueueName| {
                let settings = scenario.queues.iter().find(|(known, _)| known == name).map(|(_, settings)| settings);
                let of = |quota: footplate_events::facts::Quota| if unit == 0 { quota.gpus } else { quota.slots };
                Knot {
                    parent: settings.and_then(|settings| settings.parent.as_ref()).and_then(|parent| places.get(parent)).copied(),
                    weight: settings.map_or(1, |settings| settings.weight.max(1)),
                    guarantee: u64::from(settings.and_then(|settings| of(settings.guarantee)).unwrap_or(0)) * PARTS[unit],
                    quota: settings.and_then(|settings| of(settings.quota)).map(|quota| u64::from(quota) * PARTS[unit]),
                }
            };
            queues.iter().map(knot).collect()
        };
        let trees = [tree(0), tree(1)];
        let count = queues.len();
        Self {
            scenario,
            tracks: vec![Track::default(); scenario.arrivals.len()],
            now: 0,
            moment: Moment::default(),
            changes: Vec::new(),
            places,
            trees,
            accounts: [vec![Account::default(); count], vec![Account::default(); count]],
            rights: [vec![0.0; count], vec![0.0; count]],
            fresh: false,
            preempted: vec![0; count],
            lost_unit_ms: 0.0,
            queues,
        }
    }

    fn arrival(&self, job: usize) -> &'a Arrival {
        &self.scenario.arrivals[job]
    }

    fn place(&self, job: usize) -> usize {
        self.places.get(&self.arrival(job).spec.queue).copied().unwrap_or(0)
    }

    /// Time goes on: what is held is held until then.
    pub(crate) fn until(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        if self.changes.last().is_none_or(|(_, last)| *last != self.moment) {
            self.changes.push((self.now, self.moment));
        }
        let capacity = self.scenario.capacity();
        for unit in 0..2 {
            if !self.fresh {
                let demand: Vec<u64> = self.accounts[unit].iter().map(|account| account.held + account.asked).collect();
                self.rights[unit] = entitled(&self.trees[unit], &demand, [capacity.0, capacity.1][unit]);
            }
            let passed = (now - self.now) as f64;
            for (account, right) in self.accounts[unit].iter_mut().zip(&self.rights[unit]) {
                account.used_unit_ms += account.held as f64 * passed;
                account.entitled_unit_ms += right * passed;
            }
        }
        (self.now, self.fresh) = (now, true);
    }

    fn change(&mut self, job: usize, change: impl Fn(&mut Account, u64)) {
        let (at, asked) = (self.place(job), asked(&self.arrival(job).spec));
        for (unit, amount) in asked.into_iter().enumerate() {
            change(&mut self.accounts[unit][at], amount);
        }
        self.fresh = false;
    }

    pub(crate) fn comes(&mut self, job: usize) {
        self.tracks[job].came = true;
        self.moment.pending += 1;
        self.change(job, |account, amount| account.asked += amount);
    }

    pub(crate) fn is_refused(&mut self, job: usize, reason: String) {
        (self.tracks[job].came, self.tracks[job].never) = (true, Some(reason));
    }

    pub(crate) fn is_placed(&mut self, job: usize) {
        self.tracks[job].first_placed.get_or_insert(self.now);
        let [gpus, slots] = asked(&self.arrival(job).spec);
        self.moment = Moment {
            gpus: self.moment.gpus + gpus,
            slots: self.moment.slots + slots,
            pending: self.moment.pending.saturating_sub(1),
            running: self.moment.running + 1,
        };
        self.change(job, |account, amount| {
            account.held += amount;
            account.asked = account.asked.saturating_sub(amount);
        });
    }

    /// All that it held is free again.
    pub(crate) fn has_left(&mut self, job: usize) {
        let [gpus, slots] = asked(&self.arrival(job).spec);
        self.moment.gpus = self.moment.gpus.saturating_sub(gpus);
        self.moment.slots = self.moment.slots.saturating_sub(slots);
        self.moment.running = self.moment.running.saturating_sub(1);
        self.change(job, |account, amount| account.held = account.held.saturating_sub(amount));
    }

    pub(crate) fn waits_again(&mut self, job: usize) {
        self.moment.pending += 1;
        self.change(job, |account, amount| account.asked += amount);
    }

    pub(crate) fn is_preempted(&mut self, job: usize, lost_ms: u64) {
        self.tracks[job].preemptions += 1;
        let at = self.place(job);
        self.preempted[at] += 1;
        self.loses(job, lost_ms);
    }

    /// So much of its work has to be done again.
    pub(crate) fn loses(&mut self, job: usize, lost_ms: u64) {
        let [gpus, slots] = asked(&self.arrival(job).spec);
        let units = if gpus > 0 { gpus as f64 / PARTS[0] as f64 } else { slots as f64 };
        self.lost_unit_ms += units * lost_ms as f64;
    }

    /// It is over; `waited`: it had not been placed again.
    pub(crate) fn ends(&mut self, job: usize, outcome: Ending, waited: bool, reason: &str) {
        self.tracks[job].ended = Some((self.now, outcome));
        if waited {
            self.moment.pending = self.moment.pending.saturating_sub(1);
            self.change(job, |account, amount| account.asked = account.asked.saturating_sub(amount));
        }
        if self.tracks[job].first_placed.is_none() {
            self.tracks[job].never = Some(reason.to_owned());
        }
    }

    /// It waits at the end of all things.
    pub(crate) fn is_left(&mut self, job: usize, reason: String) {
        self.tracks[job].never = Some(reason);
    }

    fn wait(&self, job: usize) -> Option<u64> {
        Some(self.tracks[job].first_placed?.saturating_sub(self.arrival(job).at_ms))
    }

    fn completion(&self, job: usize) -> Option<u64> {
        let (at, outcome) = self.tracks[job].ended?;
        (outcome == Ending::Succeeded).then(|| at.saturating_sub(self.arrival(job).at_ms))
    }

    /// The figures.
    pub(crate) fn close(mut self, policy: String) -> Outcome {
        self.changes.push((self.now, self.moment));
        let begin = self.scenario.arrivals.first().map_or(0, |arrival| arrival.at_ms);
        let span_ms = self.now.saturating_sub(begin);
        let all = || 0..self.tracks.len();
        let ended = |outcome: Ending| self.tracks.iter().filter(|track| track.ended.is_some_and(|(_, ended)| ended == outcome)).count();
        let mut waits: Vec<u64> = all().filter_map(|job| self.wait(job)).collect();
        waits.sort_unstable();
        let capacity = self.scenario.capacity();
        let percent = |unit: usize, of: u64| {
            let used: f64 = self.accounts[unit].iter().map(|account| account.used_unit_ms).sum();
            (of > 0 && span_ms > 0).then(|| rounded(used / (of as f64 * span_ms as f64) * 100.0))
        };
        Outcome {
            jobs: self.tracks.len(),
            succeeded: ended(Ending::Succeeded),
            failed: self
                .tracks
                .iter()
                .filter(|track| track.first_placed.is_some() && track.ended.is_some_and(|end| end.1 != Ending::Succeeded))
                .count(),
            never: self.never(),
            span_s: seconds(span_ms),
            gpus_percent: percent(0, capacity.0),
            slots_percent: percent(1, capacity.1),
            preemptions: self.preempted.iter().sum(),
            preemptions_of_one_max: self.tracks.iter().map(|track| track.preemptions).max().unwrap_or(0),
            lost_unit_s: rounded(self.lost_unit_ms / 1_000.0),
            wait_percentiles_s: (0..=100).map(|at| seconds(percentile(&waits, at))).collect(),
            wait: Spread::of(waits),
            completion: Spread::of(all().filter_map(|job| self.completion(job)).collect()),
            stays: self.stays(),
            queues: self.uses(),
            series: self.series(begin, span_ms),
            policy,
        }
    }

    fn never(&self) -> Vec<Never> {
        let mut reasons: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (job, track) in self.tracks.iter().enumerate() {
            if let Some(reason) = &track.never {
                reasons.entry(reason).or_insert((0, job)).0 += 1;
            }
        }
        let told = |(reason, (jobs, example)): (&str, (usize, usize))| Never {
            reason: reason.to_owned(),
            jobs,
            example: self.arrival(example).spec.name.to_string(),
        };
        let mut never: Vec<Never> = reasons.into_iter().map(told).collect();
        never.sort_by_key(|never| std::cmp::Reverse(never.jobs));
        never.truncate(REASONS_MAX);
        never
    }

    fn stays(&self) -> Vec<Stay> {
        let mut groups: BTreeMap<(&QueueName, (u8, &'static str)), Vec<usize>> = BTreeMap::new();
        for job in 0..self.tracks.len() {
            let spec = &self.arrival(job).spec;
            groups.entry((&spec.queue, size(spec))).or_default().push(job);
        }
        let stay = |((queue, (_, size)), jobs): ((&QueueName, (u8, &str)), Vec<usize>)| Stay {
            queue: queue.to_string(),
            size: size.to_owned(),
            jobs: jobs.len(),
            wait: Spread::of(jobs.iter().filter_map(|job| self.wait(*job)).collect()),
            completion: Spread::of(jobs.iter().filter_map(|job| self.completion(*job)).collect()),
        };
        groups.into_iter().map(stay).collect()
    }

    fn uses(&self) -> Vec<Use> {
        const UNIT_HOUR_MS: f64 = 3_600_000.0;
        let mut uses = Vec::new();
        for (at, queue) in self.queues.iter().enumerate() {
            // What stands below it is told there.
            if self.trees[0].iter().any(|knot| knot.parent == Some(at)) {
                continue;
            }
            for (unit, word) in UNITS.into_iter().enumerate() {
                let account = self.accounts[unit][at];
                let nothing = account.used_unit_ms == 0.0 && account.entitled_unit_ms == 0.0;
                if nothing && (unit == 1 || queue.as_str() == DEFAULT_QUEUE) {
                    continue;
                }
                uses.push(Use {
                    queue: queue.to_string(),
                    unit: word,
                    used_h: rounded(account.used_unit_ms / PARTS[unit] as f64 / UNIT_HOUR_MS),
                    entitled_h: rounded(account.entitled_unit_ms / PARTS[unit] as f64 / UNIT_HOUR_MS),
                    percent: (account.entitled_unit_ms > 0.0).then(|| rounded(account.used_unit_ms / account.entitled_unit_ms * 100.0)),
                    preempted: self.preempted[at],
                });
            }
        }
        uses
    }

    /// Means over equal steps.
    fn series(&self, begin: u64, span_ms: u64) -> Vec<Point> {
        let step = (span_ms.div_ceil(STEPS as u64)).max(1);
        let mut sums = vec![[0.0; 4]; usize::try_from(span_ms.div_ceil(step)).unwrap_or(STEPS).min(STEPS)];
        for pair in self.changes.windows(2) {
            let ((mut from, moment), to) = (pair[0], pair[1].0);
            from = from.max(begin);
            while from < to {
                let at = ((from - begin) / step) as usize;
                let end = to.min(begin + (at as u64 + 1) * step);
                let Some(sum) = sums.get_mut(at) else { break };
                let values = [moment.gpus, moment.slots, moment.pending, moment.running];
                for (sum, value) in sum.iter_mut().zip(values) {
                    *sum += value as f64 * (end - from) as f64;
                }
                from = end;
            }
        }
        let point = |(at, sum): (usize, [f64; 4])| {
            let from = at as u64 * step;
            let length = (span_ms - from).min(step) as f64;
            let [gpus, slots, pending, running] = sum.map(|sum| sum / length);
            let [gpus, slots, pending, running] = [gpus / PARTS[0] as f64, slots, pending, running].map(rounded);
            Point { at_s: seconds(from), gpus, slots, pending, running }
        };
        sums.into_iter().enumerate().map(point).collect()
    }
}
