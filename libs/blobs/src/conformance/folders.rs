//! Folders in and out.

use super::{content, flip, listed};
use crate::{BlobError, Blobs, EntryKind, Existing, Manifest};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
};
use tempfile::tempdir;

const NAMES: [&str; 11] =
    ["图/轴.png", "a%b.txt", "x#1.bin", "t:0", "p q+r", "\u{e9}", "e\u{301}", ".hidden", "..a/b..", "deep/er/est/file", "<a>&\"b\"?*"];

/// Everything in a folder: kind, content or target, and whether it is a program.
fn seen(folder: &Path) -> BTreeMap<String, (String, Vec<u8>, bool)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let entry = entry.unwrap();
            let name = entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let meta = entry.metadata().unwrap();
            let what = if meta.is_dir() {
                folders.push(entry.path());
                ("folder".to_owned(), vec![], false)
            } else if meta.is_symlink() {
                ("link".to_owned(), fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec(), false)
            } else {
                ("file".to_owned(), fs::read(entry.path()).unwrap(), meta.permissions().mode() & 0o111 != 0)
            };
            all.insert(name, what);
        }
    }
    all
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub async fn a_folder_comes_back_equal_with_unusual_names_links_and_programs(blobs: &Blobs) {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    for name in NAMES {
        write(from.path(), name, name.as_bytes());
    }
    write(from.path(), "empty file", b"");
    write(from.path(), "large", &content(1, 20 << 20));
    write(from.path(), "bin/run", b"#!/bin/sh\n");
    fs::set_permissions(from.path().join("bin/run"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(from.path().join("empty/folder")).unwrap();
    std::os::unix::fs::symlink("../large", from.path().join("deep/link")).unwrap();
    std::os::unix::fs::symlink("nowhere", from.path().join("dangling")).unwrap();
    let uploaded = blobs.upload_dir(from.path(), Existing::Verify).await.unwrap();
    assert_eq!(uploaded.sent_files, uploaded.manifest.entries().iter().filter(|e| matches!(e.kind, EntryKind::File { .. })).count() as u64);
    assert_eq!(uploaded.sent_bytes, uploaded.manifest.total_bytes());
    let manifest = blobs.manifest(&uploaded.manifest_blob.digest).await.unwrap();
    assert_eq!(manifest, uploaded.manifest);
    blobs.download_dir(&manifest, &to.path().join("back")).await.unwrap();
    assert_eq!(seen(&to.path().join("back")), seen(from.path()));
    let again = blobs.upload_dir(&to.path().join("back"), Existing::Verify).await.unwrap();
    assert_eq!(again.manifest_blob, uploaded.manifest_blob);
    let none = tempdir().unwrap();
    let uploaded = blobs.upload_dir(none.path(), Existing::Verify).await.unwrap();
    blobs.download_dir(&uploaded.manifest, &to.path().join("none")).await.unwrap();
    assert_eq!(seen(&to.path().join("none")), BTreeMap::new());
}

pub async fn an_unchanged_or_renamed_folder_sends_nothing(blobs: &Blobs) {
    let folder = tempdir().unwrap();
    for at in 0..300 {
        write(folder.path(), &format!("data/{}/{at}", at % 7), &content(at, 500));
    }
    for existing in [Existing::Verify, Existing::TrustSize] {
        blobs.upload_dir(folder.path(), existing).await.unwrap();
        let again = blobs.upload_dir(folder.path(), existing).await.unwrap();
        assert_eq!((again.sent_files, again.sent_bytes), (0, 0));
    }
    for at in 0..10 {
        write(folder.path(), &format!("data/{}/{at}", at % 7), &content(at + 1_000, 500));
    }
    let changed = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    assert_eq!((changed.sent_files, changed.sent_bytes), (10, 5_000));
    fs::rename(folder.path().join("data"), folder.path().join("renamed")).unwrap();
    let renamed = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    assert_eq!((renamed.sent_files, renamed.manifest == changed.manifest), (0, false));
    let to = tempdir().unwrap();
    blobs.download_dir(&renamed.manifest, &to.path().join("back")).await.unwrap();
    assert_eq!(seen(&to.path().join("back")), seen(folder.path()));
}

pub async fn a_change_of_one_byte_or_one_bit_of_mode_is_noticed(blobs: &Blobs) {
    let folder = tempdir().unwrap();
    write(folder.path(), "a", b"width 8");
    let before = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    let modified = fs::metadata(folder.path().join("a")).unwrap().modified().unwrap();
    write(folder.path(), "a", b"width 9");
    fs::File::options().write(true).open(folder.path().join("a")).unwrap().set_modified(modified).unwrap();
    let after = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    assert_eq!(after.sent_files, 1, "same size, same time, other content");
    fs::set_permissions(folder.path().join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    assert_eq!(program.sent_files, 0);
    let manifests = [before.manifest_blob, after.manifest_blob, program.manifest_blob];
    assert!(manifests[0] != manifests[1] && manifests[1] != manifests[2]);
}

pub async fn uploading_a_folder_again_mends_what_was_damaged(blobs: &Blobs) {
    let (folder, to) = (tempdir().unwrap(), tempdir().unwrap());
    for at in 0..20 {
        write(folder.path(), &at.to_string(), &content(at, 2_000));
    }
    let uploaded = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    let victim = *uploaded.manifest.digests().iter().next().unwrap();
    flip(blobs, &victim).await;
    let failed = blobs.download_dir(&uploaded.manifest, &to.path().join("x")).await.unwrap_err();
    assert!(matches!(failed, BlobError::Damaged { digest, .. } if digest == victim), "{failed}");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "nothing half written is left");
    assert_eq!(blobs.verify_all().await.unwrap().iter().map(|damage| damage.digest).collect::<Vec<_>>(), [victim]);
    let again = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    assert_eq!((again.sent_files, again.manifest_blob), (1, uploaded.manifest_blob));
    assert_eq!(blobs.verify_all().await.unwrap(), []);
    blobs.download_dir(&uploaded.manifest, &to.path().join("x")).await.unwrap();
    assert_eq!(seen(&to.path().join("x")), seen(folder.path()));
}

pub async fn what_cannot_be_stored_is_refused_by_name_before_anything_is_sent(blobs: &Blobs) {
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 7] = [
        ("out", |folder| std::os::unix::fs::symlink("/etc/passwd", folder.join("out")).unwrap()),
        ("up", |folder| std::os::unix::fs::symlink("../other", folder.join("up")).unwrap()),
        ("sub/up", |folder| std::os::unix::fs::symlink("../../other", folder.join("sub/up")).unwrap()),
        ("line\nbreak", |folder| write(folder, "line\nbreak", b"x")),
        ("back\\slash", |folder| write(folder, "back\\slash", b"x")),
        ("bad\u{fffd}", |folder| fs::write(folder.join(OsStr::from_bytes(b"bad\xff")), b"x").unwrap()),
        ("socket", |folder| drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap())),
    ];
    for (name, spoil) in spoils {
        let folder = tempdir().unwrap();
        write(folder.path(), "sub/good", name.as_bytes());
        spoil(folder.path());
        let refused = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap_err();
        assert!(matches!(&refused, BlobError::Refused { path, .. } if path == name), "{name:?}: {refused}");
    }
    assert_eq!(listed(blobs).await, []);
    assert!(matches!(blobs.upload_dir(Path::new("/nonexistent/folder"), Existing::Verify).await, Err(BlobError::Io { .. })));
}

