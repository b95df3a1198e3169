//! `footplate-load`: load programs against real servers. Each prints its figures beside a floor or limit of the same run and the ratio, and
//! with `--json FILE` writes them as one object.
//!
//! A figure alone says little on a busy machine, so what the platform does and what the bare broker does alternate in one run and the medians
//! are compared. Every run starts servers of its own in temporary folders and leaves nothing behind; it never talks to a platform that is
//! in use.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cpu;
mod cycle;
mod figures;
mod gang;
mod growth;
mod ledger;
mod metrics;
mod platform;
mod raw;
mod sample;
mod simulation;
mod submit;

use clap::{Parser, Subcommand};
use figures::Figures;
use std::path::PathBuf;
use std::process::ExitCode;

/// As in the platform: events are many small texts: with the C library's allocator a third of an append's work was allocating.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "footplate-load", about = "Load programs with figures beside a limit of the same run", version)]
struct Args {
    #[command(subcommand)]
    program: Program,
    /// Writes the figures as one JSON object
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Program {
    /// Appending to the ledger and reading it, beside the bare broker
    Ledger(ledger::Options),
    /// From a submit to the first line of its worker, on one `footplate up`
    Submit(submit::Options),
    /// Points over gRPC until they are acknowledged and stored, on each engine, beside the bare broker
    Metrics(metrics::Options),
    /// From a gang's placement to its launch, on declared nodes with simulated agents
    Gang(gang::Options),
    /// Placing for scarce room: openb's traces beside the published table of FGD
    Pack(footplate_replay::pack::Options),
    /// Orders and backfill on the Lublin workloads, beside RLScheduler's table
    Backfill(footplate_replay::backfill::Options),
    /// Completion times on the Philly trace under policies side by side
    Jct(footplate_replay::jct::Options),
    /// What the scheduler's decisions cost with nodes by the thousand, and what durable placements and whole lives cost beside the bare broker
    Cycle(cycle::Options),
    /// The real cores under faults in virtual time, and whether planted faults are found
    Sim(simulation::Options),
    /// What a ledger of many runs costs: the broker's memory, starts from snapshots and without, reading all of it
    Growth(growth::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let json = args.json.as_deref();
    let told = match &args.program {
        Program::Ledger(options) => ledger::run(options).await.and_then(|figures| tell(&figures, json)),
        Program::Submit(options) => submit::run(options).await.and_then(|figures| tell(&figures, json)),
        Program::Metrics(options) => metrics::run(options).await.and_then(|figures| tell(&figures, json)),
        Program::Gang(options) => gang::run(options).await.and_then(|figures| tell(&figures, json)),
        Program::Pack(options) => footplate_replay::pack::run(options).and_then(|report| report.tell(json)),
        Program::Backfill(options) => footplate_replay::backfill::run(options).and_then(|report| report.tell(json)),
        Program::Jct(options) => footplate_replay::jct::run(options).and_then(|report| report.tell(json)),
        Program::Cycle(options) => cycle::run(options).await.and_then(|report| report.tell(json)),
        Program::Sim(options) => simulation::run(options, json),
        Program::Growth(options) => growth::run(options).await.and_then(|figures| tell(&figures, json)),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("footplate-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tell(figures: &Figures, json: Option<&std::path::Path>) -> anyhow::Result<()> {
    print!("{}", figures.table());
    json.map_or(Ok(()), |file| figures.write(file))
}
