//! Watching a tree until it is empty. One thread, one loop: reap, look at the clock, the lease and the bell, sleep.

use super::{
    ShimError,
    enclosure::{Enclosure, killed_on_machine},
    files::{EndedBy, Exit, Lease, MemberDir, ProcessId, ShimSpec, Stop, WorkerExit},
    tree,
};
use crate::{boot, durable};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    time::Duration,
};

/// Longest sleep: bounds how late an expired lease is seen.
const TICK_MS: u64 = 1_000;
/// Sleep while processes are being waited out or killed.
const BUSY_TICK_MS: u64 = 10;
/// How long the other workers may still fail on their own after the first failure, so that a failure of theirs is not called ours.
const SETTLE_MS: u64 = 100;
/// How long what outlives the workers may end on its own before it gets TERM.
const LINGER_MS: u64 = 500;
/// Pause before the end is tried to be recorded again.
const RECORD_PAUSE: Duration = Duration::from_millis(250);
/// How often an unreadable lease file is read before that means that the lease is over.
const LEASE_TRIES: u32 = 5;
const LEASE_PAUSE: Duration = Duration::from_millis(20);
const MILLI: u64 = 1_000_000;

/// Any child, whatever signal its end is told by (`__WALL`).
const WAIT_ALL: u32 = 0x4000_0000;

/// `millis` after `now`.
fn after(now: u64, millis: u64) -> u64 {
    now.saturating_add(millis.saturating_mul(MILLI))
}

pub(super) fn wall_ns() -> i64 {
    footplate_clock::now().as_nanos()
}

/// All that the supervisor knows.
pub(super) struct World {
    pub(super) spec: ShimSpec,
    pub(super) boot_id: String,
    pub(super) enclosure: Option<Enclosure>,
    /// Living workers: number and rank.
    pub(super) running: BTreeMap<i32, u32>,
    pub(super) ended: Vec<WorkerExit>,
    lease: Lease,
    bell: File,
    phase: Phase,
    stop: Option<Stop>,
    lease_expired: bool,
    /// Who outlived the workers and was killed.
    leftovers: BTreeSet<ProcessId>,
    terminated_leftovers: bool,
    /// How many the kernel had killed on this machine for want of memory before.
    killed_before: Option<u64>,
}

/// How far the end has come. Deadlines are boot-time nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// A worker has failed; TERM goes to the others at `term_at`.
    Settling {
        term_at: u64,
    },
    /// The warning of a stop was sent; the stop itself is due at `term_at`.
    Noticed {
        term_at: u64,
    },
    /// TERM was sent; what lives at `kill_at` is killed.
    Ending {
        by: EndedBy,
        kill_at: u64,
    },
    /// Every worker has ended; others of the tree have not.
    Lingering {
        term_at: u64,
    },
    Killing {
        by: EndedBy,
    },
}

impl World {
    pub(super) fn new(spec: ShimSpec, lease: Lease, boot_id: String, bell: File, enclosure: Option<Enclosure>) -> Self {
        Self {
            spec,
            boot_id,
            enclosure,
            running: BTreeMap::new(),
            ended: Vec::new(),
            lease,
            bell,
            phase: Phase::Running,
            stop: None,
            lease_expired: false,
            leftovers: BTreeSet::new(),
            terminated_leftovers: false,
            killed_before: killed_on_machine(),
        }
    }

    /// Collects every process that has ended. Returns whether none is left: the kernel's word that the tree is empty.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::from_bits_retain(WAIT_ALL)) {
                Ok(Some((pid, status))) => self.record(pid, status),
                Ok(None) => return false,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    fn record(&mut self, pid: Pid, status: WaitStatus) {
        let Some(rank) = self.running.remove(&pid.as_raw_nonzero().get()) else { return };
        let ended_by = match self.phase {
            Phase::Running | Phase::Settling { .. } | Phase::Lingering { .. } => EndedBy::Itself,
            Phase::Noticed { .. } => EndedBy::Stop,
            Phase::Ending { by, .. } | Phase::Killing { by } => by,
        };
        let (code, signal) = (status.exit_status(), status.terminating_signal());
        self.ended.push(WorkerExit { rank, code, signal, launch_error: None, at_ns: wall_ns(), ended_by });
    }

