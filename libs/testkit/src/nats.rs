//! A real nats-server with JetStream in a folder of its own.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::last_lines;
use crate::{Process, nats_server_program, try_eventually};

/// How long a server may take from its start to serving JetStream; replaying a large store takes time.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long a server may take to end when asked to.
const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// How long a readiness probe may wait for the server's greeting.
const GREETING_DEADLINE: Duration = Duration::from_secs(1);
/// How often a start is tried again when the port was taken meanwhile (a restart wants its old port).
const START_TRIES: usize = 5;

/// As `up` starts it: less often collected, so that the blocks it has read stay in its memory.
const COLLECTOR: (&str, &str) = ("GOGC", "300");

/// How a [`NatsServer`] is to be; made by [`nats`].
#[derive(Clone, Debug)]
pub struct NatsOptions {
    max_memory_bytes: u64,
    max_disk_bytes: u64,
    sync_always: bool,
    store: Option<PathBuf>,
    more: String,
}

/// A nats-server under `sync_interval: always` on a free loopback port, with its store in a temporary folder; call
/// [`NatsOptions::start`].
pub fn nats() -> NatsOptions {
    NatsOptions { max_memory_bytes: 256 << 20, max_disk_bytes: 8 << 30, sync_always: true, store: None, more: String::new() }
}

impl NatsOptions {
    /// The most memory JetStream may use for memory streams (default 256 MiB).
    #[must_use]
    pub fn max_memory_bytes(mut self, bytes: u64) -> Self {
        self.max_memory_bytes = bytes;
        self
    }

    /// The most disk JetStream may use (default 8 GiB): small values play a full disk.
    #[must_use]
    pub fn max_disk_bytes(mut self, bytes: u64) -> Self {
        self.max_disk_bytes = bytes;
        self
    }

    /// Whether every write is synced before it is acknowledged (default true, as the platform demands).
    #[must_use]
    pub fn sync_always(mut self, always: bool) -> Self {
        self.sync_always = always;
        self
    }

    /// Keeps the store in `folder` instead of a temporary one; the folder is left there.
    #[must_use]
    pub fn store(mut self, folder: impl Into<PathBuf>) -> Self {
        self.store = Some(folder.into());
        self
    }

    /// More lines of server configuration (accounts, users, limits), as nats-server reads them.
    #[must_use]
    pub fn config(mut self, lines: &str) -> Self {
        self.more.push_str(lines);
        self.more.push('\n');
        self
    }

    /// Starts the server and waits until it serves JetStream.
    ///
    /// # Panics
    /// When there is no nats-server (the message says what to run) or it does not come up.
    pub async fn start(self) -> NatsServer {
        match self.try_start().await {
            Ok(server) => server,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// [`NatsOptions::start`] with the failure as a value.
    ///
    /// # Errors
    /// When there is no nats-server (the message says what to run) or it does not come up.
    pub async fn try_start(self) -> Result<NatsServer> {
        let program = nats_server_program()?;
        let folder = tempfile::Builder::new().prefix("footplate-nats-").tempdir().context("cannot make a temporary folder")?;
        let store = self.store.clone().unwrap_or_else(|| folder.path().join("store"));
        let server = NatsServer { options: self, program, folder, store, running: Mutex::default() };
        server.start_on(None).await?;
        Ok(server)
    }
}

/// A running nats-server; killed when dropped. All methods take `&self`, so that one task may kill what another talks to.
#[derive(Debug)]
pub struct NatsServer {
    options: NatsOptions,
    program: PathBuf,
    folder: TempDir,
    store: PathBuf,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    port: u16,
    process: Option<std::sync::Arc<Process>>,
}

impl NatsServer {
    /// `nats://127.0.0.1:<port>`; the same for the server's whole life, restarts included.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// The client port.
    pub fn port(&self) -> u16 {
        self.lock().port
    }

    /// The folder that holds the JetStream store.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.lock().process.as_ref().map(|process| process.pid())
    }

    /// What the server has logged since the fixture began.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("nats-server.err")).unwrap_or_default()
    }

