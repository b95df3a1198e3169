//! Snapshots of real working trees. Each test makes its own folders; git runs with the hostile settings that a case names.

use flate2::read::GzDecoder;
use footplate_cli::capture::{self, CaptureError, DirtyRule, LfsRule, Mode, Request, Snapshot, SubmoduleRule, SubmoduleState};
use footplate_types::ByteSize;
use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn plain() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A repository with one commit of `train.py` and `conf/net.json`.
    fn repository() -> Self {
        let tree = Self::plain();
        tree.git(&["init", "-q", "-b", "main"]);
        tree.write("train.py", "print('hello')\n");
        tree.write("conf/net.json", "{\"width\": 8}\n");
        tree.git(&["add", "-A"]);
        tree.git(&["commit", "-q", "-m", "first"]);
        tree
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn git(&self, arguments: &[&str]) -> String {
        git_in(&self.path(), arguments)
    }

    fn request(&self) -> Request {
        Request::new(self.path(), self.path())
    }

    fn snapshot(&self) -> Snapshot {
        snapshot(&self.request())
    }
}

fn git_in(folder: &Path, arguments: &[&str]) -> String {
    let answer = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "protocol.file.allow=always", "-c", "safe.directory=*"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(answer.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&answer.stderr));
    String::from_utf8(answer.stdout).unwrap().trim().to_owned()
}

fn snapshot(request: &Request) -> Snapshot {
    capture::survey(request).unwrap().pack().unwrap()
}

/// The files of an archive: content, or `-> target` of a link; with a `*` behind the name when executable.
fn unpacked(snapshot: &Snapshot) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(snapshot.archive.path()).unwrap()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!((entry.header().uid().unwrap(), entry.header().mtime().unwrap()), (0, 0));
        let mut name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut content = Vec::new();
        match entry.link_name().unwrap() {
            Some(target) => content = format!("-> {}", target.display()).into_bytes(),
            None => {
                entry.read_to_end(&mut content).unwrap();
                if entry.header().mode().unwrap() & 0o100 != 0 {
                    name.push('*');
                }
            }
        }
        files.insert(name, content);
    }
    files
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    unpacked(snapshot).into_keys().collect()
}

/// Every byte below a folder, `.git` included.
fn bytes_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_symlink() {
                all.insert(path.clone(), fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes());
            } else {
                all.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    all
}