    /// The signal goes to each worker and its process group: a shell that stands before the program passes nothing on. A torchrun parent
    /// gets it as a worker and forwards it itself.
    fn signal_workers(&self, signal: Signal) {
        for pid in self.running.keys().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Warns whoever in the tree has a handler for it.
    fn warn_all(&self, signal: Signal) {
        for process in tree::descendants(std::process::id() as i32) {
            if tree::catches(process, signal) {
                tree::signal(process, signal);
            }
        }
    }

    /// Sends the stop's own signal and sets the time of the KILL.
    fn begin_ending(&mut self, stop: &Stop, now: u64) {
        self.phase = Phase::Ending { by: EndedBy::Stop, kill_at: after(now, stop.grace_ms) };
        self.signal_workers(Signal::from_named_raw(stop.signal).unwrap_or(Signal::TERM));
    }

    fn terminate_all(&self) {
        for process in tree::descendants(std::process::id() as i32) {
            tree::signal(process, Signal::TERM);
        }
    }

    fn kill_all(&mut self) {
        let living = tree::descendants(std::process::id() as i32);
        if self.running.is_empty() {
            self.leftovers.extend(&living);
        }
        if let Some(enclosure) = &self.enclosure {
            enclosure.kill();
        }
        for process in living {
            tree::signal(process, Signal::KILL);
        }
    }

    /// Kills the whole tree and waits until nothing of it is left.
    pub(super) fn abandon(&mut self) {
        while !self.reap() {
            self.kill_all();
            std::thread::sleep(Duration::from_millis(BUSY_TICK_MS));
        }
        if let Some(enclosure) = &self.enclosure {
            enclosure.remove();
        }
    }

    /// Empties the bell; the last wish that it carried.
    fn listen(&mut self) -> Option<Stop> {
        let mut said = Vec::new();
        let mut piece = [0u8; 4096];
        while let Ok(count) = self.bell.read(&mut piece)
            && count > 0
        {
            said.extend_from_slice(&piece[..count]);
        }
        said.split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok())
    }

    /// Reads the agent's wish. The file is the truth, the bell only wakes; a later wish may shorten the grace, never lengthen it.
    fn look_for_stop(&mut self, dir: &MemberDir, now: u64) {
        let rung = self.listen();
        // On a full disk there may be no file: then the bell itself has said what is wished.
        let Some(stop) = durable::read_json::<Stop>(&dir.stop()).ok().flatten().or(rung) else { return };
        match self.phase {
            Phase::Running | Phase::Settling { .. } if !self.running.is_empty() => match stop.notice {
                Some(notice) => {
                    self.phase = Phase::Noticed { term_at: after(now, notice.before_ms) };
                    if let Some(signal) = Signal::from_named_raw(notice.signal) {
                        self.warn_all(signal);
                    }
                }
                None => self.begin_ending(&stop, now),
            },
            Phase::Noticed { .. } if stop.notice.is_none() => self.begin_ending(&stop, now),
            Phase::Ending { by, kill_at } if after(now, stop.grace_ms) < kill_at && self.stop.as_ref() != Some(&stop) => {
                self.phase = Phase::Ending { by, kill_at: after(now, stop.grace_ms) };
            }
            Phase::Running
            | Phase::Settling { .. }
            | Phase::Noticed { .. }
            | Phase::Ending { .. }
            | Phase::Lingering { .. }
            | Phase::Killing { .. } => return,
        }
        // The cause that was told first is the one that was obeyed.
        let cause = self.stop.take().map_or_else(|| stop.cause.clone(), |first| first.cause);
        self.stop = Some(Stop { cause, ..stop });
    }

    /// The lease file is read again only when what was read has run out. Unreadable means expired: nobody could tell otherwise.
    fn look_at_lease(&mut self, now: u64) {
        if self.lease.holds(&self.boot_id, now) || self.lease_expired {
            return;
        }
        for _ in 0..LEASE_TRIES {
            if let Ok(Some(lease)) = Lease::read(&self.spec.lease) {
                self.lease = lease;
                break;
            }
            // It is being written in place, as on a full disk.
            std::thread::sleep(LEASE_PAUSE);
        }
        if !self.lease.holds(&self.boot_id, now) {
            self.lease_expired = true;
            self.phase = Phase::Killing { by: EndedBy::Lease };
        }
    }

