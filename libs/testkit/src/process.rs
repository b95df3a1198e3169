//! A guard around a child process: it is killed, with its process group, when the guard is dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::spawner;
use crate::try_eventually;

/// How long a killed child may take to be gone.
const REAP_DEADLINE: Duration = Duration::from_secs(10);

/// A running child with its output in files.
///
/// All methods take `&self`, so that one task may kill what another talks to.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    child: Mutex<Child>,
    out: PathBuf,
    err: PathBuf,
}

impl Process {
    /// Starts `command` with stdout and stderr appended to `<logs>/<name>.out` and `<logs>/<name>.err` and nothing on stdin.
    ///
    /// # Errors
    /// When the program cannot be started or the log files cannot be opened.
    pub fn start(name: &str, mut command: Command, logs: &Path) -> Result<Self> {
        std::fs::create_dir_all(logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let out = logs.join(format!("{name}.out"));
        let err = logs.join(format!("{name}.err"));
        command.stdin(Stdio::null()).stdout(append(&out)?).stderr(append(&err)?);
        let shown = format!("{command:?}");
        let child = spawner::spawn(command).with_context(|| format!("cannot start {name}: {shown}"))?;
        let pid = Pid::from_child(&child);
        Ok(Self { name: name.to_owned(), pid, child: Mutex::new(child), out, err })
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, as the system shows it.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// What it has written to stdout so far, lossily decoded.
    pub fn stdout(&self) -> String {
        read_lossy(&self.out)
    }

    /// What it has written to stderr so far, lossily decoded.
    pub fn stderr(&self) -> String {
        read_lossy(&self.err)
    }

    /// Its exit status, once it has ended.
    ///
    /// # Errors
    /// When the system refuses to say.
    pub fn exit_status(&self) -> Result<Option<ExitStatus>> {
        self.lock().try_wait().with_context(|| format!("cannot ask after {}", self.name))
    }

    /// Whether it still runs (a stopped process does).
    pub fn is_running(&self) -> bool {
        matches!(self.exit_status(), Ok(None))
    }

    /// Sends `signal` to this process alone, not to its group.
    ///
    /// # Errors
    /// When it has ended, or may not be signalled.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock keeps the child from being reaped meanwhile, so the pid cannot have passed to another process.
        let mut child = self.lock();
        if let Some(status) = child.try_wait()? {
            bail!("{} has already ended: {status}", self.name);
        }
        kill_process(self.pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Kills it at once (SIGKILL) and waits until it is gone. Its own children live on, as they would after a crash.
    ///
    /// # Errors
    /// When it is not gone in time.
    pub async fn kill9(&self) -> Result<ExitStatus> {
        if self.is_running() {
            self.signal(Signal::KILL)?;
        }
        self.wait(REAP_DEADLINE).await
    }

    /// Asks it to end (SIGTERM) and waits for at most `grace`.
    ///
    /// # Errors
    /// When it still runs after `grace`.
    pub async fn terminate(&self, grace: Duration) -> Result<ExitStatus> {
        if self.is_running() {
            self.signal(Signal::TERM)?;
        }
        self.wait(grace).await
    }

    /// Stops it where it stands (SIGSTOP): it lives, and does nothing. All its threads stand still when this returns.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        // The signal only asks; the kernel reports the stop once the last thread stands. An end ends the wait too, and stays to be reaped.
        let stopped_or_ended = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid), stopped_or_ended).with_context(|| format!("cannot wait for {} to stop", self.name))?;
        Ok(())
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it still runs after `deadline`; the message ends with what it last wrote.
    pub async fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        let ended = || async { self.exit_status().transpose() };
        match try_eventually(deadline, &format!("{} ends", self.name), ended).await {
            Ok(status) => status,
            Err(late) => bail!("{late}; it last wrote:\n{}", last_lines(&self.stderr())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.lock();
        if matches!(child.try_wait(), Ok(None)) {
            // Group first: what the child started and kept in its group goes with it.
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The end of a log, for messages.
pub(crate) fn last_lines(text: &str) -> String {
    const SHOWN: usize = 20;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

fn append(path: &Path) -> Result<File> {
    File::options().create(true).append(true).open(path).with_context(|| format!("cannot open {}", path.display()))
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
