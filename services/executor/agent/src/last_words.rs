//! How a member ended, in the words of the ledger: exits in the order that tells the cause, and what each worker said last. Pure but for
//! reading the ends of its files.

use crate::{
    out_of_memory,
    prepare::error_file,
    shim::{EndedBy, Exit as ShimExit, WorkerExit as ShimWorkerExit},
};
use footplate_events::facts::{Exit, MemoryKind, StopCause, WorkerExit, cut_text};
use footplate_types::Rank;
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// Bytes looked at for a last line.
const LAST_BYTES: u64 = 8 << 10;
/// Characters of a message.
const MESSAGE_CHARACTERS: usize = 1_000;
/// Failures this close together may be one failure and its echoes.
const ECHO_NS: i64 = 3_000_000_000;
/// How an echo of another worker's death reads.
const ECHOES: [&str; 10] = [
    "connection reset",
    "connection closed",
    "connection refused",
    "broken pipe",
    "socket closed",
    "timed out",
    "timeout",
    "connectionreseterror",
    "brokenpipeerror",
    "nccl error",
];

/// The stop that a shim's record names; a lease that ran out is a fence of the node's own.
pub(crate) fn obeyed(exit: &ShimExit) -> Option<StopCause> {
    if exit.lease_expired {
        return Some(StopCause::Fenced);
    }
    let name = exit.obeyed.clone()?;
    Some(serde_json::from_value(serde_json::Value::String(name)).unwrap_or(StopCause::Cancelled))
}

/// Every worker's exit, the cause first.
pub(crate) fn worker_exits(exit: &ShimExit, member_dir: &Path, stderr_of: impl Fn(u32) -> PathBuf) -> Vec<WorkerExit> {
    let first_ns = exit.workers.iter().map(|worker| worker.at_ns).min().unwrap_or(0);
    let said = |worker| message(exit, worker, &error_file(member_dir, worker.rank), &stderr_of(worker.rank));
    let mut told: Vec<(&ShimWorkerExit, String)> = exit.workers.iter().map(|worker| (worker, said(worker))).collect();
    put_echoes_last(&mut told);
    let memory = |(worker, said): &(&ShimWorkerExit, String)| (worker.rank, out_of_memory::kind(worker, exit.out_of_memory, said));
    let memories: BTreeMap<u32, Option<MemoryKind>> = told.iter().map(memory).collect();
    let culprit = told.iter().find(|(worker, _)| is_failure(worker)).map(|(worker, _)| worker.rank);
    for (_, message) in told.iter_mut().filter(|(worker, _)| worker.ended_by == EndedBy::Peer && !worker.succeeded()) {
        let who = culprit.map_or_else(|| "another worker".to_owned(), |rank| format!("rank {rank}"));
        *message = format!("stopped by the platform after {who} had failed");
    }
    let memory = |rank: u32| memories.get(&rank).copied().flatten();
    let after_ms = |at_ns: i64| u64::try_from((at_ns - first_ns) / 1_000_000).unwrap_or(0);
    told.into_iter()
        .map(|(worker, message)| WorkerExit {
            rank: Rank(worker.rank),
            exit: ended(worker),
            after_ms: after_ms(worker.at_ns),
            message,
            out_of_memory: memory(worker.rank),
        })
        .collect()
}

fn ended(worker: &ShimWorkerExit) -> Exit {
    match (&worker.launch_error, worker.code, worker.signal) {
        (_, Some(code), _) => Exit::Code(code),
        (Some(error), None, _) => Exit::NotStarted(cut_text(error)),
        (None, None, Some(signal)) => Exit::Signal(signal),
        (None, None, None) => Exit::Unknown("its supervisor died, or the machine was started anew; nothing of it runs".to_owned()),
    }
}

fn is_failure(worker: &ShimWorkerExit) -> bool {
    !worker.succeeded() && worker.ended_by == EndedBy::Itself
}

/// A worker that died because another had died may be seen first. Of failures close together, those that speak of a broken connection come
/// after those that don't; otherwise the order stays that of the exits.
fn put_echoes_last(told: &mut [(&ShimWorkerExit, String)]) {
    let Some(start) = told.iter().position(|(worker, _)| is_failure(worker)) else { return };
    let first_ns = told[start].0.at_ns;
    let close = told[start..].iter().take_while(|(worker, _)| is_failure(worker) && worker.at_ns - first_ns <= ECHO_NS).count();
    let is_echo = |message: &str| {
        let lower = message.to_lowercase();
        ECHOES.iter().any(|echo| lower.contains(echo))
    };
    told[start..start + close].sort_by_key(|(_, message)| is_echo(message));
}

