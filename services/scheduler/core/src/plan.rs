//! Backfill: who starts now, and when the others may expect to, given what runs and how long everything is expected to take.
//!
//! A [`plan`] is about one *class of capacity*: units (GPUs of one model, slots) that can stand in for one another. Classes are planned
//! one by one, so that nobody waits behind a job of another class. The waiting jobs come in an order that somebody else has decided
//! ([`Order`], or the shares of the queues); the plan never changes it, it only lets a job overtake where that delays nobody who holds a
//! reservation.
//!
//! How long a job takes is told from outside (its limit, or a predictor); the guarantees hold where that is an upper bound. A job that
//! outlives what was expected of it is expected to go on for as long again ([`Occupant::expected_end`]), and the reservations move on
//! with it.
//!
//! Sources: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995), for EASY; Mu'alem and Feitelson, "Utilization, predictability,
//! workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling" (IEEE TPDS 12(6), 2001), for the conservative
//! form and what either promises.
//!
//! It reads no clock and remembers nothing: the same arguments give the same plan.

mod order;
mod profile;

pub use order::{Applicant, Order};
pub use profile::{Overbooked, Profile};

use footplate_types::Millis;

/// Something that runs: units that come free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// How many units it holds.
    pub units: u32,
    /// When it started, on the clock of the plan.
    pub started: Millis,
    /// How long it was expected to take from its start.
    pub estimate: Millis,
}

impl Occupant {
    /// When it is expected to end, as seen at `now`: never in the past, for it still runs.
    ///
    /// Who stands at its expected end is about to leave; who has outlived it is expected to take twice as long as was thought, and twice
    /// that, until the expectation lies ahead again. So an overrun moves the plan a number of times that grows with its logarithm, and
    /// not at every look (Tsafrir, Etsion and Feitelson, IEEE TPDS 18(6), 2007, correct in fixed steps for the same reason).
    pub fn expected_end(&self, now: Millis) -> Millis {
        let soon = now.0.saturating_add(1);
        let mut length = self.estimate.0.max(1);
        while self.started.0.saturating_add(length) < now.0 {
            length = length.saturating_mul(2);
        }
        Millis(self.started.0.saturating_add(length).max(soon))
    }
}

/// A job that waits for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// How many units it takes, all of them or none.
    pub units: u32,
    /// How long it is expected to take once it runs.
    pub estimate: Millis,
}

/// Who may overtake whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// Nobody: behind the first job that does not fit everybody waits. What FIFO means to most; a wide job idles the cluster.
    None,
    /// Only the first that does not fit holds a reservation, and only a job that ends before it may overtake. The weaker form of EASY
    /// of which RLScheduler (Zhang et al., SC 2020) publishes its figures; kept to be compared with them.
    EndsBefore,
    /// EASY: only the first that does not fit holds a reservation; another may overtake if it ends before that, or leaves enough units
    /// over at that time.
    Easy,
    /// Conservative: everybody holds a reservation, up to [`Rules::reservations_max`]; a job may overtake if it delays none of them.
    Conservative,
}

/// The rules of a plan, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who may overtake whom.
    pub backfill: Backfill,
    /// For how many jobs units are kept free at once where everybody may reserve. The first holds a reservation whatever this says.
    pub reservations_max: usize,
    /// How far ahead a reservation may lie, beyond the first, which may lie anywhere: far plans change before they come true.
    pub horizon: Millis,
    /// How many waiting jobs one plan looks at.
    pub candidates_max: usize,
    /// How many jobs that hold no reservation are told when to expect a start.
    pub forecasts_max: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            backfill: Backfill::Conservative,
            reservations_max: 8,
            horizon: Millis::from_secs(7 * 24 * 3_600),
            candidates_max: 10_000,
            forecasts_max: 0,
        }
    }
}

impl Rules {
    /// These rules with the given way to overtake.
    pub fn of(backfill: Backfill) -> Self {
        Self { backfill, ..Self::default() }
    }

    fn reservations(&self) -> usize {
        match self.backfill {
            Backfill::None | Backfill::EndsBefore | Backfill::Easy => 1,
            Backfill::Conservative => self.reservations_max.max(1),
        }
    }
}

