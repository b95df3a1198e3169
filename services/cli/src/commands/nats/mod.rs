//! Verbs of `nats`: who may connect to the broker of a deployment. They work on the operator's folder, and ask no service.

pub mod creds;
pub mod init;
pub mod revoke;
pub mod streams;

use crate::output::{Exit, Failure};
use footplate_credentials::{FolderError, Operator, ResolverError, UserCreds};
use std::path::{Path, PathBuf};

/// The operator's folder, as every verb but `init` takes it.
#[derive(Clone, Debug, clap::Args)]
pub struct OperatorArg {
    /// Folder of the operator's keys (of an `up`: operator, in its data folder)
    #[arg(long, env = "FOOTPLATE_NATS_OPERATOR", value_name = "DIR", hide_env_values = true)]
    pub operator: PathBuf,
}

impl OperatorArg {
    fn open(&self) -> Result<Operator, Failure> {
        Operator::open(&self.operator).map_err(of_folder)
    }
}

fn of_folder(error: FolderError) -> Failure {
    let exit = match &error {
        FolderError::Absent(_) => Exit::NotFound,
        FolderError::NotWhole { .. } | FolderError::Exists(_) | FolderError::Key(_) | FolderError::Revocation { .. } => Exit::Refused,
        FolderError::Io { .. } => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn of_resolver(error: ResolverError) -> Failure {
    let exit = match error {
        ResolverError::Folder(error) => return of_folder(error),
        ResolverError::NotPermitted { .. } | ResolverError::Refused(_) => Exit::Refused,
        ResolverError::Unreachable { .. } | ResolverError::Silent(_) => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}

fn write(creds: &UserCreds, path: &Path) -> Result<(), Failure> {
    creds.write(path).map_err(|error| Failure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display())))
}
