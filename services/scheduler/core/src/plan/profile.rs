//! How many units are free when: a step function of time.

use footplate_types::Millis;
use thiserror::Error;

/// A reservation that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{units} units are not free from {from} to {until}")]
pub struct Overbooked {
    /// The units asked for.
    pub units: u32,
    /// From when on.
    pub from: Millis,
    /// Until when, exclusive.
    pub until: Millis,
}

/// Free units of one class over time, from some instant on. What is free is never negative and never more than the capacity.
///
/// The steps lie sorted in one piece of memory: to find one is a binary search, to put one in moves what lies behind, to look for a fit
/// goes along them once. There are at most two steps for everything that runs or is reserved, so for the thousands that a cluster has
/// this is quicker than any tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    capacity: u32,
    /// (from, free from then on), by rising time, never empty; the last holds for ever.
    steps: Vec<(u64, u32)>,
}

impl Profile {
    /// A profile that begins at `now`, with everything free.
    pub fn new(now: Millis, capacity: u32) -> Self {
        Self { capacity, steps: vec![(now.0, capacity)] }
    }

    /// A profile of `free` units at `now` and of those that come free at `ends`. What ends before `now` counts as free.
    pub fn of_ends(now: Millis, free: u32, ends: impl Iterator<Item = (Millis, u32)>) -> Self {
        let mut ends: Vec<(u64, u32)> = ends.map(|(at, units)| (at.0.max(now.0), units)).collect();
        ends.sort_unstable();
        let mut steps = Vec::with_capacity(2 * ends.len() + 1);
        steps.push((now.0, free));
        let mut level = free;
        for (at, units) in ends {
            level = level.saturating_add(units);
            match steps.last_mut() {
                Some(last) if last.0 == at => last.1 = level,
                _ => steps.push((at, level)),
            }
        }
        Self { capacity: level, steps }
    }

    /// All units, held or free.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The steps: from when on how many units are free.
    pub fn steps(&self) -> impl Iterator<Item = (Millis, u32)> + '_ {
        self.steps.iter().map(|(at, free)| (Millis(*at), *free))
    }

    /// The units that are free at a time; before the profile begins, those that are free at its beginning.
    pub fn free_at(&self, at: Millis) -> u32 {
        self.steps.get(self.step_at(at.0)).map_or(0, |(_, free)| *free)
    }

    /// The first time after `at` at which something changes; the next instant when nothing does any more.
    pub fn next_change(&self, at: Millis) -> Millis {
        let after = self.steps.partition_point(|(from, _)| *from <= at.0);
        Millis(self.steps.get(after).map_or(at.0.saturating_add(1), |(from, _)| *from))
    }

    /// Whether `units` are free from `from` on for `length`.
    pub fn fits(&self, from: Millis, length: Millis, units: u32) -> bool {
        let until = end(from.0, length);
        let first = self.step_at(from.0);
        self.steps[first..].iter().enumerate().take_while(|(at, (step, _))| *at == 0 || *step < until).all(|(_, (_, free))| *free >= units)
    }

    /// The first time, not before `not_before`, from which on `units` are free for `length`; none when they never are.
    pub fn earliest(&self, not_before: Millis, length: Millis, units: u32) -> Option<Millis> {
        let first = self.step_at(not_before.0);
        let mut start: Option<u64> = None;
        for (step, free) in &self.steps[first..] {
            if start.is_some_and(|start| *step >= end(start, length)) {
                break;
            }
            start = if *free < units { None } else { start.or(Some((*step).max(not_before.0))) };
        }
        start.map(Millis)
    }

    /// Holds `units` from `from` until `until`; refused, and nothing held, where they are not free.
    pub fn hold(&mut self, from: Millis, until: Millis, units: u32) -> Result<(), Overbooked> {
        let length = Millis(until.0.saturating_sub(from.0));
        if length.0 > 0 && !self.fits(from, length, units) {
            return Err(Overbooked { units, from, until });
        }
        self.change(from.0, until.0, |free| free.saturating_sub(units));
        Ok(())
    }

    /// Frees `units` that were held from `from` until `until`; refused, and nothing freed, where fewer are held.
    pub fn release(&mut self, from: Millis, until: Millis, units: u32) -> Result<(), Overbooked> {
        let capacity = self.capacity;
        let first = self.step_at(from.0);
        let within = self.steps[first..].iter().take_while(|(step, _)| *step < until.0);
        if within.into_iter().any(|(_, free)| free.saturating_add(units) > capacity) {
            return Err(Overbooked { units, from, until });
        }
        self.change(from.0, until.0, |free| free.saturating_add(units));
        Ok(())
    }

    /// Forgets what lies before `now`.
    pub fn advance(&mut self, now: Millis) {
        let first = self.step_at(now.0);
        self.steps.drain(..first);
        if let Some(step) = self.steps.first_mut() {
            step.0 = step.0.max(now.0);
        }
    }

    /// Holds units that are known to be free.
    pub(super) fn take(&mut self, from: Millis, length: Millis, units: u32) {
        self.change(from.0, end(from.0, length), |free| free.saturating_sub(units));
    }

    /// The step that holds at a time; the first for what lies before.
    fn step_at(&self, at: u64) -> usize {
        self.steps.partition_point(|(from, _)| *from <= at).saturating_sub(1)
    }

    fn change(&mut self, from: u64, until: u64, apply: impl Fn(u32) -> u32) {
        let from = from.max(self.steps.first().map_or(0, |(first, _)| *first));
        if from >= until {
            return;
        }
        let first = self.split(from);
        let last = if until == u64::MAX { self.steps.len() } else { self.split(until) };
        for step in &mut self.steps[first..last] {
            step.1 = apply(step.1);
        }
        self.join(last);
        self.join(first);
    }

    /// The step that begins exactly at `at`, made if there is none.
    fn split(&mut self, at: u64) -> usize {
        let after = self.steps.partition_point(|(from, _)| *from < at);
        if self.steps.get(after).is_none_or(|(from, _)| *from != at) {
            let free = after.checked_sub(1).and_then(|before| self.steps.get(before)).map_or(self.capacity, |(_, free)| *free);
            self.steps.insert(after, (at, free));
        }
        after
    }

    /// Drops a step that says the same as the one before it.
    fn join(&mut self, at: usize) {
        if at > 0 && at < self.steps.len() && self.steps[at - 1].1 == self.steps[at].1 {
            self.steps.remove(at);
        }
    }
}

/// The end of what begins at `from`. What takes no time takes the shortest there is, so that it is never free of charge.
fn end(from: u64, length: Millis) -> u64 {
    from.saturating_add(length.0.max(1))
}
