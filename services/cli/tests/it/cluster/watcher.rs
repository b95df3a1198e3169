//! Looks at a run's workers from outside, all the time: no two attempts of one run may live beside each other.

use footplate_testkit::{SeenProcess, processes_mentioning};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(50);

/// A thread that watches until it is asked what it saw.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Looks taken.
    pub looks: u64,
    /// The attempts of each run that had living workers at some look.
    pub attempts: BTreeMap<String, BTreeSet<u32>>,
    /// Workers of two attempts alive at once, in words.
    pub overlaps: Vec<String>,
}

impl Watcher {
    /// Watches the processes that mention `text`.
    pub fn start(text: String) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let (stopping, found) = (stop.clone(), seen.clone());
        let watch = move || {
            while !stopping.load(Ordering::Relaxed) {
                look(&text, &mut found.lock().unwrap());
                std::thread::sleep(EVERY);
            }
        };
        Self { stop, seen, thread: Some(std::thread::spawn(watch)) }
    }

    /// Ends the watch; what was seen.
    pub fn end(mut self) -> Seen {
        self.join();
        self.seen.lock().unwrap().clone()
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.join();
    }
}

/// The workers (processes with a run and an attempt in their environment) that live now.
pub fn workers(text: &str) -> Vec<(String, u32, SeenProcess)> {
    let of = |process: SeenProcess| {
        let run = process.variable("FOOTPLATE_RUN_ID")?.to_owned();
        let attempt = process.variable("FOOTPLATE_ATTEMPT")?.parse().ok()?;
        Some((run, attempt, process))
    };
    processes_mentioning(text).into_iter().filter_map(of).collect()
}

fn look(text: &str, seen: &mut Seen) {
    seen.looks += 1;
    let first = workers(text);
    for (run, attempt, _) in &first {
        seen.attempts.entry(run.clone()).or_default().insert(*attempt);
    }
    let newest = |run: &str| first.iter().filter(|(of, ..)| of == run).map(|(_, attempt, _)| *attempt).max();
    let old: Vec<_> = first.iter().filter(|(run, attempt, _)| newest(run) > Some(*attempt)).collect();
    if old.is_empty() {
        return;
    }
    // One look takes a while: only what lives still, after the newer attempt was seen, lived beside it.
    let pids: BTreeSet<u32> = workers(text).iter().map(|(.., process)| process.pid).collect();
    for (run, attempt, process) in old.iter().filter(|(.., process)| pids.contains(&process.pid)) {
        seen.overlaps.push(format!("run {run}: {:?} of attempt {attempt} beside attempt {:?}", process.argv, newest(run)));
    }
}
