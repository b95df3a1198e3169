//! `completions`: for a shell.

use crate::{
    args::Cli,
    output::{Exit, print_bytes},
};
use clap::CommandFactory as _;

const EXAMPLES: &str = "\
Examples:
  footplate completions bash > ~/.local/share/bash-completion/completions/footplate
  footplate completions zsh > \"${fpath[1]}/_footplate\"";

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Prints them.
///
/// # Errors
/// Standard output that cannot be written.
pub fn run(args: Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "footplate", &mut script);
    print_bytes(&script)?;
    Ok(Exit::Done)
}
