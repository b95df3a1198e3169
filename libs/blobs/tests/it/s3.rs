//! A bucket of a real S3 server: what is killed, what is large.

use bytes::Bytes;
use footplate_blobs::{
    BlobError, Blobs, BucketFault, Fetched, S3Options,
    conformance::{content, flip, listed, pieces},
};
use footplate_testkit::{S3Server, eventually, files_below, s3};
use footplate_types::Digest;
use futures::{StreamExt, stream};
use std::{
    fs, io,
    path::Path,
    process::Command,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Mutex;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const ENDPOINT: &str = "FOOTPLATE_TEST_S3_ENDPOINT";

/// How a bucket of this server is reached; what fails is told soon.
pub(crate) fn options(server: &S3Server, bucket: &str) -> S3Options {
    let mut options = S3Options::parse(&format!("s3://{bucket}/team/vision")).unwrap();
    options.endpoint = Some(server.endpoint());
    options.key = Some(server.key());
    options.allow_http = true;
    options.retry_for = Duration::from_secs(1);
    options
}

/// A server of its own, with one bucket.
pub(crate) async fn own_server() -> (S3Server, Blobs) {
    let server = s3().await;
    server.make_bucket("models");
    let blobs = Blobs::s3(&options(&server, "models")).unwrap();
    (server, blobs)
}

/// A bucket of its own, on the server that the tests of the suite share.
pub(crate) async fn in_a_bucket() -> (Arc<S3Server>, Blobs) {
    static SHARED: Mutex<Weak<S3Server>> = Mutex::const_new(Weak::new());
    static BUCKETS: AtomicUsize = AtomicUsize::new(0);
    let mut shared = SHARED.lock().await;
    let server = match shared.upgrade() {
        Some(server) => server,
        None => Arc::new(s3().await),
    };
    *shared = Arc::downgrade(&server);
    let bucket = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
    server.make_bucket(&bucket);
    let blobs = Blobs::s3(&options(&server, &bucket)).unwrap();
    (server, blobs)
}

/// The names of what lies in the bucket, without what the server keeps for itself.
fn objects(server: &S3Server, bucket: &str) -> Vec<String> {
    files_below(&server.bucket(bucket)).into_iter().filter(|name| !name.starts_with(".sgwtmp")).collect()
}

#[tokio::test]
async fn a_blob_lies_under_its_digest_below_the_prefix_for_anyone_to_check() {
    let (server, blobs) = own_server().await;
    let blob = blobs.put_bytes("hello\n".into()).await.unwrap();
    let hex = blob.digest.to_string();
    let path = format!("team/vision/blobs/sha256/{}/{}", &hex[..2], &hex[2..]);
    assert_eq!(objects(&server, "models"), std::slice::from_ref(&path));
    assert_eq!(fs::read(server.bucket("models").join(path)).unwrap(), b"hello\n");
    let other = Blobs::s3(&options(&server, "models")).unwrap();
    assert_eq!(listed(&other).await, [blob]);
}

#[tokio::test]
async fn a_server_killed_in_the_middle_of_an_upload_costs_nothing_but_what_was_on_its_way() {
    let (server, blobs) = own_server().await;
    let bytes = content(1, 60 * MIB);
    let digest = Digest::of(&bytes);
    for announced in [Some(digest), None] {
        let (half, reached) = tokio::sync::oneshot::channel();
        let (go_on, told) = tokio::sync::oneshot::channel::<()>();
        // The source waits in the middle until the server is dead.
        let stall = stream::once(async move {
            half.send(()).unwrap();
            told.await.map_err(io::Error::other)?;
            Ok(Bytes::new())
        });
        let source = pieces(&bytes, MIB).take(50).chain(stall).chain(pieces(&bytes, MIB).skip(50));
        let uploading = blobs.put_stream(source, announced, u64::MAX);
        let killing = async {
            reached.await.unwrap();
            server.kill9().await.unwrap();
            go_on.send(()).unwrap();
        };
        let (failed, ()) = tokio::join!(uploading, killing);
        assert!(matches!(failed, Err(BlobError::Bucket { fault: BucketFault::Away, .. })), "{failed:?}");
        server.restart().await.unwrap();
        assert_eq!(listed(&blobs).await, []);
    }
    let blob = blobs.put_stream(pieces(&bytes, MIB), Some(digest), u64::MAX).await.unwrap();
    assert_eq!(blobs.verify(&digest).await.unwrap(), blob);
    // The one without a digest could not be gone on with: it is swept.
    assert_eq!(objects(&server, "models").iter().filter(|name| name.contains("/uploads/")).count(), 1);
    assert_eq!(blobs.sweep_staged(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(objects(&server, "models").len(), 1);
}

#[tokio::test]
async fn a_right_object_is_not_written_again_and_a_damaged_one_is_mended() {
    let (server, blobs) = own_server().await;
    let bytes = content(2, MIB);
    let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
    let lies = server.bucket("models").join(&objects(&server, "models")[0]);
    let written = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&lies).unwrap());
    let before = written();
    blobs.put_bytes(bytes.clone()).await.unwrap();
    assert_eq!(written(), before);
    flip(&blobs, &blob.digest).await;
    blobs.put_bytes(bytes).await.unwrap();
    assert_eq!(blobs.verify(&blob.digest).await.unwrap(), blob);
}

#[tokio::test]
async fn a_fetch_goes_on_from_what_is_there_and_never_trusts_it() {
    let (_server, blobs) = own_server().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(3, 20 * MIB);
    let blob = blobs.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap();
    let (file, partial) = (folder.path().join("w"), folder.path().join(".w.partial"));
    let mut wrong = bytes[..5 * MIB].to_vec();
    wrong[7] ^= 1;
    for (left, kept) in [(&bytes[..0], 0), (&bytes[..7 * MIB], 7 * MIB), (&bytes[..], 20 * MIB), (&wrong, 5 * MIB)] {
        fs::write(&partial, left).unwrap();
        assert_eq!(blobs.fetch_file(&blob.digest, &file).await.unwrap(), Fetched { blob, kept_bytes: kept as u64 });
        assert!(fs::read(&file).unwrap() == bytes && !partial.exists());
        assert!(matches!(blobs.fetch_file(&blob.digest, &file).await, Err(BlobError::Exists { .. })));
        fs::remove_file(&file).unwrap();
    }
    let bent = flip(&blobs, &blob.digest).await;
    let damaged = blobs.fetch_file(&blob.digest, &file).await.unwrap_err();
    assert!(matches!(damaged, BlobError::Damaged { digest, found } if digest == blob.digest && found == bent));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing of it is left");
    let missing = Digest::of(b"never stored");
    assert!(matches!(blobs.fetch_file(&missing, &file).await, Err(BlobError::NotFound { digest }) if digest == missing));
}

#[tokio::test]
async fn a_server_killed_in_the_middle_of_a_fetch_is_waited_for_and_the_fetch_goes_on() {
    let (server, blobs) = own_server().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(4, 160 * MIB);
    let digest = blobs.put_stream(pieces(&bytes, MIB), Some(Digest::of(&bytes)), u64::MAX).await.unwrap().digest;
    let file = folder.path().join("w");
    let partial = folder.path().join(".w.partial");
    let killing = async {
        let grown = || async { fs::metadata(&partial).is_ok_and(|meta| meta.len() > 0).then_some(()) };
        eventually(PATIENCE, "the fetch has begun", grown).await;
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
    };
    let (fetched, ()) = tokio::join!(blobs.fetch_file(&digest, &file), killing);
    assert_eq!(fetched.unwrap().blob.bytes, bytes.len() as u64);
    assert!(fs::read(&file).unwrap() == bytes);
}

const LARGE: usize = 320 * MIB;

/// The process whose memory is looked at.
#[test]
#[ignore = "started by the test below, in a process of its own"]
fn moves_a_large_object() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut options = S3Options::parse("s3://models").unwrap();
    options.endpoint = Some(endpoint);
    options.key = Some((std::env::var("S3_KEY").unwrap(), std::env::var("S3_SECRET").unwrap()));
    options.allow_http = true;
    let blobs = Blobs::s3(&options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // The pieces differ, and are made as they are asked for.
        let piece = |at: usize| Ok(content(at as u64, MIB));
        let blob = blobs.put_stream(stream::iter((0..LARGE / MIB).map(piece)), None, u64::MAX).await.unwrap();
        assert_eq!(blob.bytes, LARGE as u64);
        blobs.fetch_file(&blob.digest, &folder.path().join("large")).await.unwrap();
    });
    println!("peak {}", peak_bytes());
}

