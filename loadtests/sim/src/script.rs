//! What the trainings themselves do, fixed by the seed, the run and the attempt: how long they take to prepare and to run, and how they
//! end. In calm weather everything succeeds.

use crate::dice::Dice;
use crate::node::Key;
use crate::settings::TRAINING_MAX_MS;
use footplate_events::facts::{Exit, WorkerExit};

/// How long a member waits for the others of its gang before it fails by itself.
const COLLECTIVE_MS: u64 = 120_000;

/// The script of all trainings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    seed: u64,
}

/// What one member does.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// How long its preparation takes, in true milliseconds.
    pub(crate) prepare_ms: u64,
    pub(crate) prepare_fails: bool,
    /// How long it runs when nobody stops it.
    pub(crate) run_ms: u64,
    pub(crate) exit: Exit,
    /// How long it takes to obey a stop.
    pub(crate) stop_ms: u64,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// What a member of a gang of `members` does.
    pub(crate) fn part(&self, key: &Key, members: u32, storm: bool) -> Part {
        let mut gang = Dice::new(self.seed, &format!("gang {} {}", key.run, key.attempt));
        let run_ms = if gang.chance(500) { gang.spread(2_000, TRAINING_MAX_MS) } else { gang.between(60_000, TRAINING_MAX_MS) };
        let fails = storm && gang.chance(250);
        let culprit = gang.below(members.into()) as u32;
        let (fails_at, code) = (gang.below(run_ms), gang.below(4));
        let mut own = Dice::new(self.seed, &format!("member {key}"));
        let prepare_ms = own.spread(50, if storm { 200_000 } else { 5_000 });
        let prepare_fails = own.chance(30) && storm;
        let stop_ms = own.spread(20, 30_000);
        let (run_ms, exit) = match (fails, culprit == key.member.0) {
            (false, _) => (run_ms + own.below(500), Exit::Code(0)),
            (true, true) if code == 0 => (fails_at, Exit::Signal(11)),
            (true, true) if code == 1 => (fails_at, Exit::Code(75)),
            (true, true) if code == 2 => (fails_at, Exit::Code(WorkerExit::OUT_OF_MEMORY)),
            (true, true) => (fails_at, Exit::Code(1)),
            // The others hang in their collective until they are stopped, or until that gives up.
            (true, false) => (fails_at + COLLECTIVE_MS, Exit::Code(1)),
        };
        Part { prepare_ms, prepare_fails, run_ms, exit, stop_ms }
    }
}
