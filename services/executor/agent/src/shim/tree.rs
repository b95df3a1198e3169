//! Processes as /proc shows them: descendants, markers, and signals that cannot hit a later process with the same number.

use super::files::{MARKER_VARIABLE, ProcessId};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{collections::BTreeMap, fs};

/// What /proc/<pid>/stat says, as far as it is needed.
#[derive(Clone, Copy, Debug)]
struct Stat {
    id: ProcessId,
    parent: i32,
    zombie: bool,
}

/// Reads `/proc/<pid>/stat`. The name in brackets may hold anything, brackets too: fields are counted from the last one.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let start_ticks = fields.get(19)?.parse().ok()?;
    let zombie = matches!(*fields.first()?, "Z" | "X");
    Some(Stat { id: ProcessId { pid, start_ticks }, parent: fields.get(1)?.parse().ok()?, zombie })
}

fn every_pid() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The identity of a living process; a zombie is not living.
pub(crate) fn identify(pid: i32) -> Option<ProcessId> {
    stat(pid).filter(|stat| !stat.zombie).map(|stat| stat.id)
}

/// Every living descendant of `root`, without itself.
pub(crate) fn descendants(root: i32) -> Vec<ProcessId> {
    let mut children: BTreeMap<i32, Vec<Stat>> = BTreeMap::new();
    for stat in every_pid().filter_map(stat) {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            open.push(child.id.pid);
            if !child.zombie {
                found.push(child.id);
            }
        }
    }
    found
}

/// Every living process whose environment says that it belongs to the member with this marker.
pub(crate) fn marked(marker: &str) -> Vec<ProcessId> {
    let wanted = format!("{MARKER_VARIABLE}={marker}");
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let carries = |pid: i32| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()))
    };
    every_pid().filter(|pid| *pid != own && carries(*pid)).filter_map(identify).collect()
}

/// Whether the process has a handler of its own for the signal.
pub(crate) fn catches(process: ProcessId, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Sends a signal to exactly that process; `false` when it is gone.
pub(crate) fn signal(process: ProcessId, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => identify(process.pid) == Some(process) && pidfd_send_signal(&handle, signal).is_ok(),
        // A kernel without pidfds: the check and the signal are two steps.
        Err(rustix::io::Errno::NOSYS) => identify(process.pid) == Some(process) && rustix::process::kill_process(pid, signal).is_ok(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_a_descendant_and_a_marked_one_is_found_by_its_marker() {
        let marker = format!("tree-test-{}", std::process::id());
        let mut child = Command::new("sleep").arg("60").env(MARKER_VARIABLE, &marker).spawn().unwrap();
        let id = identify(child.id() as i32).unwrap();
        assert!(descendants(std::process::id() as i32).contains(&id));
        // The parent goes on a moment before the kernel has laid out the new program's environment.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while marked(&marker) != vec![id] {
            assert!(std::time::Instant::now() < deadline, "{:?}", marked(&marker));
            std::thread::yield_now();
        }
        let stale = ProcessId { start_ticks: id.start_ticks + 1, ..id };
        assert!(!signal(stale, Signal::KILL), "another process under this number is left alone");
        assert!(signal(id, Signal::KILL));
        child.wait().unwrap();
        assert_eq!(identify(id.pid), None);
    }
}