#[test]
fn changed_staged_untracked_and_executable_files_are_all_in_and_ignored_ones_are_not() {
    let tree = Tree::repository();
    tree.write(".gitignore", "*.ckpt\n");
    tree.write("model.ckpt", "weights");
    tree.write("train.py", "print('changed')\n");
    tree.write("staged.py", "s");
    tree.git(&["add", "staged.py"]);
    tree.write("new/bytes.bin", [0u8, 255, 10, 13]);
    tree.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(tree.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("train.py", tree.path().join("link.py")).unwrap();
    fs::remove_file(tree.path().join("conf/net.json")).unwrap();
    let snapshot = tree.snapshot();
    let files = unpacked(&snapshot);
    assert_eq!(files.keys().collect::<Vec<_>>(), [".gitignore", "link.py", "new/bytes.bin", "run.sh*", "staged.py", "train.py"]);
    assert_eq!(files["train.py"], b"print('changed')\n");
    assert_eq!(files["new/bytes.bin"], [0u8, 255, 10, 13]);
    assert_eq!(files["link.py"], b"-> train.py");
    let git = snapshot.plan.git.as_ref().unwrap();
    assert_eq!(git.commit.as_deref(), Some(tree.git(&["rev-parse", "HEAD"]).as_str()));
    assert_eq!((git.branch.as_deref(), git.dirty), (Some("main"), true));
    assert_eq!(snapshot.plan.untracked_files, 4);
}

#[test]
fn the_users_tree_index_stash_and_head_are_byte_equal_before_and_after() {
    let tree = Tree::repository();
    tree.write("train.py", "stash me\n");
    tree.git(&["stash", "-q"]);
    tree.write("train.py", "again\n");
    tree.write("intent.py", "i");
    tree.git(&["add", "-N", "intent.py"]);
    tree.write("loose.py", "l");
    let before = bytes_of(&tree.path());
    let snapshot = tree.snapshot();
    assert_eq!(bytes_of(&tree.path()), before);
    assert!(names(&snapshot).contains(&"intent.py".to_owned()));
}

#[test]
fn every_change_gives_another_tree_and_no_change_the_same_archive() {
    let tree = Tree::repository();
    symlink("train.py", tree.path().join("link")).unwrap();
    let first = tree.snapshot();
    let mtime = fs::metadata(tree.path().join("conf/net.json")).unwrap().modified().unwrap();
    tree.write("conf/net.json", "{\"width\": 9}\n");
    fs::File::options().write(true).open(tree.path().join("conf/net.json")).unwrap().set_modified(mtime).unwrap();
    let second = tree.snapshot();
    assert_ne!(first.tree, second.tree, "same size and time, other content");
    let third = tree.snapshot();
    assert_eq!((second.tree, second.archive.digest), (third.tree, third.archive.digest), "unchanged");
    let later = fs::File::options().write(true).open(tree.path().join("train.py")).unwrap();
    later.set_modified(mtime + Duration::from_secs(1000)).unwrap();
    assert_eq!(tree.snapshot().archive.digest, third.archive.digest, "only touched");
    fs::set_permissions(tree.path().join("train.py"), fs::Permissions::from_mode(0o755)).unwrap();
    let executable = tree.snapshot();
    assert_ne!(third.tree, executable.tree, "executable bit");
    fs::remove_file(tree.path().join("link")).unwrap();
    symlink("conf", tree.path().join("link")).unwrap();
    assert_ne!(executable.tree, tree.snapshot().tree, "link led elsewhere");
}

#[test]
fn a_clean_tree_is_known_as_clean_and_may_be_demanded() {
    let tree = Tree::repository();
    let demand = Request { dirty: DirtyRule::Refuse, ..tree.request() };
    assert!(!snapshot(&demand).plan.git.unwrap().dirty);
    tree.write("extra.py", "");
    assert!(matches!(capture::survey(&demand), Err(CaptureError::Dirty { .. })));
    fs::remove_file(tree.path().join("extra.py")).unwrap();
    tree.write("train.py", "print('other')\n");
    let Err(CaptureError::Dirty { paths }) = capture::survey(&demand) else { panic!("a changed file was not seen") };
    assert_eq!(paths, ["train.py"]);
}

#[test]
fn hostile_settings_of_the_user_and_the_repository_change_nothing() {
    let tree = Tree::repository();
    let calm = tree.snapshot();
    for (key, value) in [
        ("diff.noprefix", "true"),
        ("color.ui", "always"),
        ("core.autocrlf", "true"),
        ("core.fsmonitor", "touch fsmonitor-ran; false"),
        ("core.hooksPath", "hooks"),
        ("core.quotePath", "true"),
        ("status.showUntrackedFiles", "no"),
        ("status.relativePaths", "false"),
        ("core.excludesFile", "/nonexistent"),
    ] {
        tree.git(&["config", key, value]);
    }
    tree.write(".git/hooks/post-index-change", "#!/bin/sh\ntouch hook-ran\n");
    fs::set_permissions(tree.path().join(".git/hooks/post-index-change"), fs::Permissions::from_mode(0o755)).unwrap();
    let hostile = tree.snapshot();
    assert_eq!((hostile.tree, hostile.archive.digest), (calm.tree, calm.archive.digest));
    assert!(!tree.path().join("fsmonitor-ran").exists() && !tree.path().join("hook-ran").exists());
    tree.write("täst\n\"q\".py", "x");
    assert!(names(&tree.snapshot()).contains(&"täst\n\"q\".py".to_owned()));
}

#[test]
fn a_folder_without_git_is_walked_with_its_ignore_files_and_the_default_excludes() {
    let tree = Tree::plain();
    tree.write("train.py", "x");
    tree.write(".gitignore", "out/\n");
    tree.write("out/model.bin", "m");
    tree.write("sub/.footplateignore", "*.tmp\n");
    tree.write("sub/a.tmp", "t");
    tree.write("sub/keep.py", "k");
    tree.write("__pycache__/train.pyc", "p");
    tree.write(".venv/lib/x.py", "v");
    let snapshot = tree.snapshot();
    assert_eq!(names(&snapshot), [".gitignore", "sub/.footplateignore", "sub/keep.py", "train.py"]);
    assert!(snapshot.plan.git.is_none());
    let demand = Request { mode: Mode::Git, ..tree.request() };
    assert!(matches!(capture::survey(&demand), Err(CaptureError::NoRepository { .. })));
}

#[test]
fn a_repository_before_its_first_commit_is_captured() {
    let tree = Tree::plain();
    tree.git(&["init", "-q", "-b", "main"]);
    tree.write("train.py", "x");
    let snapshot = tree.snapshot();
    let git = snapshot.plan.git.as_ref().unwrap();
    assert_eq!(
        (names(&snapshot), git.commit.clone(), git.branch.as_deref(), git.dirty),
        (vec!["train.py".to_owned()], None, Some("main"), true)
    );
}

#[test]
fn a_shallow_clone_a_linked_worktree_and_a_detached_head_are_captured() {
    let origin = Tree::repository();
    origin.write("train.py", "2");
    origin.git(&["commit", "-q", "-am", "second"]);
    let place = Tree::plain();
    let url = format!("file://{}", origin.path().display());
    place.git(&["clone", "-q", "--depth", "1", &url, "shallow"]);
    let shallow = snapshot(&Request::new(place.path().join("shallow"), place.path().join("shallow")));
    let git = shallow.plan.git.as_ref().unwrap();
    assert!(git.commit_on_remote && !git.dirty);
    assert_eq!(git.remote.as_deref(), Some(url.as_str()));
    origin.git(&["worktree", "add", "-q", "--detach", place.path().join("linked").to_str().unwrap(), "HEAD~1"]);
    let linked = snapshot(&Request::new(place.path().join("linked"), place.path().join("linked")));
    let git = linked.plan.git.as_ref().unwrap();
    assert_eq!((git.branch.clone(), git.commit.as_deref()), (None, Some(origin.git(&["rev-parse", "HEAD~1"]).as_str())));
    assert_eq!(unpacked(&linked)["train.py"], b"print('hello')\n");
    assert!(!names(&linked).contains(&".git".to_owned()));
}

#[test]
fn from_a_subfolder_the_whole_repository_is_captured_and_the_place_kept() {
    let tree = Tree::repository();
    let inside = snapshot(&Request::new(tree.path().join("conf"), tree.path().join("conf")));
    assert_eq!((inside.plan.cwd.as_str(), names(&inside)), ("conf", vec!["conf/net.json".to_owned(), "train.py".to_owned()]));
    fs::create_dir_all(tree.path().join("empty/here")).unwrap();
    let empty = snapshot(&Request::new(tree.path().join("empty/here"), tree.path()));
    assert_eq!((empty.plan.cwd.as_str(), empty.tree), ("empty/here", inside.tree));
    assert!(unpacked(&empty).keys().any(|name| name.starts_with("empty/here")), "the run would have no folder to start in");
    let elsewhere = snapshot(&Request::new("/tmp", tree.path()));
    assert_eq!((elsewhere.plan.cwd.as_str(), elsewhere.tree), ("", inside.tree));
    let alone = snapshot(&Request { mode: Mode::Folder, ..Request::new("/tmp", tree.path().join("conf")) });
    assert_eq!(names(&alone), ["net.json"]);
}

#[test]
fn a_folder_of_another_owner_is_captured_and_its_filters_do_not_run() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give a folder away");
        return;
    }
    let tree = Tree::repository();
    tree.write(".gitattributes", "*.py filter=evil\n");
    let mark = tree.path().join("filter-ran");
    tree.git(&["config", "filter.evil.clean", &format!("touch {}; cat", mark.display())]);
    tree.write("train.py", "print('other')\n");
    for path in bytes_of(&tree.path()).keys() {
        std::os::unix::fs::lchown(path, Some(12345), Some(12345)).unwrap();
    }
    std::os::unix::fs::lchown(tree.path(), Some(12345), Some(12345)).unwrap();
    std::os::unix::fs::lchown(tree.path().join(".git"), Some(12345), Some(12345)).unwrap();
    let snapshot = tree.snapshot();
    assert_eq!(unpacked(&snapshot)["train.py"], b"print('other')\n");
    assert!(snapshot.plan.git.as_ref().unwrap().commit.is_some());
    assert!(!mark.exists(), "a foreign repository's filter ran");
}

