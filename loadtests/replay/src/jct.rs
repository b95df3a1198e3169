//! Completion times on the Philly trace: 82,000 jobs of deep learning, 15 virtual clusters (VCs), gangs of up to 128 GPUs, replayed on 8-GPU
//! nodes under policies side by side. No table is published of this very file, so the figures stand beside each other.
//!
//! A job of up to 8 GPUs sits on one node, a wider one on whole nodes, all of it or nothing. A VC is entitled to its share of all GPU-time. It may
//! hold more while others leave it idle, and must give it back to them: to who keeps quotas, that is. Policies that never stop a job cannot, and run
//! without; those that do run both ways. Who is stopped keeps what it has done and loses [`world::Preemption::cost_s`] as it goes on.
//!
//! What is not told to any policy but the oracle is how long a job takes. `wait` is all the time a job does not run: from its submission
//! to its end, less what it takes.

pub mod audit;
pub mod floor;
pub mod history;
pub mod philly;
pub mod queue;
mod seating;
pub mod shares;
mod table;
pub mod world;

use crate::report::Report;
use crate::trace::Data;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use philly::{NODE_GPUS, Trace};
use queue::{Easy, Fifo, ShortestFirst};
use shares::Shares;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use table::Figures;
use world::{Preemption, Scheduler, World};

/// What `jct` takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Which trace to replay
    #[arg(long, value_enum, default_value_t = Name::Philly)]
    pub trace: Name,
    /// How many GPUs there are: one replay for each
    #[arg(long, value_delimiter = ',', default_value = "256,320,384,448", value_name = "N,...")]
    pub gpus: Vec<u32>,
    /// Where the traces are.
    #[command(flatten)]
    pub data: Data,
}

/// A trace of jobs with VCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Microsoft's Philly, as the artifact of Sia (SOSP 2023) has it.
    Philly,
}

/// A policy of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Strictly as they came.
    Fifo,
    /// The shortest first, by an oracle.
    Sjf,
    /// FIFO with EASY backfill, lengths by history.
    Easy,
    /// Least attained service, with quotas or without.
    Las {
        /// Whether VCs get what they are entitled to.
        quotas: bool,
    },
    /// The least expected cost of an end, with quotas or without; nobody waits longer than its patience without a turn.
    Ours {
        /// Whether VCs get what they are entitled to.
        quotas: bool,
    },
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Fifo,
        Self::Easy,
        Self::Las { quotas: true },
        Self::Ours { quotas: true },
        Self::Las { quotas: false },
        Self::Ours { quotas: false },
        Self::Sjf,
    ];

    /// Its name in keys.
    pub fn key(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Sjf => "sjf_oracle",
            Self::Easy => "easy",
            Self::Las { quotas: true } => "las",
            Self::Las { quotas: false } => "las_without_quotas",
            Self::Ours { quotas: true } => "ours",
            Self::Ours { quotas: false } => "ours_without_quotas",
        }
    }

    fn scheduler(self, vcs: usize, jobs: usize) -> Box<dyn Scheduler> {
        match self {
            Self::Fifo => Box::new(Fifo::default()),
            Self::Sjf => Box::new(ShortestFirst::default()),
            Self::Easy => Box::new(Easy::new(vcs)),
            Self::Las { quotas } => Box::new(Shares::least_attained(&las_queues(), jobs, quotas)),
            Self::Ours { quotas } => Box::new(Shares::expected(vcs, PATIENCE_S, jobs, quotas)),
        }
    }
}

/// After how long a wait a job gets a turn under our policy, whatever its rank: a week.
pub const PATIENCE_S: u64 = 7 * 24 * 3_600;

/// A job is starved that waits longer than this in one stretch: our patience, and a day in which the turn must come.
pub const STARVED_S: u64 = PATIENCE_S + 24 * 3_600;

/// Where the queues of least attained service end, in GPU-seconds: from ten minutes on, each twice the one before. Of the authors' three queues
/// (3,250 to 18,000), others of two to eight, and these, these gave the shortest mean wait.
fn las_queues() -> Vec<u64> {
    (0..14).map(|doublings| 600 << doublings).collect()
}

/// Replays the trace under every policy on every number of GPUs.
pub fn run(options: &Options) -> Result<Report> {
    let Name::Philly = options.trace;
    let trace = philly::parse(&options.data.text("philly/philly_jobs.csv")?)?;
    for gpus in &options.gpus {
        ensure!(*gpus >= NODE_GPUS && gpus % NODE_GPUS == 0, "{gpus} GPUs are no whole nodes of {NODE_GPUS}");
    }
    let mut report = Report::of("jct");
    table::write(&mut report, &trace, &options.gpus, &replay_all(&trace, &options.gpus));
    Ok(report)
}

/// Every policy on every number of GPUs, on as many threads as there are processors. The order is that of the arguments.
fn replay_all(trace: &Trace, gpus: &[u32]) -> Vec<(u32, Policy, Figures)> {
    let runs: Vec<(u32, Policy)> = gpus.iter().flat_map(|gpus| Policy::ALL.map(|policy| (*gpus, policy))).collect();
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (tell, runs, next) = (tell.clone(), &runs, &next);
            scope.spawn(move || {
                while let Some((gpus, policy)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Nobody is left to tell only if the program ends.
                    let _ = tell.send((*gpus, *policy, replay(trace, *gpus, *policy)));
                }
            });
        }
    });
    drop(tell);
    let mut figures: Vec<(u32, Policy, Figures)> = told.into_iter().collect();
    figures.sort_by_key(|(gpus, policy, _)| runs.iter().position(|run| run == &(*gpus, *policy)));
    figures
}

/// The trace under a policy on so many GPUs.
pub fn replay(trace: &Trace, gpus: u32, policy: Policy) -> Figures {
    let began = std::time::Instant::now();
    let jobs = trace.clipped(gpus);
    let mut scheduler = policy.scheduler(trace.vcs.len(), jobs.len());
    let mut world = World::new(jobs, trace.quotas(gpus), gpus, Preemption::default());
    world.play(&mut *scheduler);
    Figures::of(&world, began.elapsed())
}
