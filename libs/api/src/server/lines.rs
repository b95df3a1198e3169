//! The lines in which an instance's writers of one thing stand: they would only chase each other otherwise.

use crate::refusal::{Refusal, reason};
use std::fmt::Display;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

/// How many lines there are; things share them.
const LINES: usize = 64;

/// One line: whose turn it is, and the room for those who are in it.
#[derive(Debug)]
struct Line {
    turn: Mutex<()>,
    room: Semaphore,
}

/// The lines of one kind of thing.
#[derive(Debug)]
pub struct Lines {
    lines: [Line; LINES],
    within: Duration,
}

/// A writer's turn: until it is dropped nobody else of the line writes.
#[derive(Debug)]
pub struct Turn<'a> {
    _turn: MutexGuard<'a, ()>,
    _room: SemaphorePermit<'a>,
}

impl Lines {
    /// Lines in which `waiting_max` may wait behind the one that writes, each for `within` at most.
    pub fn new(waiting_max: usize, within: Duration) -> Self {
        let room = waiting_max.saturating_add(1).min(Semaphore::MAX_PERMITS);
        let lines = std::array::from_fn(|_| Line { turn: Mutex::new(()), room: Semaphore::new(room) });
        Self { lines, within }
    }

    /// Waits for a turn in the line of `number`; `kind` and `name` say to a person what is written to.
    ///
    /// # Errors
    /// When the line is full, or does not move in time: nothing is decided yet then.
    pub async fn turn(&self, number: u8, kind: &str, name: impl Display) -> Result<Turn<'_>, Refusal> {
        let line = &self.lines[usize::from(number) % LINES];
        let overloaded = |why: &str| Refusal::new(&reason::TOO_MANY_REQUESTS, format!("{kind} {name}: {why}; nothing was written"));
        let room = line.room.try_acquire().map_err(|_| overloaded("too many writers wait before this one"))?;
        let turn = tokio::time::timeout(self.within, line.turn.lock()).await;
        let turn = turn.map_err(|_| overloaded("the writers before this one did not end in time"))?;
        Ok(Turn { _turn: turn, _room: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_line_refuses_at_once_and_a_standing_one_in_time_and_both_take_writers_again() {
        let lines = Lines::new(1, Duration::from_secs(10));
        let writing = lines.turn(7, "run", "r").await.unwrap();
        let waiting = lines.turn(7, "run", "r");
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let full = lines.turn(7, "run", "r").await.unwrap_err();
        assert_eq!(full.reason, "TOO_MANY_REQUESTS");
        assert_eq!(waiting.await.unwrap_err().reason, "TOO_MANY_REQUESTS", "it has waited its time");
        let next = lines.turn(7, "run", "r");
        tokio::pin!(next);
        assert!(futures::poll!(&mut next).is_pending(), "who has left has made room");
        drop(writing);
        drop(next.await.unwrap());
        drop(lines.turn(7, "run", "r").await.unwrap());
    }
}
