//! Listing a working tree with git's knowledge: what is tracked, what is ignored, submodules inside submodules, LFS pointers, and what the
//! record should say of the commit. It reads file contents only of what may be an LFS pointer (under 1 KiB).

use super::{
    CaptureError, LfsRule, SubmoduleRule,
    git::{Git, path_of},
    ignore::Rules,
    listing::{Entry, Listing, shown},
    walk::default_excludes,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

/// How deep submodules may nest.
const DEPTH_MAX: usize = 16;
/// A pointer file is shorter than this, in bytes (the LFS specification says 1024).
const POINTER_BYTES_MAX: u64 = 1024;
const POINTER_HEAD: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";

/// What git says of the captured tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitFacts {
    /// The commit checked out; absent before the first one.
    pub commit: Option<String>,
    /// The branch; absent when the head is detached.
    pub branch: Option<String>,
    /// Whether the captured tree differs from the commit: changed, staged, deleted or untracked files, or a submodule that does.
    pub dirty: bool,
    /// The URL of the branch's remote (else `origin`), without credentials; absent when there is none.
    pub remote: Option<String>,
    /// Whether some remote-tracking branch holds the commit. A commit that none holds can be had from nowhere else.
    pub commit_on_remote: bool,
}

/// A submodule (or a repository inside the repository that is not registered as one).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submodule {
    /// Its folder, relative to the root.
    pub path: String,
    /// The commit that its parent records; absent when it is not registered.
    pub pinned: Option<String>,
    /// Its own facts; absent when it is not checked out, or left out.
    pub git: Option<GitFacts>,
    /// What stands in the snapshot.
    pub state: SubmoduleState,
}

/// What of a submodule stands in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmoduleState {
    /// The recorded commit, unchanged.
    Pinned,
    /// Something else than the recorded commit: its working tree as it was.
    Changed,
    /// Nothing: it was not checked out.
    Absent,
    /// Nothing: `source.submodules` is `ignore`.
    Ignored,
}

/// A file that git LFS manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LfsFile {
    /// Its path, relative to the root.
    pub path: String,
    /// Whether the snapshot holds its content (`true`) or only the pointer (`false`).
    pub content: bool,
}

/// What a survey of a repository yields beside the listing.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) facts: GitFacts,
    pub(super) submodules: Vec<Submodule>,
    pub(super) lfs: Vec<LfsFile>,
    /// What differs from the commit, for `source.dirty: refuse`.
    pub(super) changes: Vec<String>,
}

/// How submodules and LFS files are to be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking {
    pub(super) submodules: SubmoduleRule,
    pub(super) lfs: LfsRule,
}

/// Lists the working tree of `git` into `listing`, submodules included.
pub(super) fn survey(git: &Git, listing: &mut Listing, taking: Taking) -> Result<Survey, CaptureError> {
    let mut survey = Survey::default();
    survey.facts = one(git, b"", 0, listing, taking, &mut survey)?;
    let pointers: Vec<String> = survey.lfs.iter().filter(|file| !file.content).map(|file| file.path.clone()).collect();
    if !pointers.is_empty() {
        if taking.lfs == LfsRule::Require {
            return Err(CaptureError::LfsPointers { paths: pointers });
        }
        listing.warnings.push(format!("{} git LFS files are pointers without their content (first: {})", pointers.len(), pointers[0]));
    }
    Ok(survey)
}

/// One repository at `prefix` (empty, or a folder with a closing `/`); its facts.
fn one(
    git: &Git,
    prefix: &[u8],
    depth: usize,
    listing: &mut Listing,
    taking: Taking,
    survey: &mut Survey,
) -> Result<GitFacts, CaptureError> {
    let tracked = tracked(git)?;
    load_ignore_files(git, prefix, listing)?;
    let before = listing.entries.len();
    let mut gitlinks = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, commit) in &tracked {
        let full = [prefix, path].concat();
        match commit {
            Some(commit) => gitlinks.push((path.clone(), Some(commit.clone()))),
            None => {
                listing.add(&full, true)?;
                seen.insert(path.clone());
            }
        }
    }
    let untracked_before = listing.meter.files();
    let nested = untracked(git, prefix, listing)?;
    gitlinks.extend(nested.into_iter().map(|path| (path, None)));
    let untracked = listing.meter.files() - untracked_before;
    if listing.entries.len() > before {
        lfs_files(git, prefix, &tracked, listing, survey)?;
    }
    let mut facts = facts(git)?;
    let changes = changes(git)?;
    facts.dirty = facts.commit.is_none() || untracked > 0 || changes.as_ref().is_none_or(|changes| !changes.is_empty());
    survey.changes.extend(changes.unwrap_or_default().iter().map(|path| shown(&[prefix, path].concat())));
    if untracked > 0 {
        survey.changes.push(format!("{untracked} untracked files in {}", if prefix.is_empty() { "./".into() } else { shown(prefix) }));
    }
    for (path, pinned) in gitlinks {
        let submodule = submodule(git, &[prefix, &path].concat(), &path, pinned, depth, listing, taking, survey)?;
        facts.dirty |= matches!(submodule.state, SubmoduleState::Changed);
        survey.submodules.push(submodule);
    }
    Ok(facts)
}