#[test]
fn submodules_inside_submodules_come_with_their_edits_and_untracked_files() {
    let (outer, middle, inner) = (Tree::repository(), Tree::repository(), Tree::repository());
    inner.write("deep.py", "deep");
    inner.git(&["add", "-A"]);
    inner.git(&["commit", "-q", "-m", "deep"]);
    middle.git(&["submodule", "--quiet", "add", inner.path().to_str().unwrap(), "inner"]);
    middle.git(&["commit", "-q", "-m", "inner"]);
    outer.git(&["submodule", "--quiet", "add", middle.path().to_str().unwrap(), "libs/middle"]);
    outer.git(&["submodule", "--quiet", "update", "--init", "--recursive"]);
    outer.git(&["commit", "-q", "-m", "middle"]);
    let clean = outer.snapshot();
    assert!(!clean.plan.git.as_ref().unwrap().dirty);
    assert_eq!(
        clean.plan.submodules.iter().map(|s| (s.path.as_str(), s.state)).collect::<Vec<_>>(),
        [("libs/middle", SubmoduleState::Pinned), ("libs/middle/inner", SubmoduleState::Pinned)]
    );
    let pinned = Request { submodules: SubmoduleRule::Pinned, ..outer.request() };
    assert!(capture::survey(&pinned).is_ok());
    outer.write("libs/middle/inner/deep.py", "edited");
    outer.write("libs/middle/inner/new.py", "new");
    let before = bytes_of(&outer.path());
    let snapshot = outer.snapshot();
    assert_eq!(bytes_of(&outer.path()), before);
    let files = unpacked(&snapshot);
    assert_eq!(
        (files["libs/middle/inner/deep.py"].as_slice(), files["libs/middle/inner/new.py"].as_slice()),
        (&b"edited"[..], &b"new"[..])
    );
    assert!(snapshot.plan.git.as_ref().unwrap().dirty);
    assert!(snapshot.plan.submodules.iter().all(|submodule| submodule.state == SubmoduleState::Changed));
    assert!(matches!(capture::survey(&pinned), Err(CaptureError::Submodules { .. })));
    let without = capture::survey(&Request { submodules: SubmoduleRule::Ignore, ..outer.request() }).unwrap();
    assert!(without.paths().all(|path| !path.starts_with("libs/")));
}

