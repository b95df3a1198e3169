//! A platform whose ended runs leave the broker: its views, its lineage and its history are what they were, and such a run takes writes as before.

use crate::bucket;
use crate::up::Up;
use footplate_testkit::{files_below, s3};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Segments of a few events, and a run leaves as soon as it has ended.
fn settings(admin: u16, keep: &str) -> Vec<(&'static str, String)> {
    vec![
        ("archive.keep-events", "12".to_owned()),
        ("archive.segment", "1KiB".to_owned()),
        ("archive.every", "200ms".to_owned()),
        ("archive.announce", "0s".to_owned()),
        ("ledger.keep", keep.to_owned()),
        ("admin.listen", format!("127.0.0.1:{admin}")),
    ]
}

fn figure(admin: u16, name: &str) -> u64 {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", admin)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find(|line| !line.starts_with('#') && line.contains(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}:\n{page}"))
}

fn until(up: &Up, what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}\n{}", up.process.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn job(up: &Up, key: &str) -> String {
    up.done(&["submit", "-q", "--wait", "--no-source", "--request-id", key, "--", "sh", "-c", "echo hi"]).trim().to_owned()
}

/// What is said of a run, but for the moment at which it is asked.
fn told(up: &Up, run: &str) -> (serde_json::Value, serde_json::Value, serde_json::Value) {
    let mut lineage = up.json(&["lineage", run]);
    if let Some(lineage) = lineage.as_object_mut() {
        lineage.remove("viewSequence");
    }
    let events = up.done(&["event", "tail", "-n", "100", "--run", run, "-o", "json"]);
    (up.json(&["run", "show", run]), lineage, serde_json::Value::String(events))
}

#[test]
fn a_run_whose_events_have_left_the_broker_is_what_it_was() {
    left_and_what_it_was(&[]);
}

#[test]
fn segments_in_a_bucket_are_made_once_and_read_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(s3());
    server.make_bucket("models");
    left_and_what_it_was(&bucket::settings(&server));
    let lies = files_below(&server.bucket("models"));
    assert!(lies.iter().filter(|name| name.contains("/ledger/") && !name.contains("/gone/")).count() > 4, "{lies:?}");
    assert!(lies.iter().any(|name| name.contains("/ledger/") && name.contains("/gone/")), "{lies:?}");
}

/// Runs, archives, lets go, starts again with nothing but the ledger; `more` says where the objects are.
fn left_and_what_it_was(more: &[(&'static str, String)]) {
    let admin = crate::up::free_port();
    let with = |keep: &str| settings(admin, keep).into_iter().chain(more.iter().cloned()).collect::<Vec<_>>();
    let mut up = Up::start(&with("0s"));
    let run = job(&up, "the-first");
    for number in 0..3 {
        job(&up, &format!("later-{number}"));
    }
    until(&up, "segments", || figure(admin, "archived_segments") > 3);
    assert_eq!(figure(admin, "gone_events"), 0, "off by default");
    let before = told(&up, &run);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(up.process.terminate(PATIENCE)).unwrap();

    up.restart(&with("1s"));
    until(&up, "events to leave", || figure(admin, "gone_aggregates") >= 3);
    // Named, and removed: `up` may, where it is told to.
    until(&up, "events to be removed", || up.process.stderr().contains("ended aggregates have left the broker"));
    up.done(&["replay", "--verify"]);
    assert_eq!(told(&up, &run), before);

    // Started again with nothing but the ledger: segments, then the stream.
    runtime.block_on(up.process.kill9()).unwrap();
    std::fs::remove_dir_all(up.folder.path().join("data/tracker")).unwrap();
    let kept = up.folder.path().join("data/objects/snapshots");
    if kept.exists() {
        std::fs::remove_dir_all(kept).unwrap();
    }
    up.restart(&with("1s"));
    assert_eq!(told(&up, &run), before);
    up.done(&["replay", "--verify"]);
    // The id is not new, and the run takes writes.
    assert_eq!(job(&up, "the-first"), run, "one key is one run, though its events are gone");
    up.done(&["run", "tag", &run, "stage=archived"]);
    let shown = up.json(&["run", "show", &run]);
    assert_eq!(shown["tags"]["stage"], "archived", "{shown:#}");
    up.done(&["replay", "--verify"]);
}