fn message(exit: &ShimExit, worker: &ShimWorkerExit, error_file: &Path, stderr: &Path) -> String {
    if worker.succeeded() {
        return String::new();
    }
    match worker.ended_by {
        EndedBy::Stop => return "stopped by the platform".to_owned(),
        EndedBy::Lease => return "killed: the node's lease had run out".to_owned(),
        EndedBy::Peer | EndedBy::Itself | EndedBy::ShimLost => {}
    }
    if let Some(error) = &worker.launch_error {
        return short(error);
    }
    let said = exception(error_file).or_else(|| last_line(stderr)).unwrap_or_default();
    if exit.out_of_memory && out_of_memory::was_killed(worker) {
        short(&format!("killed for want of memory; {said}"))
    } else {
        short(&said)
    }
}

fn short(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= MESSAGE_CHARACTERS {
        return text.to_owned();
    }
    text.chars().take(MESSAGE_CHARACTERS - 3).chain("...".chars()).collect()
}

/// The exception that torch's `@record` left, or that torchrun copied there.
fn exception(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let message = value.get("message")?;
    let text = message.as_str().or_else(|| message.get("message").and_then(serde_json::Value::as_str))?;
    Some(text.to_owned())
}

fn last_line(path: &Path) -> Option<String> {
    let tail = last_bytes(path).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let line = text.split(['\n', '\r']).rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).collect())
}

fn last_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(LAST_BYTES);
    let mut bytes = vec![0u8; (length - from) as usize];
    let count = file.read_at(&mut bytes, from)?;
    bytes.truncate(count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn worker(rank: u32, code: i32, at_ms: i64, ended_by: EndedBy) -> ShimWorkerExit {
        ShimWorkerExit { rank, code: Some(code), signal: None, launch_error: None, at_ns: at_ms * 1_000_000, ended_by }
    }

    fn exit(workers: Vec<ShimWorkerExit>) -> ShimExit {
        ShimExit { at_ns: 0, workers, obeyed: None, lease_expired: false, shim_lost: false, leftovers_killed: 0, out_of_memory: false }
    }

    #[test]
    fn the_exception_comes_before_the_broken_connection_that_was_seen_first() {
        let dir = tempfile::tempdir().unwrap();
        let stderr = |rank: u32| dir.path().join(format!("{rank}.err"));
        fs::write(stderr(0), "Traceback\nRuntimeError: Connection closed by peer [127.0.0.1]:1234\n").unwrap();
        fs::write(stderr(2), b"\xff\xfe noise\nValueError: loss is NaN\n\n").unwrap();
        let record = exit(vec![worker(0, 1, 100, EndedBy::Itself), worker(2, 1, 150, EndedBy::Itself), worker(1, 143, 400, EndedBy::Peer)]);
        let told = worker_exits(&record, dir.path(), stderr);
        assert_eq!(told.iter().map(|worker| worker.rank.0).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!((told[0].message.as_str(), told[0].after_ms), ("ValueError: loss is NaN", 50));
        assert!(told[2].message.contains("stopped by the platform after rank 2 had failed"), "{}", told[2].message);
        fs::create_dir_all(dir.path().join("errors")).unwrap();
        fs::write(error_file(dir.path(), 2), r#"{"message":{"message":"ValueError: recorded","extraInfo":{}}}"#).unwrap();
        assert_eq!(worker_exits(&record, dir.path(), stderr)[0].message, "ValueError: recorded");
    }

    #[test]
    fn the_order_of_exits_stands_when_no_echo_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let record = exit(vec![worker(3, 7, 0, EndedBy::Itself), worker(1, 9, 20, EndedBy::Itself)]);
        let told = worker_exits(&record, dir.path(), |_| dir.path().join("absent"));
        assert_eq!(
            told.iter().map(|worker| (worker.rank.0, worker.exit.clone())).collect::<Vec<_>>(),
            [(3, Exit::Code(7)), (1, Exit::Code(9))]
        );
    }

    #[test]
    fn a_lease_that_ran_out_is_a_fence_and_a_named_stop_reads_back() {
        assert_eq!(obeyed(&exit(Vec::new())), None);
        assert_eq!(obeyed(&ShimExit { lease_expired: true, ..exit(Vec::new()) }), Some(StopCause::Fenced));
        assert_eq!(obeyed(&ShimExit { obeyed: Some("timed_out".to_owned()), ..exit(Vec::new()) }), Some(StopCause::TimedOut));
    }
}
