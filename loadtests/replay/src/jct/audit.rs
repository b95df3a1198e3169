//! What is counted while a trace is replayed, by the same hand for every policy.

use super::philly::Job;
use super::world::Preemption;
use std::collections::BTreeMap;

/// The counts.
pub struct Audit {
    quotas: Vec<u32>,
    gpus: u32,
    /// Until when the trace submits: what is measured over time is measured up to here, not while the rest drains.
    until_s: u64,
    /// How long an owner may be kept waiting for what it is entitled to.
    grace_s: u64,
    /// Jobs of each VC that wait, by the GPUs they would hold.
    waiting: Vec<BTreeMap<u32, u32>>,
    wanted: Vec<u64>,
    /// Since when a VC is kept from what it is entitled to.
    kept_since: Vec<Option<u64>>,
    /// Times that a VC was kept from what it is entitled to for longer than the grace.
    pub quota_violations: u64,
    /// GPU-seconds held.
    held_gpu_s: u128,
    /// GPU-seconds of each VC held within its quota.
    served: Vec<u128>,
    /// GPU-seconds of each VC wanted within its quota.
    entitled: Vec<u128>,
    /// How many times a job was stopped.
    pub stops: u64,
    /// GPU-seconds that were lost by it.
    pub lost_gpu_s: u128,
}

impl Audit {
    /// Nothing counted yet.
    pub fn new(jobs: &[Job], quotas: &[u32], gpus: u32, preemption: Preemption) -> Self {
        Self {
            quotas: quotas.to_vec(),
            gpus,
            until_s: jobs.last().map_or(0, |job| job.submitted_s),
            grace_s: Self::grace_s(preemption),
            waiting: vec![BTreeMap::new(); quotas.len()],
            wanted: vec![0; quotas.len()],
            kept_since: vec![None; quotas.len()],
            quota_violations: 0,
            held_gpu_s: 0,
            served: vec![0; quotas.len()],
            entitled: vec![0; quotas.len()],
            stops: 0,
            lost_gpu_s: 0,
        }
    }

    /// How long an owner may be kept waiting: until the last undisturbed run of somebody is over, and a turn of somebody who has waited its
    /// patience, and five minutes.
    pub fn grace_s(preemption: Preemption) -> u64 {
        2 * preemption.minimum_run_s + 300
    }

    /// A job waits.
    pub fn waits(&mut self, job: Job) {
        *self.waiting[job.vc].entry(job.held()).or_default() += 1;
        self.wanted[job.vc] += u64::from(job.held());
    }

    /// A job that waited starts, and loses so many seconds before it goes on.
    pub fn starts(&mut self, job: Job, lost_s: u64) {
        self.lost_gpu_s += u128::from(lost_s) * u128::from(job.held());
        if let Some(count) = self.waiting[job.vc].get_mut(&job.held()) {
            *count -= 1;
            if *count == 0 {
                self.waiting[job.vc].remove(&job.held());
            }
        }
        self.wanted[job.vc] -= u64::from(job.held());
        self.kept_since[job.vc] = None;
    }

    /// A job was stopped, and waits again.
    pub fn stops(&mut self, job: Job) {
        self.stops += 1;
        self.waits(job);
    }

    /// The part of all GPUs that was held while the trace submitted.
    pub fn utilisation(&self) -> f64 {
        self.held_gpu_s as f64 / (f64::from(self.gpus) * self.until_s.max(1) as f64)
    }

    /// Jain's index of what each VC was given of what it was entitled to and wanted: 1 where all were given the same part (Jain, Chiu and
    /// Hawe, DEC-TR-301, 1984).
    pub fn fairness(&self) -> f64 {
        let owed = self.served.iter().zip(&self.entitled).filter(|(_, entitled)| **entitled > 0);
        let parts: Vec<f64> = owed.map(|(served, entitled)| *served as f64 / *entitled as f64).collect();
        let (sum, squares) = parts.iter().fold((0.0, 0.0), |(sum, squares), part| (sum + part, squares + part * part));
        if squares > 0.0 { sum * sum / (parts.len() as f64 * squares) } else { 1.0 }
    }

    /// Nothing changes between two times.
    pub fn advance(&mut self, from_s: u64, to_s: u64, held: &[u32]) {
        self.look_for_violations(from_s, to_s, held);
        let span = u128::from(to_s.min(self.until_s).saturating_sub(from_s));
        if span == 0 {
            return;
        }
        for (vc, held) in held.iter().enumerate() {
            let quota = u64::from(self.quotas[vc]);
            self.held_gpu_s += span * u128::from(*held);
            self.served[vc] += span * u128::from(u64::from(*held).min(quota));
            self.entitled[vc] += span * u128::from((u64::from(*held) + self.wanted[vc]).min(quota));
        }
    }

    /// A VC is kept from its quota while a job of it waits that would stay within the quota, none of it starts, and others hold more than
    /// theirs, enough that the job could run on it and on what is free.
    fn look_for_violations(&mut self, from_s: u64, to_s: u64, held: &[u32]) {
        let lent: u32 = held.iter().zip(&self.quotas).map(|(held, quota)| held.saturating_sub(*quota)).sum();
        let free = self.gpus - held.iter().sum::<u32>();
        for (vc, held) in held.iter().enumerate() {
            let least = self.waiting[vc].keys().next();
            let kept = least.is_some_and(|least| held + least <= self.quotas[vc] && *least <= lent + free);
            if !kept {
                self.kept_since[vc] = None;
                continue;
            }
            let since = *self.kept_since[vc].get_or_insert(from_s);
            let over = since + self.grace_s;
            if from_s <= over && over < to_s {
                self.quota_violations += 1;
            }
        }
    }
}