#[allow(clippy::too_many_arguments, reason = "one recursion step; the arguments are the recursion's state")]
fn submodule(
    parent: &Git,
    full: &[u8],
    path: &[u8],
    pinned: Option<String>,
    depth: usize,
    listing: &mut Listing,
    taking: Taking,
    survey: &mut Survey,
) -> Result<Submodule, CaptureError> {
    let told = |state, git| Submodule { path: shown(full), pinned: pinned.clone(), git, state };
    if listing.ignored.ignores(&[full, b"/x"].concat()) || taking.submodules == SubmoduleRule::Ignore {
        return Ok(told(SubmoduleState::Ignored, None));
    }
    let folder = parent.top.join(OsStr::from_bytes(path));
    let checked_out = folder.join(".git").symlink_metadata().is_ok();
    let git = if checked_out && depth < DEPTH_MAX { Git::around(&folder)? } else { None };
    let Some(git) = git else {
        if taking.submodules == SubmoduleRule::Pinned {
            return Err(CaptureError::Submodules { paths: vec![format!("{}: not checked out", shown(full))] });
        }
        listing.warnings.push(format!("the submodule {} is not checked out; the snapshot has nothing of it", shown(full)));
        return Ok(told(SubmoduleState::Absent, None));
    };
    let facts = one(&git, &[full, b"/"].concat(), depth + 1, listing, taking, survey)?;
    let at_pin = facts.commit.is_some() && facts.commit == pinned && !facts.dirty;
    if !at_pin && taking.submodules == SubmoduleRule::Pinned {
        let what = if facts.dirty { "changed files" } else { "another commit checked out" };
        return Err(CaptureError::Submodules { paths: vec![format!("{}: {what}", shown(full))] });
    }
    Ok(told(if at_pin { SubmoduleState::Pinned } else { SubmoduleState::Changed }, Some(facts)))
}

/// A tracked path, with its commit when it is a submodule.
type Tracked = (Vec<u8>, Option<String>);

/// The tracked paths, in order.
fn tracked(git: &Git) -> Result<Vec<Tracked>, CaptureError> {
    let listed = git.ask(&["ls-files", "-z", "--stage"])?;
    let mut paths: Vec<Tracked> = Vec::new();
    for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        // <mode> SP <object> SP <stage> TAB <path>
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else { continue };
        let path = &line[tab + 1..];
        if paths.last().is_some_and(|(last, _)| last == path) {
            continue;
        }
        let object = line[..tab].split(|byte| *byte == b' ').nth(1).map(shown);
        paths.push((path.to_vec(), object.filter(|_| line.starts_with(b"160000 "))));
    }
    Ok(paths)
}

/// Lists what git neither tracks nor ignores; gives back the repositories among it.
fn untracked(git: &Git, prefix: &[u8], listing: &mut Listing) -> Result<Vec<Vec<u8>>, CaptureError> {
    let excludes = default_excludes();
    let mut child = git.stream(&["ls-files", "-z", "--others", "--exclude-standard"])?;
    let Some(output) = child.stdout.take() else { return Ok(Vec::new()) };
    let mut nested = Vec::new();
    let mut stopped = false;
    for path in BufReader::with_capacity(1 << 16, output).split(0) {
        let path = path.map_err(CaptureError::scratch)?;
        if let Some(folder) = path.strip_suffix(b"/") {
            nested.push(folder.to_vec());
            continue;
        }
        let full = [prefix, path.as_slice()].concat();
        if !excludes.ignores(&path) && !listing.add(&full, false)? {
            stopped = true;
            break;
        }
    }
    if stopped {
        // It may have millions of paths left to print; nobody waits for them.
        let _gone = child.kill();
        let _status = child.wait();
        return listing.too_much(false, true).map_or(Ok(nested), Err);
    }
    let answer = child.wait_with_output().map_err(CaptureError::scratch)?;
    if !answer.status.success() {
        return Err(CaptureError::Git { command: "ls-files".to_owned(), message: shown(&answer.stderr).trim().to_owned() });
    }
    Ok(nested)
}