#[test]
fn a_submodule_that_is_not_checked_out_is_marked_and_told() {
    let (outer, inner, place) = (Tree::repository(), Tree::repository(), Tree::plain());
    outer.git(&["submodule", "--quiet", "add", inner.path().to_str().unwrap(), "inner"]);
    outer.git(&["commit", "-q", "-m", "inner"]);
    place.git(&["clone", "-q", outer.path().to_str().unwrap(), "clone"]);
    let plan = capture::survey(&Request::new(place.path().join("clone"), place.path().join("clone"))).unwrap();
    assert_eq!(plan.submodules[0].state, SubmoduleState::Absent);
    assert!(plan.warnings.iter().any(|warning| warning.contains("inner")), "{:?}", plan.warnings);
}

#[test]
fn an_unregistered_repository_inside_is_captured_with_its_files() {
    let tree = Tree::repository();
    fs::create_dir(tree.path().join("vendored")).unwrap();
    git_in(&tree.path().join("vendored"), &["init", "-q"]);
    tree.write("vendored/v.py", "v");
    let snapshot = tree.snapshot();
    assert!(names(&snapshot).contains(&"vendored/v.py".to_owned()));
    assert_eq!(snapshot.plan.submodules[0].pinned, None);
}

#[test]
fn lfs_files_are_recorded_as_content_or_pointer() {
    let tree = Tree::repository();
    tree.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    tree.write("a.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n");
    tree.write("b.bin", vec![7u8; 5000]);
    tree.git(&["add", "-A"]);
    tree.git(&["commit", "-q", "-m", "lfs"]);
    let plan = capture::survey(&tree.request()).unwrap();
    assert_eq!(plan.lfs.iter().map(|file| (file.path.as_str(), file.content)).collect::<Vec<_>>(), [("a.bin", false), ("b.bin", true)]);
    assert!(plan.warnings.iter().any(|warning| warning.contains("a.bin")));
    let demand = Request { lfs: LfsRule::Require, ..tree.request() };
    assert!(matches!(capture::survey(&demand), Err(CaptureError::LfsPointers { paths }) if paths == ["a.bin"]));
}

#[test]
fn links_that_lead_outside_are_refused_by_name_and_an_ignore_line_cures_it() {
    let tree = Tree::repository();
    symlink("/etc/passwd", tree.path().join("abs")).unwrap();
    symlink("../../secret", tree.path().join("conf/up")).unwrap();
    let Err(CaptureError::LinksOutside { links, .. }) = capture::survey(&tree.request()) else { panic!("not refused") };
    assert_eq!(links, ["abs -> /etc/passwd", "conf/up -> ../../secret"]);
    tree.write(".footplateignore", "abs\nconf/up\n");
    assert_eq!(names(&tree.snapshot()), [".footplateignore", "conf/net.json", "train.py"]);
}

