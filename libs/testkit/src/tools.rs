//! Where the servers and interpreters that tests need are found.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The folder of the repository.
pub fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or_else(|| here.to_owned(), Path::to_owned)
}

/// The nats-server to start: `FOOTPLATE_NATS_SERVER`, then the one `make setup` installed, then the path.
///
/// # Errors
/// When there is none: the message says what to run.
pub fn nats_server_program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("FOOTPLATE_NATS_SERVER") {
        let named = PathBuf::from(named);
        if named.is_file() {
            return Ok(named);
        }
        bail!("FOOTPLATE_NATS_SERVER names {}, which is not a file", named.display());
    }
    let installed = repository_root().join(".tools/nats/bin/nats-server");
    if installed.is_file() {
        return Ok(installed);
    }
    match on_path("nats-server") {
        Some(found) => Ok(found),
        None => bail!("no nats-server: run `make setup` (or set FOOTPLATE_NATS_SERVER)"),
    }
}

/// The Python with numpy and scikit-learn that the example trainings use.
///
/// # Errors
/// When `make setup-demo` has not been run.
pub fn demo_python() -> Result<PathBuf> {
    let python = repository_root().join(".tools/python/bin/python3");
    if python.exists() { Ok(python) } else { bail!("no Python for the examples: run `make setup-demo`") }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
