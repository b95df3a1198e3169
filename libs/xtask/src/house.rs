//! Small rules of the house that a compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::metadata;

/// Names under which everything ends up.
const FORBIDDEN_NAMES: &[&str] = &["common", "util", "utils", "helper", "helpers", "misc", "manager"];
/// What decides is pure: no clock, no world, no waiting, and no order that differs from run to run. Crates outside are the arrows' to forbid.
const IMPURE: &[&str] = &[
    "SystemTime",
    "Instant",
    "HashMap",
    "HashSet",
    "RandomState",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "async fn",
    ".await",
];
/// A file of more production lines than this needs a reason, written in its first comment as `Long because`.
const LONG_FILE_LINES: usize = 1_000;

/// What is against the rules.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for one in metadata::crates(root)?.values() {
        wrong.extend(forbidden_name(&one.name).map(|word| format!("no crate is called {word}: {}", one.name)));
        let manifest = one.folder.join("Cargo.toml");
        let text = fs::read_to_string(root.join(&manifest)).with_context(|| format!("cannot read {}", manifest.display()))?;
        let table: Table = text.parse().with_context(|| format!("cannot understand {}", manifest.display()))?;
        wrong.extend(of_manifest(&table, &one.folder).into_iter().map(|problem| format!("{}: {problem}", manifest.display())));
        for file in rust_files(&root.join(&one.folder).join("src"))? {
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            if shown.contains("/generated/") {
                continue;
            }
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
            wrong.extend(of_source(&file, &text).into_iter().map(|problem| format!("{shown}: {problem}")));
            if decides(&one.name) {
                wrong.extend(impure(&text).into_iter().map(|word| format!("{shown}: `{word}` has no place in what decides")));
            }
        }
    }
    Ok(wrong)
}

fn of_manifest(manifest: &Table, folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    if lints != Some(true) {
        wrong.push("wants `[lints] workspace = true`".to_owned());
    }
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(dependencies) = manifest.get(section).and_then(Value::as_table) else { continue };
        let of_workspace = |value: &Value| value.get("workspace").and_then(Value::as_bool) == Some(true);
        // A crate that names itself turns on a feature for its own tests.
        let itself = |value: &Value| value.get("path").and_then(Value::as_str) == Some(".");
        let own = dependencies.iter().filter(|(_, value)| !of_workspace(value) && !itself(value)).map(|(name, _)| name);
        wrong.extend(own.map(|name| format!("{name} states its own version: put it in [workspace.dependencies]")));
    }
    let testkit = manifest.get("dependencies").and_then(|dependencies| dependencies.get("footplate-testkit"));
    if testkit.is_some() && !folder.starts_with("loadtests") {
        wrong.push("footplate-testkit is for [dev-dependencies] and load tests only".to_owned());
    }
    wrong
}

fn of_source(path: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !text.trim_start().starts_with("//!") {
        wrong.push("opens without `//!` (what it is for, what it must never do)".to_owned());
    }
    if let Some(word) = path.file_stem().and_then(|stem| forbidden_name(stem.to_str()?)) {
        wrong.push(format!("no module is called {word}"));
    }
    let production = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines = production.lines().count();
    if lines > LONG_FILE_LINES && !text.contains("Long because") {
        wrong.push(format!("{lines} lines: split it, or say in its opening comment `Long because ...`"));
    }
    wrong
}

/// Whether a crate is a core or what cores decide with.
fn decides(name: &str) -> bool {
    name.ends_with("-core") || ["footplate-types", "footplate-events", "footplate-es"].contains(&name)
}

/// The impure words of a source, comments left out.
fn impure(text: &str) -> Vec<&'static str> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    IMPURE.iter().copied().filter(|word| code.iter().any(|line| line.contains(word))).collect()
}

fn forbidden_name(name: &str) -> Option<&'static str> {
    let mut words = name.split(['-', '_']);
    FORBIDDEN_NAMES.iter().copied().find(|forbidden| words.clone().any(|word| word == *forbidden)).filter(|_| words.next().is_some())
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_without_the_lints_or_with_a_version_of_its_own_is_found() {
        let good: Table = "[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\n".parse().unwrap();
        let folder = Path::new("libs/one");
        assert!(of_manifest(&good, folder).is_empty());
        let bad: Table = "[dependencies]\nserde = \"1\"\nfootplate-testkit.workspace = true\n".parse().unwrap();
        assert_eq!(of_manifest(&bad, folder).len(), 3, "{:?}", of_manifest(&bad, folder));
        assert_eq!(of_manifest(&bad, Path::new("loadtests/loadgen")).len(), 2);
    }

    #[test]
    fn a_source_without_its_purpose_or_under_a_bad_name_is_found() {
        assert!(of_source(Path::new("src/fold.rs"), "//! Folds.\n").is_empty());
        assert_eq!(of_source(Path::new("src/fold.rs"), "fn fold() {}\n").len(), 1);
        assert_eq!(of_source(Path::new("src/utils.rs"), "//! Things.\n").len(), 1);
        let long = format!("//! Long.\n{}", "\n".repeat(LONG_FILE_LINES));
        assert_eq!(of_source(Path::new("src/long.rs"), &long).len(), 1);
        assert!(of_source(Path::new("src/long.rs"), &long.replace("Long.", "Long because it is one table.")).is_empty());
    }

    #[test]
    fn a_core_that_looks_at_a_clock_or_the_world_is_found() {
        assert!(decides("footplate-scheduler-core") && decides("footplate-es") && !decides("footplate-eventlog"));
        assert_eq!(impure("//! Instants, told.\nfn decide(now: Timestamp) {}\n"), Vec::<&str>::new());
        assert_eq!(impure("    let now = std::time::SystemTime::now();\n"), ["SystemTime"]);
        assert_eq!(impure("async fn decide() { read().await }\n"), ["async fn", ".await"]);
    }

    #[test]
    fn names_are_looked_at_word_by_word() {
        assert_eq!(forbidden_name("footplate-common"), Some("common"));
        assert_eq!(forbidden_name("commonality"), None);
    }
}
