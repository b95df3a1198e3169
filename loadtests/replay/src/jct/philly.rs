//! The Philly trace: jobs of deep learning, by virtual cluster (VC), and what each VC is entitled to.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// GPUs of a node.
pub const NODE_GPUS: u32 = 8;

/// A job. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// When it was submitted.
    pub submitted_s: u64,
    /// How long it takes, given all its GPUs.
    pub takes_s: u64,
    /// The GPUs it uses.
    pub gpus: u32,
    /// Which VC it is of.
    pub vc: usize,
}

impl Job {
    /// The GPUs it holds: a job of more than a node takes whole nodes.
    pub fn held(&self) -> u32 {
        if self.gpus <= NODE_GPUS { self.gpus } else { self.gpus.div_ceil(NODE_GPUS) * NODE_GPUS }
    }

    /// GPU-seconds that it uses.
    pub fn work(&self) -> u64 {
        self.takes_s * u64::from(self.gpus)
    }
}

/// A trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The VCs' names, in order of name.
    pub vcs: Vec<String>,
    /// The jobs, by submission.
    pub jobs: Vec<Job>,
}

/// Reads `submit_s,duration_s,num_gpus,vc`, one job a line below the header.
pub fn parse(text: &str) -> Result<Trace> {
    let mut rows = Vec::new();
    for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        rows.push(row(line).with_context(|| format!("line {line:?}"))?);
    }
    let names: BTreeMap<&str, usize> = rows.iter().map(|row| (row.3, 0)).collect();
    let names: BTreeMap<&str, usize> = names.into_keys().enumerate().map(|(at, name)| (name, at)).collect();
    let mut jobs: Vec<Job> = rows
        .iter()
        .map(|(submitted_s, takes_s, gpus, vc)| Job { submitted_s: *submitted_s, takes_s: *takes_s, gpus: *gpus, vc: names[vc] })
        .collect();
    jobs.sort_by_key(|job| job.submitted_s);
    ensure!(!jobs.is_empty(), "there is no job in it");
    Ok(Trace { vcs: names.into_keys().map(str::to_owned).collect(), jobs })
}

fn row(line: &str) -> Result<(u64, u64, u32, &str)> {
    let columns: Vec<&str> = line.trim().split(',').collect();
    let [submitted, takes, gpus, vc] = columns.as_slice() else { anyhow::bail!("{} columns and not 4", columns.len()) };
    let (takes, gpus) = (takes.parse().context("duration")?, gpus.parse().context("GPUs")?);
    ensure!(takes > 0 && gpus > 0, "a job takes time and GPUs");
    Ok((submitted.parse().context("submission")?, takes, gpus, vc))
}

impl Trace {
    /// The trace on so many GPUs: no job asks for more.
    pub fn clipped(&self, capacity: u32) -> Vec<Job> {
        self.jobs.iter().map(|job| Job { gpus: job.gpus.min(capacity), ..*job }).collect()
    }

    /// What each VC is entitled to of so many GPUs: its share of all GPU-time, in whole GPUs by the largest remainder, at least one.
    pub fn quotas(&self, capacity: u32) -> Vec<u32> {
        let mut work = vec![0u128; self.vcs.len()];
        self.jobs.iter().for_each(|job| work[job.vc] += u128::from(job.work()));
        let all = work.iter().sum::<u128>().max(1);
        let exact: Vec<u128> = work.iter().map(|work| work * u128::from(capacity) * 1_000 / all).collect();
        let mut quotas: Vec<u32> = exact.iter().map(|milli| u32::try_from(milli / 1_000).unwrap_or(u32::MAX).max(1)).collect();
        let mut by_remainder: Vec<usize> = (0..quotas.len()).collect();
        by_remainder.sort_by_key(|vc| std::cmp::Reverse(exact[*vc] % 1_000));
        for vc in by_remainder.into_iter().cycle().take(capacity as usize) {
            if quotas.iter().sum::<u32>() >= capacity {
                break;
            }
            quotas[vc] += 1;
        }
        while quotas.iter().sum::<u32>() > capacity {
            let Some(most) = quotas.iter_mut().max().filter(|most| **most > 0) else { break };
            *most -= 1;
        }
        quotas
    }
}
