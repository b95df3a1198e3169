//! The limit on what git does not track: counted by `stat`, before any content is read, and told with the folders at fault.

use footplate_types::ByteSize;
use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

/// How many folders the refusal names.
const FOLDERS_SHOWN: usize = 5;
/// A folder with at least this share of its parent's bytes stands for it (in percent).
const STANDS_FOR_PARENT_PERCENT: u64 = 80;
/// How long a survey that has passed the limit may have taken in all: the figures are of use, and the answer is prompt.
const SURVEY_MAX: Duration = Duration::from_secs(3);

/// Adds up untracked files.
#[derive(Debug)]
pub(super) struct Meter {
    limit: ByteSize,
    files: u64,
    bytes: u64,
    /// Bytes and files of each folder, those of its subfolders included; `""` is the root.
    folders: BTreeMap<Vec<u8>, (u64, u64)>,
    began: Instant,
}

impl Meter {
    pub(super) fn new(limit: ByteSize) -> Self {
        Self { limit, files: 0, bytes: 0, folders: BTreeMap::new(), began: Instant::now() }
    }

    /// Counts one file; says whether counting should go on.
    pub(super) fn add(&mut self, path: &[u8], bytes: u64) -> bool {
        self.files += 1;
        self.bytes += bytes;
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            let sum = self.folders.entry(path[..end].to_vec()).or_default();
            sum.0 += bytes;
            sum.1 += 1;
        }
        !self.is_passed() || self.began.elapsed() < SURVEY_MAX
    }

    fn is_passed(&self) -> bool {
        self.bytes > self.limit.0
    }

    pub(super) fn files(&self) -> u64 {
        self.files
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The refusal, when the limit is passed. `complete` says whether everything was counted, `in_git` how to name the ignore file.
    pub(super) fn refusal(&self, complete: bool, in_git: bool) -> Option<TooMuch> {
        if !self.is_passed() {
            return None;
        }
        Some(TooMuch { limit: self.limit, bytes: self.bytes, files: self.files, complete, in_git, folders: self.largest() })
    }

    /// The folders that explain the total: from the root down, a folder whose one child holds nearly all of it gives way to the child.
    fn largest(&self) -> Vec<Folder> {
        let mut chosen: Vec<&[u8]> = vec![b""];
        let mut at = 0;
        while at < chosen.len() {
            let folder = chosen[at];
            let children: Vec<&[u8]> = self.children(folder).collect();
            let heavy = children.iter().any(|child| self.folders[*child].0 * 100 >= self.folders[folder].0 * STANDS_FOR_PARENT_PERCENT);
            if (folder.is_empty() && !children.is_empty()) || heavy {
                chosen.remove(at);
                chosen.extend(children);
            } else {
                at += 1;
            }
        }
        let mut folders: Vec<Folder> = chosen
            .into_iter()
            .map(|path| Folder {
                path: format!("{}/", String::from_utf8_lossy(path)),
                bytes: self.folders[path].0,
                files: self.folders[path].1,
            })
            .collect();
        folders.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.path.cmp(&other.path)));
        folders.truncate(FOLDERS_SHOWN);
        folders
    }

    fn children<'a>(&'a self, folder: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let prefix = if folder.is_empty() { Vec::new() } else { [folder, b"/"].concat() };
        let depth = prefix.len();
        self.folders
            .range(prefix.clone()..)
            .map(|(path, _)| path.as_slice())
            .take_while(move |path| path.starts_with(&prefix))
            .filter(move |path| path.len() > depth && !path[depth..].contains(&b'/'))
    }
}

/// One folder of the refusal, its subfolders included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Relative to the captured folder, with a closing `/`.
    pub path: String,
    /// Untracked bytes.
    pub bytes: u64,
    /// Untracked files.
    pub files: u64,
}

/// The refusal of too many untracked bytes.
#[derive(Clone, Debug)]
pub struct TooMuch {
    /// The limit (`source.max_untracked`).
    pub limit: ByteSize,
    /// Untracked bytes found.
    pub bytes: u64,
    /// Untracked files found.
    pub files: u64,
    /// Whether everything was counted; else the figures are lower bounds.
    pub complete: bool,
    /// Whether the folder is a git repository.
    pub in_git: bool,
    /// The largest folders, largest first.
    pub folders: Vec<Folder>,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.complete { "" } else { "at least " };
        let what = if self.in_git { "untracked files" } else { "files in a folder that git does not track" };
        writeln!(f, "{at_least}{} in {} {what}, more than source.max_untracked ({}):", ByteSize(self.bytes), self.files, self.limit)?;
        for folder in &self.folders {
            writeln!(f, "  {:>10}  {:>8} files  {}", ByteSize(folder.bytes).to_string(), folder.files, folder.path)?;
        }
        let line = self.folders.first().map_or("data/", |folder| folder.path.as_str());
        let file = if self.in_git { ".gitignore or .footplateignore" } else { ".footplateignore" };
        write!(f, "add the line `{line}` to {file}, or raise the limit with `source: {{max_untracked: {}}}`", rounded_up(self.bytes))
    }
}

/// A limit that would do, in whole MiB or GiB.
fn rounded_up(bytes: u64) -> ByteSize {
    const MIB: u64 = 1 << 20;
    let unit = if bytes > 2048 * MIB { 1024 * MIB } else { MIB };
    ByteSize(bytes.div_ceil(unit) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_at_fault_is_named_and_not_only_its_parents() {
        let mut meter = Meter::new(ByteSize(1000));
        for number in 0..40 {
            meter.add(format!("tmp/cache/{:02}/{number}.bin", number % 20).as_bytes(), 100);
        }
        meter.add(b"notes/a.txt", 10);
        let refusal = meter.refusal(true, true).unwrap();
        assert_eq!((refusal.bytes, refusal.files), (4010, 41));
        assert_eq!(refusal.folders[0], Folder { path: "tmp/cache/".to_owned(), bytes: 4000, files: 40 });
        let told = refusal.to_string();
        assert!(told.contains("`tmp/cache/`") && told.contains("max_untracked: 1MiB"), "{told}");
    }

    #[test]
    fn below_the_limit_there_is_no_refusal() {
        let mut meter = Meter::new(ByteSize(1000));
        assert!(meter.add(b"a", 1000));
        assert!(meter.refusal(true, true).is_none());
    }
}
