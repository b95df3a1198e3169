//! The shim as a program of its own, for this crate's tests; in a deployment it is the hidden subcommand `footplate shim <dir>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(dir) => footplate_executor_agent::shim::shim_main(dir.as_ref()),
        None => {
            eprintln!("usage: footplate-shim <folder of a member>");
            ExitCode::from(2)
        }
    }
}
