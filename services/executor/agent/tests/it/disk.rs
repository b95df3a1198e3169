//! A full disk under the agent's folder: a small tmpfs, where the test may mount one.

use crate::node::{Node, SOON};
use footplate_events::facts::{Exit, LogStream, StopCause};
use footplate_testkit::eventually;
use footplate_types::RunId;
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// A mounted tmpfs; gone with this.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(at).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }

    /// Takes every free byte.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [1 << 16, 1 << 10, 1] {
            while file.write_all(&vec![0u8; size]).is_ok() {}
        }
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_ends_nothing_keeps_every_promise_and_passes() {
    let mut node = Node::new();
    let Some(small) = Small::mount(&node.config.work) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    node.config.lease = Some(Duration::from_secs(2));
    node.start();
    node.registered(1).await;
    let first = node.shell(1, "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done");
    node.run_member(&first).await;
    node.log_says(RunId::from_bytes([1; 16]), 0, LogStream::Stdout, "up").await;
    let filler = small.fill();
    assert!(fs::write(node.config.work.join("x"), vec![0u8; 8192]).is_err(), "the disk is full");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(node.living() > 0, "two leases later it trains on: the lease is kept up");
    node.assign(vec![Node::stop_order(&first, StopCause::Preempted, 5_000)]).await;
    eventually(SOON, "a stop is obeyed also now", || async { (node.living() == 0).then_some(()) }).await;
    fs::remove_file(filler).unwrap();
    let exited = node.exited(RunId::from_bytes([1; 16])).await;
    assert_eq!((exited.obeyed, exited.workers[0].exit.clone()), (Some(StopCause::Preempted), Exit::Code(9)));
    let second = node.shell(2, "echo again");
    node.run_member(&second).await;
    assert!(node.exited(RunId::from_bytes([2; 16])).await.is_success());
    node.kill().await;
    drop(node);
    drop(small);
}