    fn advance(&mut self, now: u64) {
        let failed = self.ended.iter().any(|worker| !worker.succeeded());
        if self.running.is_empty() && matches!(self.phase, Phase::Running | Phase::Settling { .. }) {
            self.phase = Phase::Lingering { term_at: after(now, LINGER_MS) };
        }
        match self.phase {
            Phase::Running if failed => self.phase = Phase::Settling { term_at: after(now, SETTLE_MS) },
            Phase::Settling { term_at } if now >= term_at => {
                self.phase = Phase::Ending { by: EndedBy::Peer, kill_at: after(now, self.spec.peer_grace_ms) };
                self.signal_workers(Signal::TERM);
            }
            Phase::Noticed { term_at } if now >= term_at || self.running.is_empty() => {
                if let Some(stop) = self.stop.clone() {
                    self.begin_ending(&stop, now);
                }
            }
            Phase::Ending { by, kill_at } if now >= kill_at => self.phase = Phase::Killing { by },
            Phase::Ending { by, kill_at } if self.running.is_empty() && !self.terminated_leftovers => {
                self.terminated_leftovers = true;
                self.terminate_all();
                self.phase = Phase::Ending { by, kill_at: kill_at.min(after(now, self.spec.leftover_grace_ms)) };
            }
            Phase::Lingering { term_at } if now >= term_at => {
                self.terminated_leftovers = true;
                self.terminate_all();
                self.phase = Phase::Ending { by: EndedBy::Itself, kill_at: after(now, self.spec.leftover_grace_ms) };
            }
            Phase::Running
            | Phase::Settling { .. }
            | Phase::Noticed { .. }
            | Phase::Ending { .. }
            | Phase::Lingering { .. }
            | Phase::Killing { .. } => {}
        }
        if matches!(self.phase, Phase::Killing { .. }) {
            self.kill_all();
        }
    }

    /// Sleeps until a worker ends, the bell rings or something is due.
    fn sleep(&self, now: u64) {
        let handles: Vec<OwnedFd> =
            self.running.keys().filter_map(|pid| Pid::from_raw(*pid)).filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
        let blind = handles.len() < self.running.len();
        let longest = match self.phase {
            Phase::Running if !blind => TICK_MS * MILLI,
            Phase::Settling { term_at } => term_at.saturating_sub(now),
            Phase::Noticed { term_at } if !blind => term_at.saturating_sub(now),
            Phase::Ending { kill_at, .. } if !self.running.is_empty() && !blind => kill_at.saturating_sub(now),
            Phase::Running | Phase::Noticed { .. } | Phase::Ending { .. } | Phase::Lingering { .. } | Phase::Killing { .. } => {
                BUSY_TICK_MS * MILLI
            }
        };
        let nanos = longest.clamp(MILLI, TICK_MS * MILLI);
        let timeout = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let mut watched: Vec<PollFd<'_>> = handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
        watched.push(PollFd::new(&self.bell, PollFlags::IN));
        let _ = poll(&mut watched, Some(&timeout));
    }

    /// Whether the kernel killed here for want of memory. Where no group of its own counts that, the machine's count must have risen while
    /// this ran, and a worker must have been killed that nobody here had stopped: another job's kill may then be taken for ours, only for
    /// somebody who was killed by a hand unseen at the same time.
    fn out_of_memory(&self) -> bool {
        let killed = |worker: &WorkerExit| {
            worker.ended_by == EndedBy::Itself && (worker.signal == Some(Signal::KILL.as_raw()) || worker.code == Some(137))
        };
        self.enclosure.as_ref().and_then(Enclosure::out_of_memory).unwrap_or_else(|| {
            let rose = self.killed_before.zip(killed_on_machine()).is_some_and(|(before, now)| now > before);
            rose && self.ended.iter().any(killed)
        })
    }

    fn into_exit(self) -> Exit {
        let out_of_memory = self.out_of_memory();
        if let Some(enclosure) = &self.enclosure {
            enclosure.remove();
        }
        Exit {
            at_ns: wall_ns(),
            workers: self.ended,
            obeyed: self.stop.map(|stop| stop.cause),
            lease_expired: self.lease_expired,
            shim_lost: false,
            leftovers_killed: u32::try_from(self.leftovers.len()).unwrap_or(u32::MAX),
            out_of_memory,
        }
    }
}

/// Supervises until the tree is empty, then records how it ended.
pub(super) fn run(dir: &MemberDir, mut world: World) -> Result<(), ShimError> {
    loop {
        // What ended before a stop was delivered ended on its own: reap first, look for the stop second.
        if world.reap() {
            break;
        }
        let now = boot::now_ns();
        world.look_for_stop(dir, now);
        world.look_at_lease(now);
        world.advance(now);
        world.sleep(boot::now_ns());
    }
    let exit = world.into_exit();
    // Whoever waits for this record can wait for a full disk; a lost one could never be made up.
    let mut told = false;
    while let Err(error) = durable::write_json(&dir.exit(), &exit) {
        if !std::mem::replace(&mut told, true) {
            // Not `eprintln!`, which panics when its own file has no room.
            let _ = writeln!(std::io::stderr(), "the end cannot be recorded yet: {error}");
        }
        std::thread::sleep(RECORD_PAUSE);
    }
    Ok(())
}
