//! Listing a folder without git: `.gitignore` and `.footplateignore` of every folder hold, and so do the default excludes.

use super::{
    CaptureError,
    ignore::Rules,
    listing::{Listing, shown},
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

/// What is never captured unless git tracks it, in the syntax of `.gitignore`. A `!` line of the user's own files takes one back.
pub const DEFAULT_EXCLUDES: &str = "\
.git
.hg/
.svn/
__pycache__/
*.pyc
*.pyo
.venv/
venv/
node_modules/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.ipynb_checkpoints/
.tox/
*.egg-info/
.DS_Store
";

/// The files whose lines leave things out, in the order they are read; the later wins.
pub(super) const IGNORE_FILES: [&str; 2] = [".gitignore", ".footplateignore"];

/// The default excludes as rules.
pub(super) fn default_excludes() -> Rules {
    Rules::parse(b"", DEFAULT_EXCLUDES.as_bytes())
}

/// Lists everything below `root` that no rule leaves out.
pub(super) fn walk(root: &Path, listing: &mut Listing) -> Result<(), CaptureError> {
    let mut rules = default_excludes();
    walk_folder(root, b"", &mut rules, listing).map(drop)
}

fn walk_folder(root: &Path, folder: &[u8], rules: &mut Rules, listing: &mut Listing) -> Result<bool, CaptureError> {
    let full = root.join(OsStr::from_bytes(folder));
    for name in IGNORE_FILES {
        if let Ok(text) = std::fs::read(full.join(name)) {
            rules.extend(Rules::parse(folder, &text));
        }
    }
    let unreadable = |source| CaptureError::Unreadable { path: if folder.is_empty() { ".".to_owned() } else { shown(folder) }, source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&full).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        names.push((entry.file_name(), entry.file_type().map_err(unreadable)?.is_dir()));
    }
    names.sort();
    for (name, is_folder) in names {
        let path = if folder.is_empty() { name.as_bytes().to_vec() } else { [folder, b"/", name.as_bytes()].concat() };
        if rules.says(&path, is_folder) == Some(true) {
            continue;
        }
        let go_on = if is_folder { walk_folder(root, &path, rules, listing)? } else { listing.add(&path, false)? };
        if !go_on {
            return listing.too_much(false, false).map_or(Ok(false), Err);
        }
    }
    Ok(true)
}
