//! `footplate-replay`: prints what a trace gives beside what is published of it, and with `--json FILE` writes it as one object. Fails when
//! something that must hold does not, and when the trace is not there.

use clap::{Parser, Subcommand};
use footplate_replay::{backfill, cycle, jct, pack};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "footplate-replay", about = "Published traces through the scheduler's core", version)]
struct Args {
    #[command(subcommand)]
    program: Program,
    /// Writes the figures as one JSON object
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Program {
    /// Orders and backfill on the Lublin workloads, beside RLScheduler's table
    Backfill(backfill::Options),
    /// What the scheduler's decisions cost: nodes by the thousand, all in use, and a hundred thousand jobs that wait
    Cycle(cycle::Options),
    /// Completion times on the Philly trace under policies side by side
    Jct(jct::Options),
    /// Packing on the openb traces of Alibaba, beside the published table of FGD (USENIX ATC 2023)
    Pack(pack::Options),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let report = match &args.program {
        Program::Backfill(options) => backfill::run(options),
        Program::Cycle(options) => cycle::run(options),
        Program::Jct(options) => jct::run(options),
        Program::Pack(options) => pack::run(options),
    };
    match report.and_then(|report| report.tell(args.json.as_deref())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("footplate-replay: {error:#}");
            ExitCode::FAILURE
        }
    }
}
