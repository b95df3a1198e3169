//! A real `footplate up` in a temporary folder, on free ports. It is stopped when dropped, and its workers with it.

use anyhow::{Context as _, Result, bail};
use footplate_api::{Client, Target, v1};
use footplate_testkit::{Process, nats_server_program, try_eventually};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long the platform may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long it may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// A running platform and a client of it.
pub(crate) struct Platform {
    pub(crate) client: Client,
    process: Process,
    address: String,
    /// Where its metrics page is.
    admin: String,
    /// Goes when the process has ended.
    folder: TempDir,
}

impl Platform {
    /// Starts `binary` (the one beside this program when absent) with `slots` CPU slots and waits until its node is ready.
    pub(crate) async fn start(binary: Option<&Path>, slots: u32) -> Result<Self> {
        Self::start_with(binary, slots, &[]).await
    }

    /// [`Platform::start`] with more flags for `footplate up`.
    pub(crate) async fn start_with(binary: Option<&Path>, slots: u32, more: &[String]) -> Result<Self> {
        let binary = binary.map_or_else(beside, |named| Ok(named.to_owned()))?;
        let folder = tempfile::Builder::new().prefix("footplate-load-").tempdir()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let data = folder.path().join("data");
        let mut command = Command::new(&binary);
        command.args(["up", "--slots", &slots.to_string(), "--listen", &address, "--data"]).arg(&data);
        let admin = format!("127.0.0.1:{}", free_port()?);
        command.args(more).arg("--set").arg(format!("admin.listen={admin}"));
        for (key, value) in settings()? {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        // No setting of whoever runs this may leak in.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FOOTPLATE_")) {
            command.env_remove(name);
        }
        command.env("XDG_CONFIG_HOME", folder.path().join("config"));
        let process = Process::start("up", command, folder.path())?;
        let client = match ready(&process, &address, &data).await {
            Ok(client) => client,
            Err(error) => bail!("{} did not come up: {error:#}\n{}", binary.display(), process.stderr()),
        };
        Ok(Self { client, process, address, admin, folder })
    }

    /// Another client, with a connection of its own.
    pub(crate) fn connect(&self) -> Result<Client> {
        connect(&self.address, &self.folder.path().join("data"))
    }

    /// The process that is the platform.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A figure of its metrics page: the first line whose name holds `name`.
    pub(crate) async fn figure(&self, name: &str) -> Result<f64> {
        let mut page = String::new();
        let mut stream = tokio::net::TcpStream::connect(&self.admin).await?;
        stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin).as_bytes()).await?;
        stream.read_to_string(&mut page).await?;
        let line = page.lines().find(|line| !line.starts_with('#') && line.contains(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.with_context(|| format!("no {name} on the metrics page"))
    }

    /// Stops it in good order.
    pub(crate) async fn stop(self) -> Result<()> {
        let status = self.process.terminate(STOP_WITHIN).await?;
        if status.success() { Ok(()) } else { bail!("the platform ended with {status}:\n{}", self.process.stderr()) }
    }
}

async fn ready(process: &Process, address: &str, data: &Path) -> Result<Client> {
    let look = || async {
        if !process.is_running() {
            return Some(Err(anyhow::anyhow!("it has ended")));
        }
        if !data.join("token").exists() {
            return None;
        }
        let client = match connect(address, data) {
            Ok(client) => client,
            Err(error) => return Some(Err(error)),
        };
        let nodes = client.once(client.nodes().list_nodes(v1::ListNodesRequest::default())).await.ok()?.nodes;
        nodes.iter().any(|node| node.state == "ready").then_some(Ok(client))
    };
    try_eventually(READY_WITHIN, "the platform's node is ready", look).await?
}

fn connect(address: &str, data: &Path) -> Result<Client> {
    let token = std::fs::read_to_string(data.join("token"))?;
    Ok(Client::connect(Target::new(address).token(token.trim()).project("default"))?)
}

fn settings() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("nats.port", free_port()?.to_string()),
        ("nats.monitor-port", free_port()?.to_string()),
        ("nats.disk", "2GiB".to_owned()),
        ("nats.program", nats_server_program()?.display().to_string()),
    ])
}

/// The program beside this one.
pub(crate) fn beside() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("footplate");
    if program.is_file() {
        return Ok(program);
    }
    bail!("no {}: build it (`cargo build --release -p footplate-cli`) or name one with --binary", program.display())
}

/// A loopback port that is free now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?.port())
}
