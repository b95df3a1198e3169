//! A real Apache Cassandra on loopback, for tests of what is stored in ScyllaDB's protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::OnceCell;

use crate::process::last_lines;
use crate::{Process, free_port, repository_root, try_eventually};

/// How long a server may take from its start to answering: ten seconds of work, which take many times as long while others build.
const START_DEADLINE: Duration = Duration::from_secs(600);
/// How long a probe may wait for an answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
/// How often a start is tried again when a port was taken meanwhile.
const START_TRIES: usize = 3;
/// CQL's question which options a server supports: version 4, no flags, stream 0, opcode 5, no body.
const OPTIONS: [u8; 9] = [0x04, 0, 0, 0, 0x05, 0, 0, 0, 0];
/// The opcode of the answer.
const SUPPORTED: u8 = 0x06;
/// Tables are made many times as fast when the schema is not flushed; a server that is never restarted needs it not.
const QUICK_SCHEMA: &str = "-Dcassandra.test.flush_local_schema_changes=false";
/// Acknowledges a write before it is on the disk, as a server does that nobody has told otherwise.
const EARLY: &str = "-Dcassandra.config.allow_system_properties=true -Dcassandra.settings.commitlog_sync=periodic \
                     -Dcassandra.settings.commitlog_sync_period=10s";
/// What the names of data folders begin with; the rest is the process that owns one.
const FOLDER_PREFIX: &str = "footplate-cassandra-";

static SHARED: Shared<CassandraServer> = Shared::const_new();
static COUNTED: AtomicU32 = AtomicU32::new(0);

/// A keyspace of its own on the server that all tests of this process share; it is started for the first one and ends with the process.
///
/// # Panics
/// When there is no Cassandra (the message says what to run) or it does not come up.
pub async fn cassandra() -> Keyspace {
    match shared(&SHARED, || CassandraServer::try_start(QUICK_SCHEMA)).await {
        Ok(server) => server.keyspace(),
        Err(why) => panic!("{why}"),
    }
}

/// What all tests share, or why it did not come up.
type Shared<T> = OnceCell<Result<T, String>>;

/// Starts it for the first who asks; that it did not come up is told to all who ask, and not tried anew by each.
async fn shared<T, F>(cell: &Shared<T>, start: impl FnOnce() -> F) -> Result<&T, &str>
where
    F: Future<Output = Result<T>>,
{
    let started = cell.get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) }).await;
    started.as_ref().map_err(String::as_str)
}

/// The name of a keyspace that no other test uses, on a running server.
#[derive(Clone, Debug)]
pub struct Keyspace {
    /// `host:port` of the server.
    pub node: String,
    /// The name; the keyspace itself is not made.
    pub name: String,
}

impl Keyspace {
    /// `scylla://host:port/keyspace`.
    pub fn url(&self) -> String {
        format!("scylla://{}/{}", self.node, self.name)
    }
}

/// A running Cassandra of one node; killed when dropped. All methods take `&self`, so that one task may kill what another talks to.
#[derive(Debug)]
pub struct CassandraServer {
    folder: PathBuf,
    port: u16,
    storage_port: u16,
    options: &'static str,
    process: Mutex<Option<Process>>,
}

impl CassandraServer {
    /// Starts a server of its own, to be killed and restarted at will, and waits until it answers.
    ///
    /// # Panics
    /// When there is no Cassandra (the message says what to run) or it does not come up.
    pub async fn start() -> Self {
        Self::started("").await
    }

    /// The same for one that acknowledges before its disk has it (`commitlog_sync: periodic`).
    ///
    /// # Panics
    /// As [`CassandraServer::start`].
    pub async fn start_early() -> Self {
        Self::started(EARLY).await
    }

    async fn started(options: &'static str) -> Self {
        match Self::try_start(options).await {
            Ok(server) => server,
            Err(error) => panic!("{error:#}"),
        }
    }

    async fn try_start(options: &'static str) -> Result<Self> {
        sweep();
        let number = COUNTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("{FOLDER_PREFIX}{}-{number}", std::process::id()));
        for attempt in 1..=START_TRIES {
            let (port, storage_port, process) = (free_port()?, free_port()?, Mutex::default());
            let server = Self { folder: folder.clone(), port, storage_port, options, process };
            match server.run().await {
                Ok(()) => return Ok(server),
                Err(error) if attempt == START_TRIES || !format!("{error:#}").contains("in use") => return Err(error),
                Err(_) => {}
            }
        }
        bail!("no free port in {START_TRIES} tries")
    }

    /// `host:port` of the server; the same for its whole life, restarts included.
    pub fn node(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The name of a keyspace that no other test uses.
    pub fn keyspace(&self) -> Keyspace {
        Keyspace { node: self.node(), name: format!("test_{}", COUNTED.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Kills the server at once (SIGKILL); its data and ports stay for [`CassandraServer::restart`].
    ///
    /// # Errors
    /// When it does not run, or is not gone in time.
    pub async fn kill9(&self) -> Result<()> {
        let process = self.lock().take().context("the Cassandra does not run")?;
        process.kill9().await.map(|_| ())
    }

    /// Starts it again on the same data and ports, killing it first when it still runs, and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self) -> Result<()> {
        let running = self.lock().take();
        if let Some(process) = running {
            process.kill9().await?;
        }
        self.run().await
    }

    async fn run(&self) -> Result<()> {
        let script = repository_root().join("deploy/cassandra/run");
        let mut command = Command::new(&script);
        command.arg(&self.folder).arg(self.port.to_string()).arg(self.storage_port.to_string());
        command.env("FOOTPLATE_CASSANDRA_OPTIONS", self.options);
        let process = Process::start("cassandra", command, &self.folder)?;
        let port = self.port;
        let look = || {
            let status = process.exit_status();
            async move {
                match status {
                    Ok(None) => tokio::task::spawn_blocking(move || answers(port)).await.ok()?.then_some(Ok(())),
                    Ok(Some(status)) => Some(Err(anyhow::anyhow!("it ended with {status}"))),
                    Err(error) => Some(Err(error)),
                }
            }
        };
        let ready = match try_eventually(START_DEADLINE, "Cassandra answers", look).await {
            Ok(ready) => ready,
            Err(late) => Err(late.into()),
        };
        if let Err(error) = ready {
            bail!("Cassandra did not come up: {error:#}; it wrote:\n{}", last_lines(&process.stderr()));
        }
        *self.lock() = Some(process);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CassandraServer {
    fn drop(&mut self) {
        *self.lock() = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whether a server on `port` answers in CQL.
fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let answer = TcpStream::connect_timeout(&address, ANSWER_DEADLINE).and_then(|mut stream| {
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.write_all(&OPTIONS)?;
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        if header[4] == SUPPORTED { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    });
    answer.is_ok()
}

/// Removes what servers of processes that are gone have left: the shared one ends with its process, which cannot clean up behind it.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_that_failed_is_told_to_all_and_not_tried_by_each() {
        let (cell, starts) = (Shared::<()>::const_new(), AtomicU32::new(0));
        let start = || async {
            starts.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            bail!("no port")
        };
        let told = tokio::join!(shared(&cell, start), shared(&cell, start), shared(&cell, start));
        assert_eq!(told, (Err("no port"), Err("no port"), Err("no port")));
        assert_eq!(starts.load(Ordering::Relaxed), 1);
    }
}