#[test]
fn an_ignore_file_of_ours_holds_below_its_folder_for_tracked_and_untracked_files() {
    let tree = Tree::repository();
    tree.write("conf/.footplateignore", "*.json\nlocal/\n");
    tree.write("conf/local/x", "x");
    tree.write("conf/keep.yaml", "k");
    tree.write("other.json", "o");
    assert_eq!(names(&tree.snapshot()), ["conf/.footplateignore", "conf/keep.yaml", "other.json", "train.py"]);
}

#[test]
fn nothing_behind_a_linked_folder_is_taken() {
    let (tree, outside) = (Tree::repository(), Tree::plain());
    outside.write("net.json", "stolen");
    fs::remove_dir_all(tree.path().join("conf")).unwrap();
    symlink(outside.path(), tree.path().join("conf")).unwrap();
    tree.write(".footplateignore", "/conf\n");
    assert_eq!(names(&tree.snapshot()), [".footplateignore", "train.py"]);
}

#[test]
fn secrets_are_refused_tracked_or_not_unless_allowed_by_name() {
    let tree = Tree::repository();
    tree.write(".env", "TOKEN=abc");
    tree.write("certs/ca.pem", "public");
    tree.git(&["add", "certs/ca.pem"]);
    let Err(error) = capture::survey(&tree.request()) else { panic!("not refused") };
    let told = error.to_string();
    assert!(told.contains(".env") && told.contains("certs/ca.pem") && told.contains("source.allow") && !told.contains("abc"), "{told}");
    tree.write(".gitignore", ".env\n");
    let allowed = Request { allow: vec!["certs/ca.pem".to_owned()], ..tree.request() };
    assert!(names(&snapshot(&allowed)).contains(&"certs/ca.pem".to_owned()));
}

#[test]
fn forty_thousand_untracked_files_are_refused_in_five_seconds_with_the_folder_and_the_cure() {
    let tree = Tree::repository();
    for folder in 0..40 {
        let folder = tree.path().join(format!("tmp/cache/{folder:02}"));
        fs::create_dir_all(&folder).unwrap();
        for number in 0..1000 {
            // Sparse, so that the test costs little: sizes are read, contents are not.
            fs::File::create(folder.join(format!("{number}.bin"))).unwrap().set_len(3000).unwrap();
        }
    }
    // What lies in .git does not count.
    fs::File::create(tree.path().join(".git/objects/big")).unwrap().set_len(300 << 20).unwrap();
    let began = Instant::now();
    let Err(CaptureError::TooMuchUntracked(refusal)) = capture::survey(&tree.request()) else { panic!("not refused") };
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(refusal.folders[0].path, "tmp/cache/");
    assert_eq!(refusal.limit, ByteSize(50 << 20));
    if refusal.complete {
        assert_eq!((refusal.files, refusal.bytes), (40_000, 120_000_000));
    }
    let told = refusal.to_string();
    assert!(told.contains("`tmp/cache/`") && told.contains("max_untracked"), "{told}");
    tree.write(".footplateignore", "tmp/cache/\n");
    assert_eq!(capture::survey(&tree.request()).unwrap().files(), 3);
}

#[test]
fn a_missing_folder_and_a_bare_repository_are_told() {
    let tree = Tree::plain();
    assert!(matches!(capture::survey(&Request::new("/tmp", tree.path().join("nope"))), Err(CaptureError::NoFolder { .. })));
    tree.git(&["init", "-q", "--bare"]);
    assert!(matches!(capture::survey(&tree.request()), Err(CaptureError::Bare { .. })));
}

#[test]
fn long_paths_and_names_that_are_not_utf_8_survive() {
    use std::os::unix::ffi::OsStrExt as _;
    let tree = Tree::repository();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    tree.write(&long, "long");
    fs::write(tree.path().join(std::ffi::OsStr::from_bytes(b"\xff.py")), "bytes").unwrap();
    let snapshot = tree.snapshot();
    assert_eq!(unpacked(&snapshot)[&long], b"long");
    assert_eq!(snapshot.plan.files(), 4);
}
