//! A process killed in the middle of writing: what it was told is stored is stored, once.

use footplate_series::{
    SeriesStore,
    conformance::{Writer, points},
    embedded::Embedded,
};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

const FOLDER: &str = "FOOTPLATE_TEST_SERIES_FOLDER";

/// The process that is killed: goes on from what is stored and prints the number of each batch that is acknowledged. Does nothing when it
/// is run as a test.
#[test]
#[ignore = "started by the test below, in a process of its own"]
fn writes_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(Path::new(&folder)).unwrap();
        let mut writer = Writer::of("killed");
        writer.sequence = store.floor(writer.source.shard()).await.unwrap();
        writer.n = store.sessions(&writer.source).await.unwrap().first().map_or(0, |progress| progress.contiguous);
        loop {
            let from = writer.n as i64 * 50;
            writer.write(&store, &[("loss", points(from..from + 50)), ("lr", points(from..from + 50))]).await;
            println!("acknowledged {}", writer.n);
        }
    });
}

#[tokio::test]
async fn a_process_killed_while_writing_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..4u64 {
        acknowledged = write_and_kill(folder.path(), acknowledged + 3 + round * 5);
        let store = Embedded::open(folder.path()).unwrap();
        let writer = Writer::of("killed");
        let stored = store.sessions(&writer.source).await.unwrap()[0].contiguous;
        assert!(stored >= acknowledged, "batch {acknowledged} was acknowledged, {stored} are stored");
        for name in ["loss", "lr"] {
            assert_eq!(store.points(&writer.key(name)).await.unwrap(), points(0..stored as i64 * 50));
        }
        assert_eq!(store.floor(writer.source.shard()).await.unwrap(), stored);
    }
}

/// Starts the writer and kills it as soon as it has told of batch `until`; the last one it told of.
fn write_and_kill(folder: &Path, until: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writes_until_killed", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = 0;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    for line in lines.by_ref() {
        if let Some(n) = line.rsplit_once("acknowledged ").and_then(|(_, n)| n.parse().ok()) {
            last = n;
        }
        if last >= until {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let told = lines.filter_map(|line| line.rsplit_once("acknowledged ").and_then(|(_, n)| n.parse().ok())).last();
    last = told.unwrap_or(last);
    assert!(last >= until, "the writer ended by itself after batch {last}");
    last
}
