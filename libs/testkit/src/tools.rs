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
    if let Some(named) = named_by("FOOTPLATE_NATS_SERVER")? {
        return Ok(named);
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

/// The S3 server to start (versitygw, or s3s-fs by its name): `FOOTPLATE_S3_SERVER`, then the one `make setup-s3` installed, then the path.
///
/// # Errors
/// When there is none: the message says what to run.
pub fn s3_server_program() -> Result<PathBuf> {
    const PROGRAMS: [&str; 2] = ["versitygw", "s3s-fs"];
    if let Some(named) = named_by("FOOTPLATE_S3_SERVER")? {
        return Ok(named);
    }
    let installed = PROGRAMS.map(|program| repository_root().join(".tools/s3/bin").join(program));
    let found = installed.into_iter().find(|program| program.is_file());
    match found.or_else(|| PROGRAMS.into_iter().find_map(on_path)) {
        Some(found) => Ok(found),
        None => bail!("no S3 server: run `make setup-s3` (or set FOOTPLATE_S3_SERVER)"),
    }
}

/// The HAProxy to start: `FOOTPLATE_HAPROXY`, then the path, then where Debian puts it, which is on no user's path but root's.
///
/// # Errors
/// When there is none: the message says what to run.
pub fn haproxy_program() -> Result<PathBuf> {
    if let Some(named) = named_by("FOOTPLATE_HAPROXY")? {
        return Ok(named);
    }
    let installed = Some(PathBuf::from("/usr/sbin/haproxy")).filter(|program| program.is_file());
    match on_path("haproxy").or(installed) {
        Some(found) => Ok(found),
        None => bail!("no HAProxy: run `make setup-proxy` (or set FOOTPLATE_HAPROXY)"),
    }
}

/// The program that a variable names, where it is set.
fn named_by(variable: &str) -> Result<Option<PathBuf>> {
    let Some(named) = std::env::var_os(variable).map(PathBuf::from) else { return Ok(None) };
    if named.is_file() { Ok(Some(named)) } else { bail!("{variable} names {}, which is not a file", named.display()) }
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
