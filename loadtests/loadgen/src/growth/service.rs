//! One service after the other as a process of its own, over one broker and one object store.

use crate::platform::{beside, free_port};
use anyhow::{Result, bail, ensure};
use footplate_testkit::{NatsServer, Process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long a start may take.
const READY_WITHIN: Duration = Duration::from_secs(3_600);
/// How long a stop may take: it keeps a snapshot.
const STOP_WITHIN: Duration = Duration::from_secs(600);
/// How often a service is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Where services are started.
pub(super) struct Installation {
    binary: PathBuf,
    nats: String,
    folder: PathBuf,
    disk: u64,
}

/// A service that is ready.
pub(super) struct Started {
    /// From its process's start to its readiness.
    pub(super) took: Duration,
    process: Process,
}

impl Installation {
    /// Services of `binary` over a broker whose streams have `disk` bytes, with their data below `folder`.
    pub(super) fn new(binary: Option<&Path>, server: &NatsServer, folder: &Path, disk: u64) -> Result<Self> {
        let binary = binary.map_or_else(beside, |named| Ok(named.to_owned()))?;
        Ok(Self { binary, nats: server.url(), folder: folder.to_owned(), disk })
    }

    /// Starts a service and waits until it is ready.
    pub(super) async fn start(&self, service: &str) -> Result<Started> {
        let admin = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(&self.binary);
        // No setting of whoever runs this may leak in.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FOOTPLATE_")) {
            command.env_remove(name);
        }
        command.args(["serve", service, "--listen", &format!("127.0.0.1:{}", free_port()?), "--admin", &admin]);
        command.args(["--nats", &self.nats, "--data"]).arg(self.folder.join(service));
        let objects = format!("objects={}", self.folder.join("objects").display());
        let disk = format!("nats.disk={}B", self.disk);
        // Nothing beside its start: no lease of one before it to wait for, no archive to write.
        for setting in [&objects, &disk, "lease.leader=1s", "grace=300s", "archive.every=1h", "archive.keep-events=1000000000000"] {
            command.args(["--set", setting]);
        }
        let logs = self.folder.join("logs");
        std::fs::create_dir_all(&logs)?;
        let began = Instant::now();
        let process = Process::start(service, command, &logs)?;
        while !is_ready(&admin).await {
            ensure!(process.is_running(), "{service} ended before it was ready:\n{}", process.stderr());
            ensure!(began.elapsed() < READY_WITHIN, "{service} was not ready in time:\n{}", process.stderr());
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(Started { took: began.elapsed(), process })
    }

    /// How large the snapshots of all services are together.
    pub(super) fn snapshots_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(self.folder.join("objects/snapshots"))? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes)
    }
}

impl Started {
    /// Its resident memory.
    pub(super) fn resident(&self) -> Result<u64> {
        super::resident(self.process.pid())
    }

    /// Stops it in good order.
    pub(super) async fn stop(self) -> Result<()> {
        let status = self.process.terminate(STOP_WITHIN).await?;
        if status.success() { Ok(()) } else { bail!("{} ended with {status}:\n{}", self.process.name(), self.process.stderr()) }
    }
}

async fn is_ready(admin: &str) -> bool {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(admin).await?;
        stream.write_all(format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}