    /// Kills the server at once (SIGKILL); the store and the port stay reserved for [`NatsServer::restart`].
    ///
    /// # Errors
    /// When it does not run, or is not gone in time.
    pub async fn kill9(&self) -> Result<()> {
        self.taken()?.kill9().await.map(|_| ())
    }

    /// Ends the server in good order (SIGTERM).
    ///
    /// # Errors
    /// When it does not run, or is not gone in time.
    pub async fn stop(&self) -> Result<()> {
        self.taken()?.terminate(STOP_DEADLINE).await.map(|_| ())
    }

    /// Starts it again on the same store and port, killing it first when it still runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self) -> Result<()> {
        if let Ok(process) = self.taken() {
            process.kill9().await?;
        }
        self.start_on(Some(self.port())).await
    }

    /// Stops it where it stands (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self) -> Result<()> {
        self.current()?.pause()
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> Result<()> {
        self.current()?.resume()
    }

    async fn start_on(&self, port: Option<u16>) -> Result<()> {
        for attempt in 1..=START_TRIES {
            let port = match port {
                Some(port) => port,
                None => free_port()?,
            };
            let config = self.folder.path().join("nats.conf");
            std::fs::write(&config, self.config(port)).with_context(|| format!("cannot write {}", config.display()))?;
            let log_before = self.log().len();
            let mut command = Command::new(&self.program);
            command.arg("-c").arg(&config);
            if std::env::var_os(COLLECTOR.0).is_none() {
                command.env(COLLECTOR.0, COLLECTOR.1);
            }
            let process = Process::start("nats-server", command, self.folder.path())?;
            match self.ready(&process, port).await {
                Ok(()) => {
                    *self.lock() = Running { port, process: Some(process.into()) };
                    return Ok(());
                }
                Err(error) => {
                    let log = self.log().split_off(log_before);
                    if !log.contains("address already in use") || attempt == START_TRIES {
                        bail!("nats-server did not come up: {error:#}; it logged:\n{}", last_lines(&log));
                    }
                }
            }
        }
        bail!("no free port in {START_TRIES} tries")
    }

    /// Ready is: it greets with JetStream on, which it does only after it has read its store.
    async fn ready(&self, process: &Process, port: u16) -> Result<()> {
        let look = || async move {
            match process.exit_status() {
                Ok(None) => tokio::task::spawn_blocking(move || greets(port)).await.ok()?.then_some(Ok(())),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("it ended with {status}"))),
                Err(error) => Some(Err(error)),
            }
        };
        try_eventually(START_DEADLINE, "nats-server serves JetStream", look).await?
    }

    fn config(&self, port: u16) -> String {
        let store = self.store.display();
        let NatsOptions { max_memory_bytes, max_disk_bytes, more, .. } = &self.options;
        let sync = if self.options.sync_always { "sync_interval: always" } else { "" };
        format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{\n  store_dir: {store:?}\n  max_memory_store: {max_memory_bytes}\n  max_file_store: \
             {max_disk_bytes}\n  {sync}\n}}\n{more}",
            store = store.to_string(),
        )
    }

    fn current(&self) -> Result<std::sync::Arc<Process>> {
        self.lock().process.clone().context("the nats-server does not run")
    }

    fn taken(&self) -> Result<std::sync::Arc<Process>> {
        self.lock().process.take().context("the nats-server does not run")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loopback port that nobody has now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether a server on `port` greets as one whose JetStream is on.
fn greets(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let greeting = TcpStream::connect_timeout(&address, GREETING_DEADLINE).and_then(|stream| {
        stream.set_read_timeout(Some(GREETING_DEADLINE))?;
        let mut line = String::new();
        match BufReader::new(stream).read_line(&mut line) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        }
    });
    greeting.is_ok_and(|line| line.starts_with("INFO ") && line.contains("\"jetstream\":true"))
}
