//! A process killed in the middle of an upload or a download.

use footplate_blobs::{
    Blobs, Existing,
    conformance::{content, listed, pieces},
};
use footplate_types::Digest;
use futures::StreamExt;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const FOLDER: &str = "FOOTPLATE_TEST_BLOBS_FOLDER";
const MIB: usize = 1 << 20;
const SIZE: usize = 10 * MIB;

/// The process that is killed: uploads the same blobs over and over, small, large, announced and not, and prints each piece that is taken
/// and each blob that is acknowledged.
#[test]
#[ignore = "started by the test below, in a process of its own"]
fn uploads_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let blobs = Blobs::local(&Path::new(&folder).join("objects")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for seed in 0.. {
            let bytes = content(seed % 4, if seed % 2 == 0 { SIZE } else { MIB });
            let digest = Digest::of(&bytes);
            let pieces = pieces(&bytes, MIB).inspect(|_| println!("piece"));
            blobs.put_stream(pieces, (seed % 4 < 2).then_some(digest), u64::MAX).await.unwrap();
            println!("acknowledged {digest}");
        }
    });
}

/// The process that is killed: downloads the uploaded folder into ever new places and prints each that it has finished.
#[test]
#[ignore = "started by the test below, in a process of its own"]
fn downloads_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let blobs = Blobs::local(&folder.join("objects")).unwrap();
    let manifest = fs::read_to_string(folder.join("manifest")).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let manifest = blobs.manifest(&manifest).await.unwrap();
        for place in 0.. {
            let dest = folder.join(format!("to/{place}"));
            if !dest.exists() {
                blobs.download_dir(&manifest, &dest).await.unwrap();
            }
            println!("acknowledged {place}");
        }
    });
}

/// One of the above, under way.
struct Killed {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    told: Vec<String>,
}

impl Killed {
    fn start(which: &str, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", which, "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        Self { child, lines: Box::new(lines), told: Vec::new() }
    }

    /// Reads its lines until `count` of them speak of `what`.
    fn read_until(&mut self, what: &str, count: usize) {
        while self.told.iter().filter(|line| line.contains(what)).count() < count {
            self.told.push(self.lines.next().expect("the process goes on until it is killed"));
        }
    }

    /// Kills it; everything that it acknowledged.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.told.extend(self.lines);
        self.told.iter().filter_map(|line| line.rsplit_once("acknowledged ")).map(|(_, what)| what.to_owned()).collect()
    }
}

#[tokio::test]
async fn a_killed_upload_leaves_whole_objects_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(&folder.path().join("objects")).unwrap();
    for pieces in [1, 6, 10, 11, 16, 22, 28] {
        let mut killed = Killed::start("crash::uploads_until_killed", folder.path());
        killed.read_until("piece", pieces);
        let told = killed.kill();
        assert_eq!(blobs.verify_all().await.unwrap(), [], "what is listed is whole");
        for digest in told {
            blobs.verify(&digest.parse().unwrap()).await.unwrap();
        }
    }
    for seed in 0..4 {
        let bytes = content(seed, if seed % 2 == 0 { SIZE } else { MIB });
        blobs.put_bytes(bytes).await.unwrap();
    }
    assert_eq!(listed(&blobs).await.len(), 4, "the same uploads end equal afterwards");
}

/// Waits until a download under way has written this many files.
fn wait_for_files(to: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().collect::<Vec<_>>();
    let is_partial = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".partial");
    while !entries(to).iter().any(|place| is_partial(place) && entries(&place.path()).len() >= count) {
        assert!(Instant::now() < deadline, "no download under way has written {count} files");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[tokio::test]
async fn a_killed_download_leaves_whole_folders_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    for seed in 0..40 {
        fs::write(from.join(seed.to_string()), content(seed, MIB / 4)).unwrap();
    }
    let blobs = Blobs::local(&folder.path().join("objects")).unwrap();
    let uploaded = blobs.upload_dir(&from, Existing::Verify).await.unwrap();
    fs::write(folder.path().join("manifest"), uploaded.manifest_blob.digest.to_string()).unwrap();
    for round in 0..5 {
        let mut killed = Killed::start("crash::downloads_until_killed", folder.path());
        killed.read_until("acknowledged", 2 * round);
        wait_for_files(&folder.path().join("to"), 1 + 9 * round);
        let done = killed.kill();
        for place in done {
            assert!(folder.path().join("to").join(&place).exists(), "folder {place} was acknowledged");
        }
        let places = fs::read_dir(folder.path().join("to")).into_iter().flatten().map(|entry| entry.unwrap().path());
        for place in places.filter(|place| !place.file_name().unwrap().to_str().unwrap().starts_with('.')) {
            let again = blobs.upload_dir(&place, Existing::TrustSize).await.unwrap();
            assert_eq!(again.manifest_blob, uploaded.manifest_blob, "{} is whole", place.display());
        }
    }
}
