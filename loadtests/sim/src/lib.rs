//! The deterministic simulation: the real cores of scheduler, executor and gpu-inventory in the servers' loop, over a log and its sister
//! streams that delay, repeat and redeliver within JetStream's promises; machines that crash, are cut off and come back; leaders that are
//! deposed between any two steps; clocks that are wrong; clients that change their minds. Everything in virtual time, in one thread, from one
//! seed: the same seed is the same run, step by step.
//!
//! The agents are a model of rules 6 to 8. What their machines really run is the ground truth, and the checkers ([`Violation::rule`]) look at
//! it and at the raw log after every step; they share no code with the cores. No server, no runtime, no clock, no file.

mod broker;
mod calm;
mod check;
mod clients;
mod clock;
mod cluster;
mod dice;
mod faults;
mod instance;
mod ledger;
mod node;
mod planted;
pub mod program;
mod script;
mod settings;
mod trace;
mod truth;
mod wire;
mod world;

pub use planted::Planted;

use std::collections::BTreeMap;
use world::World;

/// A rule that was found broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// The step after which it was found.
    pub step: u64,
    /// The true time of that step, in milliseconds since the run began.
    pub at_ms: u64,
    /// The rule's short name.
    pub rule: &'static str,
    /// What was found, in words.
    pub detail: String,
    /// The last lines of the trace that matter.
    pub lines: Vec<String>,
    /// The fault that was planted, if one was.
    pub planted: Option<Planted>,
}

impl Violation {
    /// The command that shows it again.
    pub fn replay(&self) -> String {
        let planted = self.planted.map_or(String::new(), |planted| format!(" --planted {}", planted.name()));
        format!("cargo run --release -p footplate-sim -- --seed {} --seeds 1{planted}", self.seed)
    }
}

/// What one run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How many events stand in the ledger.
    pub events: u64,
    /// How many jobs were accepted.
    pub jobs: usize,
    /// How many of them ended.
    pub ended: usize,
    /// How long it lasted, in true milliseconds of the simulation.
    pub virtual_ms: u64,
    /// How often what is rare has come about: fences, losses, void placements and the like.
    pub seen: BTreeMap<&'static str, u64>,
    /// The hash of every step and every event: equal for equal runs.
    pub hash: u64,
    /// What was found broken.
    pub violation: Option<Violation>,
}

/// How many lines of the trace a violation carries.
const LINES_TOLD: usize = 60;

/// Runs one seed, perhaps with a fault that is planted in the simulation's own layer.
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let mut world = World::new(seed, planted);
    world.run();
    let violation = world.found.take().map(|found| Violation {
        seed,
        step: world.steps,
        at_ms: world.wire.now,
        rule: found.rule,
        detail: found.detail,
        lines: world.trace.last(LINES_TOLD, &found.words),
        planted,
    });
    let (jobs, ended) = world.jobs();
    Outcome {
        seed,
        steps: world.steps,
        events: world.events(),
        jobs,
        ended,
        virtual_ms: world.wire.now,
        seen: world.seen(),
        hash: world.trace.hash(),
        violation,
    }
}

/// The last `most` lines of a seed's trace, whatever it came to.
pub fn story(seed: u64, planted: Option<Planted>, most: usize) -> Vec<String> {
    let mut world = World::new(seed, planted);
    world.run();
    world.trace.last(most, &[])
}

/// The first of `seeds` seeds from `first` on at which a planted fault is found, with what was found.
pub fn find(planted: Planted, first: u64, seeds: u64) -> Option<Violation> {
    (first..first.saturating_add(seeds)).find_map(|seed| run(seed, Some(planted)).violation)
}

/// What many runs came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many seeds were run.
    pub seeds: u64,
    /// How many of them found a rule broken.
    pub violations: u64,
    /// How many faults were planted.
    pub planted_faults: u64,
    /// How many of those were not found.
    pub planted_faults_missed: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Ledger events of all runs.
    pub events: u64,
    /// Accepted jobs of all runs.
    pub jobs: u64,
    /// How often what is rare has come about, in all runs.
    pub seen: BTreeMap<&'static str, u64>,
    /// Hash over the hashes of all runs.
    pub hash: u64,
}

impl Figures {
    /// As one JSON object, with the time that they took, in seconds.
    pub fn json(&self, seconds: f64) -> String {
        let Self { seeds, violations, planted_faults, planted_faults_missed, steps, events, jobs, seen, hash } = self;
        let seen: Vec<String> = seen.iter().map(|(what, count)| format!("\"{what}\":{count}")).collect();
        let seen = seen.join(",");
        format!(
            "{{\"program\":\"sim\",\"seeds\":{seeds},\"violations\":{violations},\"planted_faults\":{planted_faults},\
             \"planted_faults_missed\":{planted_faults_missed},\"steps\":{steps},\"events\":{events},\"jobs\":{jobs},\"seen\":{{{seen}}},\
             \"hash\":\"{hash:016x}\",\"seconds\":{seconds:.1}}}"
        )
    }
}

/// Runs `seeds` seeds from `first` on; each violation is told as it is found.
pub fn survey(first: u64, seeds: u64, mut found: impl FnMut(&Violation)) -> Figures {
    let mut figures = Figures::default();
    let mut hash = trace::Hash::default();
    for seed in first..first.saturating_add(seeds) {
        let outcome = run(seed, None);
        figures.seeds += 1;
        figures.steps += outcome.steps;
        figures.events += outcome.events;
        figures.jobs += outcome.jobs as u64;
        outcome.seen.iter().for_each(|(what, count)| *figures.seen.entry(what).or_default() += count);
        hash.add(&outcome.hash.to_be_bytes());
        if let Some(violation) = &outcome.violation {
            figures.violations += 1;
            found(violation);
        }
    }
    figures.hash = hash.value();
    figures
}
