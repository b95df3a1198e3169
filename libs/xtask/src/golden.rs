//! Golden files of the event contract: every version ever written keeps one, and none lies about without a type.

use std::path::Path;

use anyhow::Result;

/// What is wrong with the golden files.
#[cfg(feature = "documents")]
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    use std::collections::BTreeSet;

    const FOLDER: &str = "libs/events/golden";
    let known: BTreeSet<String> = footplate_events::known_types().iter().map(ToString::to_string).collect();
    let mut covered = BTreeSet::new();
    let mut wrong = Vec::new();
    let Ok(entries) = std::fs::read_dir(root.join(FOLDER)) else { return Ok(vec![format!("{FOLDER} is missing")]) };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let type_of = name.strip_suffix(".json").unwrap_or(&name).to_owned();
        // A golden file of an older version is never removed; its type must still be read, so it must still be known.
        if !known.contains(&type_of) {
            wrong.push(format!("{FOLDER}/{name} belongs to no known event type"));
        }
        covered.insert(type_of);
    }
    wrong.extend(known.difference(&covered).map(|missing| format!("{FOLDER} holds no example of {missing}")));
    Ok(wrong)
}

#[cfg(not(feature = "documents"))]
pub(crate) fn check(_root: &Path) -> Result<Vec<String>> {
    anyhow::bail!("this xtask was built without its feature `documents`")
}
