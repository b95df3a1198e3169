//! A real S3 server over a folder of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::last_lines;
use crate::{Process, free_port, s3_server_program, try_eventually};

/// How long a server may take from its start to its first answer.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long a server may take to end when asked to.
const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// How long a readiness probe may wait for an answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// How often a start is tried again when the port was taken meanwhile.
const START_TRIES: usize = 5;

/// The key that the server knows, and its secret.
const KEY: (&str, &str) = ("footplate-tests", "the-secret-of-the-tests");

/// A running S3 server; killed when dropped. All methods take `&self`, so that one task may kill what another talks to.
#[derive(Debug)]
pub struct S3Server {
    program: PathBuf,
    folder: TempDir,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    port: u16,
    process: Option<Arc<Process>>,
}

/// Starts a server on a free loopback port, with its buckets in a temporary folder.
///
/// # Panics
/// When there is none (the message says what to run) or it does not come up.
pub async fn s3() -> S3Server {
    match try_s3().await {
        Ok(server) => server,
        Err(error) => panic!("{error:#}"),
    }
}

async fn try_s3() -> Result<S3Server> {
    let program = s3_server_program()?;
    let folder = tempfile::Builder::new().prefix("footplate-s3-").tempdir().context("cannot make a temporary folder")?;
    let server = S3Server { program, folder, running: Mutex::default() };
    std::fs::create_dir(server.buckets()).context("cannot make the folder of the buckets")?;
    server.start_on(None).await?;
    Ok(server)
}

impl S3Server {
    /// `http://127.0.0.1:<port>`; the same for the server's whole life, restarts included.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// The access key and its secret.
    pub fn key(&self) -> (String, String) {
        (KEY.0.to_owned(), KEY.1.to_owned())
    }

    /// Makes a bucket; one that is there is left as it is.
    ///
    /// # Panics
    /// When its folder cannot be made.
    pub fn make_bucket(&self, name: &str) {
        let folder = self.bucket(name);
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    }

    /// Removes a bucket with all that is in it, behind the server's back.
    ///
    /// # Panics
    /// When its folder cannot be removed.
    pub fn remove_bucket(&self, name: &str) {
        let folder = self.bucket(name);
        std::fs::remove_dir_all(&folder).unwrap_or_else(|error| panic!("cannot remove {}: {error}", folder.display()));
    }

    /// The folder that is a bucket: an object is a file in it.
    pub fn bucket(&self, name: &str) -> PathBuf {
        self.buckets().join(name)
    }

    /// What the server has logged since the fixture began.
    pub fn log(&self) -> String {
        ["out", "err"].map(|end| std::fs::read_to_string(self.folder.path().join(format!("s3-server.{end}"))).unwrap_or_default()).concat()
    }

    /// Kills the server at once (SIGKILL); its folder and its port stay for [`S3Server::restart`].
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

    /// Starts it again on the same folder and port, killing it first when it still runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self) -> Result<()> {
        if let Ok(process) = self.taken() {
            process.kill9().await?;
        }
        self.start_on(Some(self.port())).await
    }

    fn buckets(&self) -> PathBuf {
        self.folder.path().join("buckets")
    }

    fn port(&self) -> u16 {
        self.lock().port
    }

    async fn start_on(&self, port: Option<u16>) -> Result<()> {
        for attempt in 1..=START_TRIES {
            let port = match port {
                Some(port) => port,
                None => free_port()?,
            };
            let log_before = self.log().len();
            let process = Process::start("s3-server", self.command(port), self.folder.path())?;
            match ready(&process, port).await {
                Ok(()) => {
                    *self.lock() = Running { port, process: Some(process.into()) };
                    return Ok(());
                }
                Err(error) => {
                    let log = self.log().split_off(log_before);
                    if !log.contains("address already in use") || attempt == START_TRIES {
                        bail!("the S3 server did not come up: {error:#}; it logged:\n{}", last_lines(&log));
                    }
                }
            }
        }
        bail!("no free port in {START_TRIES} tries")
    }

    /// Which of the two servers it is tells its name.
    fn command(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        let is_s3s = self.program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("s3s"));
        if is_s3s {
            let port = port.to_string();
            command.args(["--host", "127.0.0.1", "--port", port.as_str(), "--access-key", KEY.0, "--secret-key", KEY.1]);
        } else {
            command.env("ROOT_ACCESS_KEY", KEY.0).env("ROOT_SECRET_KEY", KEY.1);
            command.args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix"]);
        }
        command.arg(self.buckets());
        command
    }

    fn taken(&self) -> Result<Arc<Process>> {
        self.lock().process.take().context("the S3 server does not run")
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready is: it answers HTTP, whatever it says to somebody without a key.
async fn ready(process: &Process, port: u16) -> Result<()> {
    let look = || async move {
        match process.exit_status() {
            Ok(None) => tokio::task::spawn_blocking(move || answers(port)).await.ok()?.then_some(Ok(())),
            Ok(Some(status)) => Some(Err(anyhow::anyhow!("it ended with {status}"))),
            Err(error) => Some(Err(error)),
        }
    };
    try_eventually(START_DEADLINE, "the S3 server answers", look).await?
}

fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let answer = TcpStream::connect_timeout(&address, ANSWER_DEADLINE).and_then(|mut stream| {
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut beginning = [0; 5];
        stream.read_exact(&mut beginning)?;
        if &beginning == b"HTTP/" { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    });
    answer.is_ok()
}

/// Every file of a folder, by its path in it.
///
/// # Panics
/// When a folder cannot be read.
pub fn files_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        let entries = std::fs::read_dir(&at).unwrap_or_else(|error| panic!("cannot read {}: {error}", at.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            match path.strip_prefix(folder) {
                _ if path.is_dir() => folders.push(path),
                Ok(inside) => names.push(inside.display().to_string()),
                Err(_) => {}
            }
        }
    }
    names.sort();
    names
}