pub async fn a_download_appears_whole_or_not_at_all(blobs: &Blobs) {
    let (folder, to) = (tempdir().unwrap(), tempdir().unwrap());
    for at in 0..5 {
        write(folder.path(), &format!("d/{at}"), &content(at, 100));
    }
    let uploaded = blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap();
    // What a killed download leaves behind.
    let partial = to.path().join(".x.partial");
    write(&partial, "d/0", b"half");
    write(&partial, "stray", b"");
    let gone = *uploaded.manifest.digests().iter().next_back().unwrap();
    let bytes = blobs.get_bytes(&gone, 1_000).await.unwrap();
    blobs.delete(&gone).await.unwrap();
    let failed = blobs.download_dir(&uploaded.manifest, &to.path().join("x")).await.unwrap_err();
    assert!(matches!(failed, BlobError::NotFound { digest } if digest == gone));
    assert!(!to.path().join("x").exists() && !partial.exists());
    write(&partial, "d/0", b"half");
    blobs.put_bytes(bytes).await.unwrap();
    fs::create_dir(to.path().join("x")).unwrap();
    blobs.download_dir(&uploaded.manifest, &to.path().join("x")).await.unwrap();
    assert_eq!(seen(&to.path().join("x")), seen(folder.path()));
    assert!(!partial.exists());
}

pub async fn a_download_never_writes_over_what_is_there(blobs: &Blobs) {
    let to = tempdir().unwrap();
    let manifest = Manifest::new(vec![]).unwrap();
    write(to.path(), "full/file", b"mine");
    write(to.path(), "file", b"mine");
    for name in ["full", "file"] {
        let refused = blobs.download_dir(&manifest, &to.path().join(name)).await.unwrap_err();
        assert!(matches!(&refused, BlobError::Exists { path } if path.ends_with(name)), "{refused}");
    }
    assert_eq!(fs::read(to.path().join("full/file")).unwrap(), b"mine");
    let held = to.path().join(".busy.partial");
    fs::create_dir(&held).unwrap();
    let other = fs::File::open(&held).unwrap();
    other.lock().unwrap();
    assert!(matches!(blobs.download_dir(&manifest, &to.path().join("busy")).await, Err(BlobError::InUse { .. })));
    drop(other);
    blobs.download_dir(&manifest, &to.path().join("busy")).await.unwrap();
    assert!(blobs.download_dir(&manifest, Path::new("/")).await.is_err());
}
