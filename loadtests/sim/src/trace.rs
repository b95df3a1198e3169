//! What happened, as a hash over everything and as the last lines of what mattered.

use crate::clock::Time;
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// FNV-1a, 64 bits (Fowler, Noll, Vo): the same everywhere, unlike the standard library's hasher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// The trace of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: Hash,
    lines: VecDeque<String>,
}

impl Trace {
    /// How many lines are kept for the report of a failure.
    const LINES_MAX: usize = 4_000;

    /// Takes a step into the hash alone.
    pub(crate) fn step(&mut self, at: Time, kind: u64, whose: u64) {
        for part in [at, kind, whose] {
            self.hash.add(&part.to_be_bytes());
        }
    }

    /// Takes in something that a person would want to read.
    pub(crate) fn line(&mut self, at: Time, text: String) {
        self.hash.add(text.as_bytes());
        if self.lines.len() >= Self::LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>9}.{:03} {text}", at / 1_000, at % 1_000));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// The last `most` lines that hold one of these words; all of the last ones when there is no word.
    pub(crate) fn last(&self, most: usize, words: &[String]) -> Vec<String> {
        let matters = |line: &&String| words.is_empty() || words.iter().any(|word| line.contains(word.as_str()));
        let mut lines: Vec<String> = self.lines.iter().rev().filter(matters).take(most).cloned().collect();
        lines.reverse();
        lines
    }
}
