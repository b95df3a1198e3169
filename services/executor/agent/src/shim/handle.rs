//! The agent's side of a shim: start it, stop it, see how it stands, clear up behind one that died.

use super::{
    ShimError,
    enclosure::Enclosure,
    files::{EndedBy, Exit, MemberDir, ShimSpec, Started, Stop, WorkerExit},
    start, supervise, tree,
};
use crate::durable;
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Pause between two looks at a tree that is being killed.
const KILL_PAUSE: Duration = Duration::from_millis(10);

/// How a member stands, by its files and its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// No shim has started anything yet.
    NotStarted,
    /// A shim lives and watches.
    Running(Started),
    /// The tree is empty and the end recorded.
    Ended(Exit),
    /// Workers were started and their shim has died: the tree must be cleared.
    Orphaned(Started),
}

/// A member's folder, seen from the agent.
#[derive(Clone, Debug)]
pub struct ShimHandle {
    dir: MemberDir,
}

impl ShimHandle {
    /// The member whose files are in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: MemberDir(dir.into()) }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir.0
    }

    /// Writes the spec, so that a shim may start it.
    pub fn write_spec(&self, spec: &ShimSpec) -> Result<(), ShimError> {
        fs::create_dir_all(&self.dir.0).map_err(ShimError::file("create", &self.dir.0))?;
        durable::write_json(&self.dir.spec(), spec).map_err(ShimError::file("write", self.dir.spec()))
    }

    /// Starts the shim with `command` (program and leading arguments; the folder is added) and waits until the workers run. Blocking.
    pub fn start(&self, command: &[OsString]) -> Result<(), ShimError> {
        let (program, arguments) = command.split_first().ok_or_else(|| ShimError::Refused("no shim command".to_owned()))?;
        let output = Command::new(program)
            .args(arguments)
            .arg(&self.dir.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(ShimError::system("start the shim"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(ShimError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// How the member stands.
    pub fn state(&self) -> Result<MemberState, ShimError> {
        if let Some(exit) = self.exit()? {
            return Ok(MemberState::Ended(exit));
        }
        let lock = if self.dir.lock().exists() { start::lock(&self.dir)?.is_none() } else { false };
        // The shim may have ended between the two looks.
        if let Some(exit) = self.exit()? {
            return Ok(MemberState::Ended(exit));
        }
        let started = self.started()?;
        Ok(match (started, lock) {
            (Some(started), true) => MemberState::Running(started),
            (Some(started), false) => MemberState::Orphaned(started),
            (None, _) => MemberState::NotStarted,
        })
    }

    /// Whether the end is recorded: one look at one file name.
    pub fn has_ended(&self) -> bool {
        self.dir.exit().exists()
    }

    /// The record of the start.
    pub fn started(&self) -> Result<Option<Started>, ShimError> {
        durable::read_json(&self.dir.started()).map_err(ShimError::file("read", self.dir.started()))
    }

    fn exit(&self) -> Result<Option<Exit>, ShimError> {
        durable::read_json(&self.dir.exit()).map_err(ShimError::file("read", self.dir.exit()))
    }

    /// Asks for the end: the wish is on disk before the bell is rung, so a shim that starts or wakes later obeys it too. On a full disk a
    /// shim that lives hears it from the bell alone.
    pub fn stop(&self, stop: &Stop) -> Result<(), ShimError> {
        let written = durable::write_json(&self.dir.stop(), stop).map_err(ShimError::file("write", self.dir.stop()));
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        // Nobody listening (not started, ended or dead) is for `state` to find out.
        let Ok(bell) = rustix::fs::open(self.dir.control(), flags, rustix::fs::Mode::empty()) else { return written };
        let mut wish = serde_json::to_vec(stop).unwrap_or_default();
        wish.push(b'\n');
        // Shorter than what a pipe takes as one piece.
        match rustix::io::write(&bell, &wish) {
            Ok(count) if count == wish.len() => Ok(()),
            Ok(_) | Err(_) => written,
        }
    }

    /// Makes sure that this member never starts: afterwards every shim that comes late refuses. `false` when one has it already.
    pub fn void(&self) -> Result<bool, ShimError> {
        fs::create_dir_all(&self.dir.0).map_err(ShimError::file("create", &self.dir.0))?;
        let Some(_lock) = start::lock(&self.dir)? else { return Ok(false) };
        if self.dir.started().exists() {
            return Ok(false);
        }
        durable::write(&self.dir.void(), b"{}").map_err(ShimError::file("write", self.dir.void()))?;
        Ok(true)
    }

    /// Kills what a dead shim left behind and records the end once nothing is left. Blocking, at most `patience`; `None` when
    /// something still lives then (a process the kernel cannot kill yet): call again.
    pub fn clear_orphans(&self, marker: &str, patience: Duration) -> Result<Option<Exit>, ShimError> {
        let Some(_lock) = start::lock(&self.dir)? else { return Ok(None) };
        let started = self.started()?;
        let enclosure = started.as_ref().and_then(|started| Enclosure::reopen(started.enclosure.as_deref()?));
        let deadline = Instant::now() + patience;
        let mut killed = 0;
        loop {
            let mut living = tree::marked(marker);
            if let Some(enclosure) = &enclosure {
                living.extend(enclosure.processes());
                enclosure.kill();
            }
            if living.is_empty() {
                break;
            }
            living.sort_unstable();
            living.dedup();
            killed += living.into_iter().filter(|process| tree::signal(*process, Signal::KILL)).count();
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(KILL_PAUSE);
        }
        if let Some(enclosure) = &enclosure {
            enclosure.remove();
        }
        let exit = self.lost_exit(u32::try_from(killed).unwrap_or(u32::MAX))?;
        durable::write_json(&self.dir.exit(), &exit).map_err(ShimError::file("write", self.dir.exit()))?;
        Ok(Some(exit))
    }

    fn lost_exit(&self, killed: u32) -> Result<Exit, ShimError> {
        let spec = durable::read_json::<ShimSpec>(&self.dir.spec()).map_err(ShimError::file("read", self.dir.spec()))?;
        let at_ns = supervise::wall_ns();
        let lost = |rank| WorkerExit { rank, code: None, signal: None, launch_error: None, at_ns, ended_by: EndedBy::ShimLost };
        let workers = spec.into_iter().flat_map(|spec| spec.workers).map(|worker| lost(worker.rank)).collect();
        Ok(Exit { at_ns, workers, obeyed: None, lease_expired: false, shim_lost: true, leftovers_killed: killed, out_of_memory: false })
    }
}
