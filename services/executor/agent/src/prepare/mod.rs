//! Before any worker: code in a clean folder, config as a file, set-up, environment, rendezvous.
//!
//! Nothing here trusts the archive it unpacks, and nothing of the agent's own environment reaches a worker but what is listed.

mod environment;
mod rendezvous;
mod role;
mod unpack;

pub(crate) use environment::error_file;
pub use environment::{Machine, base_environment, worker_environment};
pub use rendezvous::{PortTaken, ReservedPort};
pub use unpack::{UnpackError, UnpackLimits, unpack};

use footplate_events::messages::RunCommand;

/// The command as argv; a line goes through `/bin/sh -c`.
pub fn argv(command: &RunCommand) -> Vec<String> {
    match command {
        RunCommand::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
        RunCommand::Argv(argv) => argv.clone(),
    }
}
