//! Files that are made, as they should be: to be written, or compared with what is checked in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Made files by their path under the root, and the folders that may hold nothing else.
#[derive(Debug, Default)]
pub(crate) struct Generated {
    files: BTreeMap<PathBuf, Vec<u8>>,
    whole_folders: Vec<PathBuf>,
}

impl Generated {
    pub(crate) fn add(&mut self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), bytes.into());
    }

    /// Says that `folder` holds made files only: what else lies there is stale.
    pub(crate) fn owns(&mut self, folder: impl Into<PathBuf>) {
        self.whole_folders.push(folder.into());
    }

    /// Writes what differs and removes what is stale.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        for (path, bytes) in &self.files {
            let target = root.join(path);
            if fs::read(&target).is_ok_and(|there| there == *bytes) {
                continue;
            }
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            }
            fs::write(&target, bytes).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", path.display());
        }
        for path in self.stale(root)? {
            fs::remove_file(root.join(&path)).with_context(|| format!("cannot remove {}", path.display()))?;
            println!("removed {}", path.display());
        }
        Ok(())
    }

    /// What is out of step with what is checked in.
    pub(crate) fn differences(&self, root: &Path) -> Result<Vec<String>> {
        let differs = |(path, bytes): (&PathBuf, &Vec<u8>)| {
            let same = fs::read(root.join(path)).is_ok_and(|there| there == *bytes);
            (!same).then(|| format!("{} is out of step: run `cargo xtask generate`", path.display()))
        };
        let mut found: Vec<String> = self.files.iter().filter_map(differs).collect();
        found.extend(self.stale(root)?.iter().map(|path| format!("{} is made by nothing: run `cargo xtask generate`", path.display())));
        Ok(found)
    }

    fn stale(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let mut stale = Vec::new();
        for folder in &self.whole_folders {
            let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
            for entry in entries {
                let path = folder.join(entry?.file_name());
                if !self.files.contains_key(&path) {
                    stale.push(path);
                }
            }
        }
        Ok(stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_changed_or_stale_is_found_and_mended() {
        let root = tempfile::tempdir().unwrap();
        let mut generated = Generated::default();
        generated.add("made/one.txt", "1");
        generated.add("made/two.txt", "2");
        generated.owns("made");
        fs::create_dir(root.path().join("made")).unwrap();
        fs::write(root.path().join("made/two.txt"), "old").unwrap();
        fs::write(root.path().join("made/three.txt"), "stale").unwrap();
        let found = generated.differences(root.path()).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        generated.write(root.path()).unwrap();
        assert!(generated.differences(root.path()).unwrap().is_empty());
    }
}
