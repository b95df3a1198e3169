//! The folder: what is staged there, and what happens when it is in the way.

use footplate_blobs::{
    BlobError, Blobs,
    conformance::{content, listed, pieces},
};
use futures::StreamExt;
use std::{fs, io, path::Path, time::Duration};

fn files(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { names.push(path.strip_prefix(folder).unwrap().display().to_string()) }
        }
    }
    names.sort();
    names
}

#[tokio::test]
async fn a_blob_lies_under_its_digest_for_anyone_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(folder.path()).unwrap();
    let blob = blobs.put_bytes("hello\n".into()).await.unwrap();
    let hex = blob.digest.to_string();
    let path = format!("blobs/sha256/{}/{}", &hex[..2], &hex[2..]);
    assert_eq!(files(folder.path()), std::slice::from_ref(&path));
    assert_eq!(fs::read(folder.path().join(path)).unwrap(), b"hello\n");
    assert_eq!(hex, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
}

#[tokio::test]
async fn what_killed_uploads_left_is_never_listed_and_is_swept_when_idle() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(folder.path()).unwrap();
    let blob = blobs.put_bytes("whole".into()).await.unwrap();
    let hex = blob.digest.to_string();
    let staged =
        [format!("blobs/sha256/{}/{}#1", &hex[..2], &hex[2..]), "blobs/staging/0123#7".to_owned(), "blobs/staging/4567".to_owned()];
    for name in &staged {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"half").unwrap();
    }
    assert_eq!(listed(&blobs).await, [blob]);
    assert_eq!(blobs.verify_all().await.unwrap(), []);
    assert_eq!(blobs.sweep_staged(Duration::from_secs(3_600)).await.unwrap(), 0, "an upload under way is left alone");
    assert_eq!(blobs.put_bytes("whole".into()).await.unwrap(), blob, "leftovers are not in the way");
    assert_eq!(blobs.sweep_staged(Duration::ZERO).await.unwrap(), 3);
    assert_eq!(files(folder.path()), [format!("blobs/sha256/{}/{}", &hex[..2], &hex[2..])]);
}

#[tokio::test]
async fn a_failed_upload_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(folder.path()).unwrap();
    let bytes = content(1, 20 << 20);
    for expected in [None, Some(footplate_types::Digest::of(&bytes))] {
        let broken = pieces(&bytes, 1 << 20).take(15).chain(futures::stream::iter([Err(io::Error::other("gone"))]));
        assert!(matches!(blobs.put_stream(broken, expected, u64::MAX).await, Err(BlobError::Source(_))));
    }
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("taken"), b"").unwrap();
    let refused = Blobs::local(&folder.path().join("taken")).unwrap_err();
    assert!(matches!(&refused, BlobError::Io { path, .. } if path.ends_with("taken")), "{refused}");
}
