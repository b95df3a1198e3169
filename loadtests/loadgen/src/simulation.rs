//! `footplate-load sim`: see `loadtests/sim`.

use anyhow::{Result, bail};
use clap::Args;
use footplate_sim::Planted;
use footplate_sim::program::{Asked, run as survey};
use std::path::Path;

/// What `sim` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds [default: 2000]
    #[arg(long)]
    seeds: Option<u64>,
    /// Faults to plant and to find after that, `all` for every one, `none` for none
    #[arg(long, value_delimiter = ',', value_name = "FAULT,...", default_value = "all")]
    planted: Vec<String>,
}

/// Runs the seeds, then finds the faults.
pub(crate) fn run(options: &Options, json: Option<&Path>) -> Result<()> {
    let mut planted = Vec::new();
    for name in &options.planted {
        match (name.as_str(), Planted::parse(name)) {
            ("all", _) => planted.extend(Planted::ALL),
            ("none", _) => {}
            (_, Some(fault)) => planted.push(fault),
            _ => bail!("--planted {name}: one of {}, all, or none", Planted::ALL.map(Planted::name).join(", ")),
        }
    }
    let asked =
        Asked { seed: options.seed, seeds: options.seeds, planted, json: json.map(Path::to_path_buf), both: true, ..Asked::default() };
    if survey(&asked)? { Ok(()) } else { bail!("a rule was found broken, or a planted fault was not found; see above") }
}
