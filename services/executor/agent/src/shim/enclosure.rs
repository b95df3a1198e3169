//! A cgroup around a member's tree, where the machine lets us make one: nothing in it can step out of a kill.
//!
//! First choice is the unified tree (`cgroup.kill`), then a v1 freezer (freeze, kill each, thaw). Where neither can be made the tree is
//! held by the subreaper and /proc alone. A memory limit is put where a memory controller takes one.

use super::{files::ProcessId, tree};
use rustix::process::Signal;
use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// The cgroup folders of one member.
#[derive(Debug)]
pub(crate) struct Enclosure {
    kind: Kind,
    path: PathBuf,
    memory: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unified,
    Freezer,
}

/// The folder of this process in the hierarchy with `controller` (`""`: the unified one), if it is mounted where systems mount it.
fn own_group(controller: &str) -> Option<PathBuf> {
    let listed = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = listed.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then(|| path.trim_start_matches('/').to_owned())
    })?;
    let mounts: &[&str] = if controller.is_empty() { &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] } else { &["/sys/fs/cgroup"] };
    let root = mounts.iter().map(|mount| Path::new(mount).join(controller));
    root.map(|root| root.join(&own)).find(|group| group.join("cgroup.procs").is_file())
}

impl Enclosure {
    /// Makes a group called `name`, or says that there is none to be had.
    pub(crate) fn create(name: &str, memory_bytes: Option<u64>) -> Option<Self> {
        let unified = own_group("").and_then(|parent| make(&parent, name)).filter(|group| group.join("cgroup.kill").is_file());
        let (kind, path) = match unified {
            Some(path) => (Kind::Unified, path),
            None => (Kind::Freezer, own_group("freezer").and_then(|parent| make(&parent, name))?),
        };
        let memory = memory_bytes.and_then(|bytes| limit_memory(kind, &path, name, bytes));
        Some(Self { kind, path, memory })
    }

    /// The group that an earlier shim made at `path`.
    pub(crate) fn reopen(path: &Path) -> Option<Self> {
        let kind = if path.join("cgroup.kill").is_file() { Kind::Unified } else { Kind::Freezer };
        let name = path.file_name()?;
        let memory = own_group("memory").map(|parent| parent.join(name)).filter(|group| group.is_dir());
        path.join("cgroup.procs").is_file().then(|| Self { kind, path: path.to_owned(), memory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files into which a new process writes `0` to step in.
    pub(crate) fn doors(&self) -> io::Result<Vec<File>> {
        let separate = self.memory.iter().filter(|memory| **memory != self.path);
        std::iter::once(&self.path).chain(separate).map(|group| OpenOptions::new().write(true).open(group.join("cgroup.procs"))).collect()
    }

    /// Kills what is in the group now. What is being forked is caught by the kernel (`cgroup.kill`) or cannot fork (frozen).
    pub(crate) fn kill(&self) {
        match self.kind {
            Kind::Unified => {
                let _ = fs::write(self.path.join("cgroup.kill"), "1");
            }
            Kind::Freezer => {
                let state = self.path.join("freezer.state");
                let _ = fs::write(&state, "FROZEN");
                for process in self.processes() {
                    tree::signal(process, Signal::KILL);
                }
                let _ = fs::write(&state, "THAWED");
            }
        }
    }

    /// Who is in the group.
    pub(crate) fn processes(&self) -> Vec<ProcessId> {
        let listed = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        listed.lines().filter_map(|line| tree::identify(line.trim().parse().ok()?)).collect()
    }

    /// Whether the kernel has killed here for want of memory; `None` where nobody counts it for this group alone.
    pub(crate) fn out_of_memory(&self) -> Option<bool> {
        // The unified tree counts it without a limit too.
        let group = self.memory.as_ref().unwrap_or(&self.path);
        let counts = ["memory.events", "memory.oom_control"].iter().filter_map(|file| {
            let text = fs::read_to_string(group.join(file)).ok()?;
            count(&text, "oom_kill")
        });
        counts.max().map(|most| most > 0)
    }

    /// Removes the empty group.
    pub(crate) fn remove(&self) {
        for group in std::iter::once(&self.path).chain(&self.memory) {
            let _ = fs::remove_dir(group);
        }
    }
}

/// How many processes of this machine the kernel has killed for want of memory since the boot, as far as it says.
pub(crate) fn killed_on_machine() -> Option<u64> {
    count(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill")
}

/// The number that stands behind `name` on a line of its own.
fn count(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn make(parent: &Path, name: &str) -> Option<PathBuf> {
    let group = parent.join(name);
    match fs::create_dir(&group) {
        Ok(()) => Some(group),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Some(group),
        Err(_) => None,
    }
}

fn limit_memory(kind: Kind, group: &Path, name: &str, bytes: u64) -> Option<PathBuf> {
    if kind == Kind::Unified && fs::write(group.join("memory.max"), bytes.to_string()).is_ok() {
        return Some(group.to_owned());
    }
    let legacy = own_group("memory").and_then(|parent| make(&parent, name))?;
    if fs::write(legacy.join("memory.limit_in_bytes"), bytes.to_string()).is_ok() {
        return Some(legacy);
    }
    let _ = fs::remove_dir(&legacy);
    None
}