/// The most memory that this process has had resident.
fn peak_bytes() -> usize {
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn a_large_object_goes_and_comes_in_constant_memory() {
    let (server, _) = own_server().await;
    let (key, secret) = server.key();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "s3::moves_a_large_object", "--ignored", "--nocapture"]);
    command.env(ENDPOINT, server.endpoint()).env("S3_KEY", key).env("S3_SECRET", secret);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let peak: usize = told.split("peak ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(peak < LARGE / 2, "{} MiB", peak / MIB);
}

/// Passes connections on to `server`; the first one is reset when a request has come over it. Gives its own address.
async fn cutting_the_first(server: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut client, _)) = listener.accept().await else { return };
            if number == 0 {
                let mut begun = [0; 64 << 10];
                let _ = tokio::io::AsyncReadExt::read(&mut client, &mut begun).await;
                // Reset rather than closed.
                client.set_zero_linger().unwrap();
                continue;
            }
            let server = server.clone();
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address.to_string()
}

#[tokio::test]
async fn a_put_whose_connection_breaks_is_put_all_the_same() {
    let (server, blobs) = own_server().await;
    let direct = server.endpoint();
    let through = cutting_the_first(direct.trim_start_matches("http://").to_owned()).await;
    let mut options = options(&server, "models");
    options.endpoint = Some(format!("http://{through}"));
    let cut = Blobs::s3(&options).unwrap();
    let blob = cut.put_bytes("hello\n".into()).await.unwrap();
    assert_eq!(listed(&blobs).await, [blob]);
}
