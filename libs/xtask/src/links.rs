//! Links and paths in the documents: every relative link, and every `path/of/ours` in back ticks, leads to something that is there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders of the repository by which a path in back ticks is known as one of ours.
const OUR_FOLDERS: &[&str] = &["libs/", "services/", "deploy/", "proto/", "docs/", "loadtests/"];

/// What leads nowhere.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut documents = vec![];
    markdown(&root.join("docs"), &mut documents)?;
    documents
        .extend(["README.md", "CONTRIBUTING.md", "libs/python/README.md"].iter().map(|name| root.join(name)).filter(|path| path.is_file()));
    let mut wrong = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let folder = document.parent().unwrap_or(root);
        let shown = document.strip_prefix(root).unwrap_or(&document).display();
        let broken = targets(&text).into_iter().filter(|target| !leads_somewhere(folder, target));
        wrong.extend(broken.map(|target| format!("{shown}: ({target}) leads nowhere")));
        let missing = paths(&text).into_iter().filter(|path| !root.join(path).exists());
        wrong.extend(missing.map(|path| format!("{shown}: `{path}` is not there")));
    }
    Ok(wrong)
}

fn markdown(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            markdown(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

/// The lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !in_block && !fence
    })
}

/// The paths of ours that stand in back ticks.
fn paths(text: &str) -> Vec<String> {
    let plain = |path: &str| path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let is_ours = |piece: &&str| OUR_FOLDERS.iter().any(|folder| piece.starts_with(folder)) && plain(piece);
    let pieces = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    pieces.filter(is_ours).map(str::to_owned).collect()
}

/// The relative targets of a document's links, code blocks left out.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Outside `code`: every second piece between back ticks.
        for piece in line.split('`').step_by(2) {
            let ends = piece.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
            found.extend(
                ends.filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with(['#', '<'])).map(str::to_owned),
            );
        }
    }
    found
}

fn leads_somewhere(folder: &Path, target: &str) -> bool {
    let file = target.split('#').next().unwrap_or(target);
    target.starts_with("mailto:") || folder.join(file).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_are_found_and_others_passed_over() {
        let text =
            "[a](one.md) [b](https://x.y/z) [c](#part) `[d](two.md)`\n```\n[e](three.md)\n```\n![f](four.png \"four\") [g](five.md#part)\n";
        assert_eq!(targets(text), ["one.md", "four.png", "five.md#part"]);
    }

    #[test]
    fn paths_of_ours_in_back_ticks_are_found() {
        let text = "`libs/es` and `services/<name>/core` and `make test`, libs/api\n```\n`libs/no`\n```\n`deploy/setup.sh`";
        assert_eq!(paths(text), ["libs/es", "deploy/setup.sh"]);
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("there.md"), "").unwrap();
        assert!(leads_somewhere(folder.path(), "there.md#part"));
        assert!(!leads_somewhere(folder.path(), "gone.md"));
    }
}