/// Reads every `.footplateignore` of the repository, tracked or not, before anything is listed by it.
fn load_ignore_files(git: &Git, prefix: &[u8], listing: &mut Listing) -> Result<(), CaptureError> {
    let listed = git.ask(&["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ":(top,glob)**/.footplateignore"])?;
    let files: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
    for path in files {
        let folder = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at]);
        if let Ok(text) = std::fs::read(git.top.join(path_of(path))) {
            let base = [prefix, folder].concat();
            let base = base.strip_suffix(b"/").unwrap_or(&base);
            listing.ignored.extend(Rules::parse(base, &text));
        }
    }
    Ok(())
}

/// What the record says of the commit.
fn facts(git: &Git) -> Result<GitFacts, CaptureError> {
    let commit = git.head()?;
    let branch = git.line(&["symbolic-ref", "--quiet", "--short", "HEAD"]);
    let of_branch = branch.as_ref().and_then(|branch| git.line(&["config", "--get", &format!("branch.{branch}.remote")]));
    let remote = git.line(&["config", "--get", &format!("remote.{}.url", of_branch.as_deref().unwrap_or("origin"))]);
    let on_remote =
        |commit: &String| git.line(&["for-each-ref", "--count=1", "--format=%(refname)", "--contains", commit, "refs/remotes"]).is_some();
    Ok(GitFacts {
        commit_on_remote: commit.as_ref().is_some_and(on_remote),
        remote: remote.map(|url| without_credentials(&url)),
        commit,
        branch,
        dirty: false,
    })
}

/// Which tracked paths differ from the commit; nothing when git could not tell.
fn changes(git: &Git) -> Result<Option<Vec<Vec<u8>>>, CaptureError> {
    let asked = git.ask(&["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty"]);
    let Ok(listed) = asked else { return Ok(None) };
    let paths = listed.split(|byte| *byte == 0).filter(|line| line.len() > 3);
    Ok(Some(paths.map(|line| line[3..].to_vec()).collect()))
}

/// Finds the files under the `lfs` filter, and which of them are pointers still.
fn lfs_files(git: &Git, prefix: &[u8], tracked: &[Tracked], listing: &Listing, survey: &mut Survey) -> Result<(), CaptureError> {
    let has_attributes = tracked.iter().any(|(path, _)| path.ends_with(b".gitattributes"))
        || git.top.join(".gitattributes").exists()
        || git.top.join(".git/info/attributes").exists();
    if !has_attributes {
        return Ok(());
    }
    let mut asked = Vec::new();
    for (path, _) in tracked.iter().filter(|(_, commit)| commit.is_none()) {
        asked.extend_from_slice(path);
        asked.push(0);
    }
    let answer = git.ask_about(&["check-attr", "-z", "--stdin", "filter"], &asked)?;
    let fields: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
    for triple in fields.chunks_exact(3).filter(|triple| triple[2] == b"lfs") {
        let full = [prefix, triple[0]].concat();
        let Some(Entry::File { bytes, .. }) = listing.entries.get(&full) else { continue };
        let pointer = *bytes < POINTER_BYTES_MAX && is_pointer(&git.top.join(path_of(triple[0])));
        survey.lfs.push(LfsFile { path: shown(&full), content: !pointer });
    }
    Ok(())
}

fn is_pointer(file: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(POINTER_HEAD.len() as u64).read_to_end(&mut head));
    read.is_ok() && head == POINTER_HEAD
}

/// A remote's URL without user name, password, query or fragment; the user of an ssh URL stays, since it is no secret.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // scp form (`git@host:path`) or a path: a password has no place there.
        return url.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) if scheme.ends_with("ssh") => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        Some((_, host)) => host.to_owned(),
        None => authority.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_never_stay_in_a_remote() {
        for (url, clean) in [
            ("https://u:pw@host/x.git", "https://host/x.git"),
            ("https://ghp_token@host/x.git?access_token=1#f", "https://host/x.git"),
            ("ssh://git:pw@host:22/x", "ssh://git@host:22/x"),
            ("git@host:team/x.git", "git@host:team/x.git"),
            ("/srv/x.git", "/srv/x.git"),
            ("https://u:p@ss@host/x", "https://host/x"),
        ] {
            assert_eq!(without_credentials(url), clean);
        }
    }
}
