//! The files through which agent and shim speak, all in the member's folder. Each is whole or absent.
//!
//! `spec.json` (agent, before the start), `lock` (held by the living shim), `started.json`, `stop.json` (agent; `control`, a named
//! pipe, is only its bell), `exit.json` (shim, or the agent for a shim that died), `void.json` (agent: this member must never start).

use crate::durable;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// Bytes of a lease file.
const LEASE_BYTES: usize = 256;

/// The environment variable that marks every process of a member.
pub const MARKER_VARIABLE: &str = "FOOTPLATE_MEMBER";

/// What a shim is to start and how it ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimSpec {
    /// Value of [`MARKER_VARIABLE`]: `<run>-<n>-<member>-<token>`; the token keeps apart agents on one machine.
    pub marker: String,
    /// The agent's lease file.
    pub lease: PathBuf,
    /// The processes, started in this order.
    pub workers: Vec<WorkerSpec>,
    /// Milliseconds between the TERM and the KILL of the other workers once one has failed.
    pub peer_grace_ms: u64,
    /// Milliseconds between the TERM and the KILL of what outlives the workers.
    pub leftover_grace_ms: u64,
    /// Bytes of memory the whole tree may use; only held where a memory cgroup can be made.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// One process of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Its rank in the gang (of a torchrun command: the rank of its first worker).
    pub rank: u32,
    /// Program and arguments, at least one.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The folder it starts in.
    pub cwd: PathBuf,
    /// File its stdout is appended to.
    pub stdout: PathBuf,
    /// File its stderr is appended to.
    pub stderr: PathBuf,
}

/// Written once every worker was started or has failed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The shim.
    pub shim: ProcessId,
    /// The boot all of this belongs to.
    pub boot_id: String,
    /// Wall clock, nanoseconds since 1970, only to be shown.
    pub at_ns: i64,
    /// The workers that run.
    pub workers: Vec<StartedWorker>,
    /// The cgroup that holds the tree; absent when none could be made.
    pub enclosure: Option<PathBuf>,
}

/// One worker that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedWorker {
    /// Its rank.
    pub rank: u32,
    /// Its process.
    pub process: ProcessId,
}

/// A process, told apart from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Clock ticks between boot and its start.
    pub start_ticks: u64,
}

/// Written when the tree is empty; the last word on a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Wall clock, nanoseconds since 1970, only to be shown.
    pub at_ns: i64,
    /// How each worker ended, in the order in which they did.
    pub workers: Vec<WorkerExit>,
    /// The cause in the stop that was delivered while a worker lived; absent when they ended on their own.
    pub obeyed: Option<String>,
    /// The lease had run out.
    pub lease_expired: bool,
    /// The shim died before its tree; the agent cleared it.
    pub shim_lost: bool,
    /// Processes that outlived the workers and had to be killed.
    pub leftovers_killed: u32,
    /// The kernel killed something of the tree for want of memory, as far as it could be seen.
    #[serde(default)]
    pub out_of_memory: bool,
}

/// How one worker ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerExit {
    /// Its rank.
    pub rank: u32,
    /// Its exit code, when it exited; the shells' code where its program is missing (127) or is none (126).
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it could not be started at all.
    pub launch_error: Option<String>,
    /// Wall clock, nanoseconds since 1970.
    pub at_ns: i64,
    /// Who ended it.
    pub ended_by: EndedBy,
}

impl WorkerExit {
    /// Whether it exited 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

/// Who ended a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// It ended on its own.
    Itself,
    /// The platform's stop.
    Stop,
    /// Another worker of the member had failed.
    Peer,
    /// The lease had run out.
    Lease,
    /// The shim died.
    ShimLost,
}

/// The agent's wish that the tree end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why, given back in [`Exit::obeyed`].
    pub cause: String,
    /// Number of the signal that asks the workers to end.
    pub signal: i32,
    /// Milliseconds from that signal to KILL.
    pub grace_ms: u64,
    /// A warning ahead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
}

/// A warning ahead of a stop. It reaches only processes that catch it: a warning kills nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Number of the signal.
    pub signal: i32,
    /// Milliseconds from it to the stop's own signal.
    pub before_ms: u64,
}

impl Stop {
    /// TERM, then KILL after `grace_ms`.
    pub fn term(cause: impl Into<String>, grace_ms: u64) -> Self {
        Self { cause: cause.into(), signal: 15, grace_ms, notice: None }
    }

    /// KILL at once.
    pub fn kill(cause: impl Into<String>) -> Self {
        Self::term(cause, 0)
    }

    /// Milliseconds until KILL at the latest. The ledger may hold jobs from before their sum had a limit.
    pub fn longest_ms(&self) -> u64 {
        self.grace_ms.saturating_add(self.notice.map_or(0, |notice| notice.before_ms))
    }
}

/// Until when the node may run what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The boot the deadline is counted in.
    pub boot_id: String,
    /// Nanoseconds of the boot-time clock; absent means no end.
    pub until_boot_ns: Option<u64>,
}

impl Lease {
    /// Whether it still runs at `now_ns` of boot `boot_id`.
    pub fn holds(&self, boot_id: &str, now_ns: u64) -> bool {
        self.boot_id == boot_id && self.until_boot_ns.is_none_or(|until| now_ns < until)
    }

    /// Writes the lease file. A full disk must not end what runs: then the old file's own bytes are written over.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        // Always the same length, so that a later one fits into an earlier one's place.
        bytes.resize(bytes.len().max(LEASE_BYTES), b' ');
        durable::write_or_overwrite(path, &bytes)
    }

    /// Reads the lease file.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        durable::read_json(path)
    }
}

/// The paths in a member's folder.
#[derive(Clone, Debug)]
pub struct MemberDir(pub PathBuf);

impl MemberDir {
    pub(crate) fn spec(&self) -> PathBuf {
        self.0.join("spec.json")
    }
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
    pub(crate) fn started(&self) -> PathBuf {
        self.0.join("started.json")
    }
    pub(crate) fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }
    pub(crate) fn stop(&self) -> PathBuf {
        self.0.join("stop.json")
    }
    pub(crate) fn void(&self) -> PathBuf {
        self.0.join("void.json")
    }
    pub(crate) fn control(&self) -> PathBuf {
        self.0.join("control")
    }
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("shim.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_whose_times_add_up_to_more_than_can_be_counted_waits_as_long_as_can_be() {
        let notice = Some(Notice { signal: 10, before_ms: u64::MAX });
        assert_eq!(Stop { notice, ..Stop::term("drained", 30_000) }.longest_ms(), u64::MAX);
        assert_eq!(Stop::term("drained", 30_000).longest_ms(), 30_000);
    }
}
