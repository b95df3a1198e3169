//! The `footplate` binary: reads the command line, does what it says, ends with a documented exit code.

use clap::Parser as _;
use footplate_cli::{
    args::{Cli, not_built},
    commands::dispatch,
    exit_of,
    output::tell,
};
use footplate_service::Exit;
use std::process::ExitCode;

/// Events are many small texts: with the C library's allocator a third of an append's work was allocating.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The hidden verb of the agent: this program again, as the keeper of one worker tree. It must not meet the runtime or the command line.
const SHIM: &str = "shim";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|verb| verb == SHIM) {
        let Some(folder) = arguments.next() else {
            tell("footplate: shim is started by the agent alone, with the folder of a worker");
            return Exit::Usage.into();
        };
        return footplate_executor_agent::shim_main(std::path::Path::new(&folder));
    }
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tell("footplate: another TLS provider is installed already");
        return Exit::Failed.into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(told) = not_built(&error) {
                tell(format!("footplate: {told}"));
                return Exit::Usage.into();
            }
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
