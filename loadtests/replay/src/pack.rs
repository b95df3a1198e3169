//! Packing on the openb traces (Alibaba's cluster-trace-gpu-v2023), by the procedure of FGD's paper (Weng et al., USENIX ATC 2023): a trace
//! inflated to 130 % of the cluster's GPUs, ten seeds, no departures; the share of GPUs that is allocated in the end, beside the published.
//!
//! The core's prices are learned for a variant from the frequencies of its classes, as the paper's targets are, by rehearsals with seeds of
//! their own; what is replayed afterwards is what they never saw. The paper's Random, BestFit and FGD are replayed too, so that one sees
//! whether the procedure is the paper's.

pub mod arrivals;
pub mod dice;
pub mod fragmentation;
pub mod openb;
pub mod policies;
pub mod published;
pub mod replay;
mod table;

use crate::report::Report;
use crate::trace::Data;
use anyhow::{Context, Result, ensure};
use clap::Args;
use footplate_scheduler_core::pack::{Packing, Prices, classes};
use fragmentation::Targets;
use openb::{Cluster, Pod};
use policies::{BestFit, Fgd, Random, Ranked};
use replay::{Past, replay};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The first seed of rehearsals: far from every seed of a replay.
const REHEARSALS_FROM: u64 = 1_000_000;

/// Every variant of the trace: first those of the published table.
pub const VARIANTS: [&str; 24] = [
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
    "cpu0",
    "cpu037",
    "cpu072",
    "cpu235",
    "cpu300",
    "gpushare20",
    "gpuspec05",
];

/// What `pack` takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the traces are.
    #[command(flatten)]
    pub data: Data,
    /// Variants of the trace; without it all that are there
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub variants: Vec<String>,
    /// The first and the last seed
    #[arg(long, default_value = "42-51", value_name = "A-B")]
    pub seeds: String,
    /// The policies of the paper that are replayed beside ours: random, bestfit, fgd; empty for none
    #[arg(long, value_delimiter = ',', default_value = "random,bestfit,fgd", value_name = "NAMES")]
    pub beside: Vec<String>,
    /// Rehearsals from which prices are learned; with 0 the classes alone are known
    #[arg(long, default_value_t = 52, value_name = "COUNT")]
    pub rehearsals: u64,
    /// How many percent of the cluster's GPUs a rehearsal asks for
    #[arg(long, default_value_t = replay::ARRIVED_PERCENT, value_name = "PERCENT")]
    pub rehearse_to: u64,
    /// Writes our placements, for `check_pack.py`
    #[arg(long, value_name = "FILE")]
    pub placements: Option<PathBuf>,
}

/// What our policy gave on a variant.
struct Ours {
    runs: Vec<Past>,
    learned_in: Duration,
}

/// Replays the variants, and compares.
pub fn run(options: &Options) -> Result<Report> {
    let seeds = seeds(&options.seeds)?;
    let cluster = Cluster::read(&options.data)?;
    let published = published::Table::parse(&options.data.text("openb/published_allocation.csv")?)?;
    let mut report = Report::of("pack");
    let mut table = table::Table::new(&mut report, &published);
    let mut placements = String::from("variant,seed,arrival,pod,node,gpus\n");
    let asked = !options.variants.is_empty();
    let variants = if asked { options.variants.clone() } else { VARIANTS.map(str::to_owned).to_vec() };
    for variant in variants {
        let pods = match openb::pods(&options.data, &cluster, &variant) {
            Err(_) if !asked && !options.data.has(&format!("openb/openb_pod_list_{variant}.csv")) => {
                table.absent(&variant);
                continue;
            }
            pods => pods?,
        };
        let targets = Targets::of(pods.iter().map(|pod| &pod.demand));
        let ours = ours(options, &cluster, &pods, &targets, &seeds);
        for (seed, past) in seeds.iter().zip(&ours.runs) {
            write_placements(&mut placements, &variant, *seed, &cluster, &pods, past)?;
        }
        let mut beside = Vec::new();
        for policy in options.beside.iter().filter(|policy| !policy.is_empty()) {
            let pasts = seeds.iter().map(|seed| theirs(policy, &cluster, &pods, &targets, *seed)).collect::<Result<Vec<_>>>()?;
            beside.push((policy.as_str(), pasts));
        }
        table.variant(&variant, &ours.runs, ours.learned_in, &beside);
    }
    table.end();
    if let Some(file) = &options.placements {
        std::fs::write(file, placements).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(report)
}

/// Learns, and replays what was not learned from.
fn ours(options: &Options, cluster: &Cluster, pods: &[Pod], targets: &Targets, seeds: &[u64]) -> Ours {
    let began = Instant::now();
    let classes = classes(pods.iter().map(|pod| pod.demand));
    let rehearsal = |seed| arrivals::drawn(&classes, cluster.gpu_milli(), options.rehearse_to, REHEARSALS_FROM + seed);
    let rehearsals: Vec<_> = (0..options.rehearsals).map(rehearsal).collect();
    let prices = Prices::learned(&classes, &cluster.hosts, &rehearsals);
    let learned_in = began.elapsed();
    let one = |seed: &u64| replay(cluster, pods, targets, *seed, |hosts| Packing::new(hosts, prices.clone()));
    Ours { runs: seeds.iter().map(one).collect(), learned_in }
}

fn theirs(policy: &str, cluster: &Cluster, pods: &[Pod], targets: &Targets, seed: u64) -> Result<Past> {
    Ok(match policy {
        "random" => replay(cluster, pods, targets, seed, |hosts| Random::new(hosts, seed)),
        "bestfit" => replay(cluster, pods, targets, seed, |hosts| Ranked::new(hosts, BestFit)),
        "fgd" => replay(cluster, pods, targets, seed, |hosts| Ranked::new(hosts, Fgd(targets.clone()))),
        other => anyhow::bail!("there is no policy {other}: random, bestfit, fgd"),
    })
}

fn seeds(text: &str) -> Result<Vec<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text:?} is not a seed"));
    let (first, last) = (number(first)?, number(last)?);
    ensure!(first <= last && last - first < 1_000, "seeds are A-B, at most 1,000 of them");
    Ok((first..=last).collect())
}

fn write_placements(text: &mut String, variant: &str, seed: u64, cluster: &Cluster, pods: &[Pod], past: &Past) -> Result<()> {
    for (arrival, (pod, spot)) in past.placements.iter().enumerate() {
        let node = spot.map_or("", |spot| &cluster.names[spot.host]);
        let gpus: Vec<String> = spot.iter().flat_map(|spot| spot.gpus.positions()).map(|at| at.to_string()).collect();
        writeln!(text, "{variant},{seed},{arrival},{},{node},{}", pods[*pod].name, gpus.join("|"))?;
    }
    Ok(())
}
