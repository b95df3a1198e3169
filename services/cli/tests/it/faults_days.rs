//! Bad days of a whole platform: each ends with the documented code and says what to do next, and nothing is lost.

use crate::cluster::record::{assert_kept, moves};
use crate::cluster::{Cluster, PATIENCE, alone, binary, free};
use footplate_api::types::Outcome;
use footplate_testkit::{eventually, nats, nats_server_program};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_days_of_users_and_operators_are_told_with_the_code_and_what_to_do_and_nothing_is_lost() {
    let _alone = alone().await;
    let cluster = Cluster::start(&["n1"]).await;
    a_missing_program_fails_the_run(&cluster).await;
    bytes_that_are_no_text_come_back_whole(&cluster).await;
    a_broker_that_is_down_at_submit_is_told(&cluster).await;
}

/// Python is missing on the node: the run fails by the code of a failed run, with the cause, and what to do.
async fn a_missing_program_fails_the_run(cluster: &Cluster) {
    let words = ["submit", "--wait", "--no-source", "--set", "retry.max=0", "--", "python-that-is-nowhere", "train.py"];
    let output = cluster.footplate(cluster.path(), &words).await;
    assert_eq!(output.status.code(), Some(7), "{}", told(&output));
    let told = told(&output);
    assert!(told.contains("python-that-is-nowhere") && told.contains("not found on this node") && told.contains("install it"), "{told}");
    let output =
        cluster.footplate(cluster.path(), &["submit", "--wait", "--no-source", "--", "sh", "-c", "python-that-is-nowhere x.py"]).await;
    assert_eq!(output.status.code(), Some(7), "{}", self::told(&output));
    assert!(self::told(&output).contains("127"), "{}", self::told(&output));
}

async fn bytes_that_are_no_text_come_back_whole(cluster: &Cluster) {
    let script = r"printf 'a\377\376\000b\r50%%\rno end'; printf '\200\201' >&2";
    let run_id = cluster.submit(cluster.path(), &["--no-source", "--", "sh", "-c", script]).await;
    assert_eq!(cluster.sealed(&run_id).await.outcome(), Outcome::Succeeded);
    let output = cluster.footplate(cluster.path(), &["run", "logs", &run_id]).await;
    assert_eq!(output.stdout, b"a\xff\xfe\x00b\r50%\rno end", "{}", told(&output));
    assert!(output.stderr.windows(2).any(|bytes| bytes == b"\x80\x81"), "{:?}", output.stderr);
}

/// The submit says that it was not taken; the same request, repeated once the broker is back, is one run.
async fn a_broker_that_is_down_at_submit_is_told(cluster: &Cluster) {
    cluster.nats.kill9().await.unwrap();
    let words = ["submit", "-q", "--request-id", "on-a-bad-day", "--no-source", "--", "true"];
    let output = cluster.footplate(cluster.path(), &words).await;
    assert_eq!(output.status.code(), Some(5), "{}", told(&output));
    assert!(!told(&output).is_empty());
    cluster.nats.restart().await.unwrap();
    let again = || async {
        let output = cluster.footplate(cluster.path(), &words).await;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let run_id = eventually(PATIENCE, "the same request is taken", again).await;
    assert_eq!(cluster.sealed(&run_id).await.outcome(), Outcome::Succeeded);
    let submitted = cluster.events("job").await.into_iter().filter(|event| event.aggregate_id == run_id);
    assert_eq!(submitted.filter(|event| event.r#type == "footplate.job.submitted.v1").count(), 1);
}

#[test]
fn up_over_an_old_broker_or_a_taken_port_of_its_broker_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("nats-server");
    std::fs::write(&program, "#!/bin/sh\necho 'nats-server: v2.10.4'\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let up = |program: &Path, port: &str| {
        let mut command = binary(folder.path());
        command.args(["up", "--listen", &free().to_string(), "--data"]).arg(folder.path().join("data"));
        let monitor = free().port().to_string();
        for (key, value) in [("nats.program", &*program.to_string_lossy()), ("nats.port", port), ("nats.monitor-port", &monitor)] {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command.output().unwrap()
    };
    let old = up(&program, &free().port().to_string());
    assert_eq!(old.status.code(), Some(5), "{}", told(&old));
    assert!(["2.10.4", "2.14", "--nats"].iter().all(|word| told(&old).contains(word)), "{}", told(&old));
    let busy = up(&nats_server_program().unwrap(), &port);
    assert_eq!(busy.status.code(), Some(4), "{}", told(&busy));
    assert!(told(&busy).contains(&port) && told(&busy).contains("nats.port"), "{}", told(&busy));
}

/// A small disk of its own, gone with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=192m", "tmpfs"]).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at))
    }

    /// Fills it to its last byte.
    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.0.join("ballast")).unwrap();
        let piece = vec![0_u8; 4096];
        while ballast.write_all(&piece).is_ok() {}
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_the_broker_is_told_costs_a_training_nothing_and_loses_nothing() {
    let _alone = alone().await;
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path().join("disk")) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    let monitor = free();
    let monitored = format!("http: \"{monitor}\"");
    let nats = nats().store(disk.0.join("store")).max_disk_bytes(160 << 20).config(&monitored).start().await;
    let monitor = format!("nats.monitor={monitor}");
    let cluster = Cluster::start_over(nats, &["n1"], &["nats.disk=128MiB", "lease.node=60s", "read.wait=2s", &monitor]).await;
    let (job, kept) = cluster.training("steady", 1, "");
    let run_id = cluster.submit(&job, &["job.yaml"]).await;
    moves(&kept, 1, "it trains").await;
    disk.fill();
    // The last page of the ledger's file may have room for an event or two.
    let mut taken = 0;
    let (id, output) = loop {
        let id = format!("on-a-full-disk-{taken}");
        let output = cluster.footplate(cluster.path(), &["submit", "-q", "--request-id", &id, "--no-source", "--", "true"]).await;
        if !output.status.success() {
            break (id, output);
        }
        taken += 1;
        assert!(taken < 16, "the disk never fills");
    };
    // The first try is told so, within its own deadline: a broker that only seemed away would be tried again, and end with 5.
    assert_eq!(output.status.code(), Some(4), "{}", told(&output));
    assert!(["no space left on device", "free space"].iter().all(|words| told(&output).contains(words)), "{}", told(&output));
    assert_eq!(moves(&kept, 1, "it trains on").await, 1);
    disk.empty();
    cluster.nats.restart().await.unwrap();
    assert_eq!(moves(&kept, 1, "it trains on").await, 1);
    std::fs::write(kept.join("finish"), "").unwrap();
    let run = cluster.sealed(&run_id).await;
    assert_eq!((run.outcome(), run.seal_complete), (Outcome::Succeeded, true), "{run:?}");
    println!("{}", assert_kept(&cluster, &run, &kept).await);
    let again = cluster.submit(cluster.path(), &["--request-id", &id, "--no-source", "--", "true"]).await;
    assert_eq!(cluster.sealed(&again).await.outcome(), Outcome::Succeeded);
    cluster.assert_rebuild_equal().await;
}
