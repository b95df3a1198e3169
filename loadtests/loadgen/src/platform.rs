//! A real `footplate up` in a temporary folder, on free ports. It is stopped when dropped, and its workers with it.

use anyhow::{Context as _, Result, bail};
use footplate_api::{Client, Target, v1};
use footplate_testkit::{Process, nats_server_program, try_eventually};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How long the platform may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long it may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// A running platform and a client of it.
pub(crate) struct Platform {
    pub(crate) client: Client,
    process: Process,
    /// Goes when the process has ended.
    _folder: TempDir,
}

impl Platform {
    /// Starts `binary` (the one beside this program when absent) with `slots` CPU slots and waits until its node is ready.
    pub(crate) async fn start(binary: Option<&Path>, slots: u32) -> Result<Self> {
        let binary = binary.map_or_else(beside, |named| Ok(named.to_owned()))?;
        let folder = tempfile::Builder::new().prefix("footplate-load-").tempdir()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let data = folder.path().join("data");
        let mut command = Command::new(&binary);
        command.args(["up", "--slots", &slots.to_string(), "--listen", &address, "--data"]).arg(&data);
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
        Ok(Self { client, process, _folder: folder })
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
        let token = std::fs::read_to_string(data.join("token")).ok()?;
        let client = Client::connect(Target::new(address).token(token.trim()).project("default"));
        let client = match client {
            Ok(client) => client,
            Err(error) => return Some(Err(error.into())),
        };
        let nodes = client.once(client.nodes().list_nodes(v1::ListNodesRequest::default())).await.ok()?.nodes;
        nodes.iter().any(|node| node.state == "ready").then_some(Ok(client))
    };
    try_eventually(READY_WITHIN, "the platform's node is ready", look).await?
}

fn settings() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("nats.port", free_port()?.to_string()),
        ("nats.monitor-port", free_port()?.to_string()),
        ("admin.listen", format!("127.0.0.1:{}", free_port()?)),
        ("nats.disk", "2GiB".to_owned()),
        ("nats.program", nats_server_program()?.display().to_string()),
    ])
}

fn beside() -> Result<PathBuf> {
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