/// What a plan has for a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It starts now.
    Now,
    /// Units are kept free for it from this time on: it starts then at the latest, if every estimate is an upper bound and nobody is put
    /// before it.
    Reserved(Millis),
    /// It may expect to start about then, if nothing comes between; nothing is kept for it.
    Expected(Millis),
    /// It waits, and this plan did not look when for.
    Later,
    /// It asks for more than there is, even when everything has ended. It holds nobody up.
    Never,
}

/// Who starts now of `waiting` (in the order in which they should), and when the others may: one turn each.
///
/// `free` units are free now; the units of `running` come free as they end. `seat` is asked, in order, about each job for which there are
/// units now: whether it can be seated on them. It says no when the units lie apart (on several nodes, for a job that must have them on
/// one); the job then waits for the next units to come free.
pub fn plan(
    now: Millis,
    free: u32,
    running: &[Occupant],
    waiting: &[Candidate],
    rules: &Rules,
    mut seat: impl FnMut(usize) -> bool,
) -> Vec<Turn> {
    let ends = running.iter().map(|occupant| (occupant.expected_end(now), occupant.units));
    let mut planning = Planning { now, left: free, profile: Profile::of_ends(now, free, ends), reserved: 0, shadow: None, rules };
    let mut turns = Vec::with_capacity(waiting.len());
    for (at, candidate) in waiting.iter().enumerate() {
        if at >= rules.candidates_max || planning.nobody_else_can_start() {
            break;
        }
        turns.push(planning.turn(candidate, || seat(at)));
    }
    turns.resize(waiting.len(), Turn::Later);
    planning.forecast(waiting, &mut turns);
    turns
}

/// A plan in the making.
struct Planning<'a> {
    now: Millis,
    /// Units that are free now and given to nobody yet.
    left: u32,
    /// What runs, what starts and what is reserved.
    profile: Profile,
    reserved: usize,
    /// When the first reservation begins.
    shadow: Option<Millis>,
    rules: &'a Rules,
}

impl Planning<'_> {
    fn nobody_else_can_start(&self) -> bool {
        let all_reserved = self.reserved >= self.rules.reservations();
        all_reserved && (self.left == 0 || self.rules.backfill == Backfill::None)
    }

    fn turn(&mut self, candidate: &Candidate, seat: impl FnOnce() -> bool) -> Turn {
        let Candidate { units, estimate } = *candidate;
        if units > self.profile.capacity() {
            return Turn::Never;
        }
        let mut not_before = self.now;
        if self.may_start(units, estimate) {
            if seat() {
                self.left = self.left.saturating_sub(units);
                self.profile.take(self.now, estimate, units);
                return Turn::Now;
            }
            not_before = self.profile.next_change(self.now);
        }
        self.reserve(units, estimate, not_before)
    }

    fn may_start(&self, units: u32, estimate: Millis) -> bool {
        if units > self.left {
            return false;
        }
        match (self.rules.backfill, self.shadow) {
            (Backfill::EndsBefore, Some(shadow)) => self.now.0.saturating_add(estimate.0) < shadow.0,
            _ => self.profile.fits(self.now, estimate, units),
        }
    }

    fn reserve(&mut self, units: u32, estimate: Millis, not_before: Millis) -> Turn {
        if self.reserved >= self.rules.reservations() {
            return Turn::Later;
        }
        let Some(start) = self.profile.earliest(not_before, estimate, units) else { return Turn::Never };
        if self.reserved > 0 && start.0 > self.now.0.saturating_add(self.rules.horizon.0) {
            return Turn::Later;
        }
        self.profile.take(start, estimate, units);
        self.reserved += 1;
        self.shadow = self.shadow.or(Some(start));
        Turn::Reserved(start)
    }

    /// Tells the first of those who hold no reservation when they might start, each behind all who were told before it.
    fn forecast(mut self, waiting: &[Candidate], turns: &mut [Turn]) {
        let soon = self.profile.next_change(self.now);
        let untold = waiting.iter().zip(turns).filter(|(_, turn)| **turn == Turn::Later).take(self.rules.forecasts_max);
        for (candidate, turn) in untold {
            match self.profile.earliest(soon, candidate.estimate, candidate.units) {
                Some(start) => {
                    self.profile.take(start, candidate.estimate, candidate.units);
                    *turn = Turn::Expected(start);
                }
                None => *turn = Turn::Never,
            }
        }
    }
}
