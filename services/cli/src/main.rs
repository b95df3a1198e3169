//! The `footplate` binary: reads the command line, does what it says, ends with a documented exit code.

use clap::Parser as _;
use footplate_cli::{args::Cli, commands::dispatch, exit_of, output::tell};
use footplate_service::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no faults: clap prints them to standard output and says so.
            let asked_for = !error.use_stderr();
            let _unheard = error.print();
            return if asked_for { Exit::Done } else { Exit::Usage }.into();
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tell(format!("footplate: no runtime: {error}"));
            return Exit::Failed.into();
        }
    };
    match runtime.block_on(dispatch(cli)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            let (exit, message) = exit_of(&error);
            tell(format!("footplate: {message}"));
            exit.into()
        }
    }
}
