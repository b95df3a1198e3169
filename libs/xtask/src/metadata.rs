//! What cargo says of the workspace: its crates and every crate that each stands on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its folder under the root.
    pub(crate) folder: PathBuf,
    /// The crates of the workspace that it names in `[dependencies]`.
    pub(crate) ours: BTreeSet<String>,
}

/// The crates of the workspace, by name.
pub(crate) fn crates(root: &Path) -> Result<BTreeMap<String, Crate>> {
    let output = cargo(root, &["metadata", "--format-version", "1", "--no-deps", "--offline"])?;
    let metadata: Value = serde_json::from_slice(&output).context("cargo metadata gives no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let read = |package: &Value| read_crate(root, package, &names);
    packages.iter().map(read).map(|one| one.map(|one| (one.name.clone(), one))).collect()
}

fn read_crate(root: &Path, package: &Value, names: &BTreeSet<&str>) -> Result<Crate> {
    let name = package["name"].as_str().context("a package without a name")?.to_owned();
    let manifest = Path::new(package["manifest_path"].as_str().context("a package without a manifest")?);
    let folder = manifest.parent().context("a manifest without a folder")?;
    let folder = folder.strip_prefix(root).unwrap_or(folder).to_owned();
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Kind is null for plain dependencies; tests may stand on what they like.
    let plain = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
    let ours = plain.filter_map(|dependency| dependency["name"].as_str()).filter(|name| names.contains(name)).map(str::to_owned).collect();
    Ok(Crate { name, folder, ours })
}

/// Every crate that `package` stands on when built alone with its default features, itself included, and whether each is there for its
/// macros' sake only (procedural macros and what they need run in the compiler, not in the program).
pub(crate) fn tree(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let arguments = ["tree", "--offline", "--package", package, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"];
    let output = String::from_utf8(cargo(root, &arguments)?).context("cargo tree gives no text")?;
    Ok(output.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(arguments).current_dir(root).output().context("cannot start cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo {} failed:\n{said}", arguments.join(" "));
    Ok(output.stdout)
}
