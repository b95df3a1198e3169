//! The profile and the plan beside slow ones that know nothing but one number a tick.

use footplate_scheduler_core::plan::*;
use footplate_types::Millis;
use proptest::prelude::*;

const TICKS: usize = 200;

/// Free units at every tick.
struct Ticks(Vec<u32>);

impl Ticks {
    fn fits(&self, from: usize, length: usize, units: u32) -> bool {
        (from..from + length.max(1)).all(|at| self.0.get(at).or(self.0.last()).is_some_and(|free| *free >= units))
    }

    fn take(&mut self, from: usize, length: usize, units: u32) {
        for at in from..(from + length.max(1)).min(TICKS) {
            self.0[at] -= units;
        }
    }

    fn earliest(&self, from: usize, length: usize, units: u32) -> Option<usize> {
        (from..TICKS).find(|at| self.fits(*at, length, units))
    }

    fn next_change(&self, now: usize) -> usize {
        (now + 1..TICKS).find(|at| self.0[*at] != self.0[at - 1]).unwrap_or(now + 1)
    }
}

/// What [`plan`] says, in so many words.
fn slow_plan(now: usize, free: u32, running: &[Occupant], waiting: &[Candidate], rules: &Rules, refused: &[bool]) -> Vec<Turn> {
    let mut ticks = Ticks(vec![free; TICKS]);
    for occupant in running {
        let end = (occupant.started.0 + occupant.estimate.0) as usize;
        ticks.0[end.max(now + 1)..].iter_mut().for_each(|free| *free += occupant.units);
    }
    let reservations = if rules.backfill == Backfill::Conservative { rules.reservations_max } else { 1 };
    let (mut turns, mut reserved, mut shadow) = (Vec::new(), 0, None);
    for (index, Candidate { units, estimate }) in waiting.iter().enumerate() {
        let (units, length) = (*units, estimate.0 as usize);
        if reserved >= reservations && rules.backfill == Backfill::None {
            turns.push(Turn::Later);
            continue;
        }
        if units > ticks.0[TICKS - 1] {
            turns.push(Turn::Never);
            continue;
        }
        let may = match (rules.backfill, shadow) {
            (Backfill::EndsBefore, Some(shadow)) => ticks.0[now] >= units && now + length < shadow,
            _ => ticks.fits(now, length, units),
        };
        if may && !refused[index] {
            ticks.take(now, length, units);
            turns.push(Turn::Now);
            continue;
        }
        let from = if may { ticks.next_change(now) } else { now };
        if reserved >= reservations {
            turns.push(Turn::Later);
            continue;
        }
        let start = ticks.earliest(from, length, units).unwrap();
        ticks.take(start, length, units);
        reserved += 1;
        shadow = shadow.or(Some(start));
        turns.push(Turn::Reserved(Millis(start as u64)));
    }
    turns
}

fn modes() -> impl Strategy<Value = Backfill> {
    prop_oneof![Just(Backfill::None), Just(Backfill::EndsBefore), Just(Backfill::Easy), Just(Backfill::Conservative)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_plan_is_what_a_slow_planner_makes_of_it(
        backfill in modes(),
        free in 0..5u32,
        running in prop::collection::vec((1..4u32, 5..15u64), 0..4),
        waiting in prop::collection::vec((1..6u32, 1..12u64, prop::bool::weighted(0.2)), 0..8),
        reservations_max in 1..9usize,
    ) {
        let now = 5;
        let running: Vec<Occupant> =
            running.into_iter().map(|(units, end)| Occupant { units, started: Millis(0), estimate: Millis(end) }).collect();
        let refused: Vec<bool> = waiting.iter().map(|(.., refused)| *refused).collect();
        let waiting: Vec<Candidate> =
            waiting.into_iter().map(|(units, estimate, _)| Candidate { units, estimate: Millis(estimate) }).collect();
        let rules = Rules { reservations_max, ..Rules::of(backfill) };
        let ours = plan(Millis(now), free, &running, &waiting, &rules, |at| !refused[at]);
        let slow = slow_plan(now as usize, free, &running, &waiting, &rules, &refused);
        // When nobody else can start, the fast one does not look who never could.
        for (at, (ours, slow)) in ours.iter().zip(&slow).enumerate() {
            let same = ours == slow || (*ours == Turn::Later && *slow == Turn::Never);
            prop_assert!(same, "{}: {:?} and not {:?} of {:?} {:?}", at, ours, slow, running, waiting);
        }
    }

    #[test]
    fn a_profile_is_a_number_a_tick(
        capacity in 1..9u32,
        holds in prop::collection::vec((0..60u64, 1..40u64, 1..9u32, any::<bool>()), 0..30),
        asked in (0..80u64, 1..40u64, 1..10u32),
    ) {
        let mut profile = Profile::new(Millis(0), capacity);
        let mut ticks = Ticks(vec![capacity; TICKS]);
        let mut held = Vec::new();
        for (from, length, units, release) in holds {
            let (begin, until) = (Millis(from), Millis(from + length));
            let fits = ticks.fits(from as usize, length as usize, units);
            prop_assert_eq!(profile.fits(begin, Millis(length), units), fits);
            prop_assert_eq!(profile.hold(begin, until, units).is_ok(), fits);
            if fits {
                ticks.take(from as usize, length as usize, units);
                held.push((begin, until, units));
            }
            if release && let Some((begin, until, units)) = held.pop() {
                prop_assert!(profile.release(begin, until, units).is_ok());
                ticks.0[begin.0 as usize..until.0 as usize].iter_mut().for_each(|free| *free += units);
            }
            for (at, free) in ticks.0.iter().enumerate() {
                prop_assert_eq!(profile.free_at(Millis(at as u64)), *free, "at {}", at);
            }
        }
        let steps: Vec<(Millis, u32)> = profile.steps().collect();
        prop_assert!(steps.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 != two[1].1), "{:?}", steps);
        let (from, length, units) = asked;
        let slow = ticks.earliest(from as usize, length as usize, units).map(|at| Millis(at as u64));
        prop_assert_eq!(profile.earliest(Millis(from), Millis(length), units), slow);
        profile.advance(Millis(from));
        prop_assert_eq!(profile.earliest(Millis(from), Millis(length), units), slow);
        prop_assert_eq!(profile.free_at(Millis(from)), ticks.0[from as usize]);
        // Everything given back is everything free.
        let mut left: Vec<_> = held.into_iter().filter(|(_, until, _)| until.0 > from).collect();
        left.drain(..).for_each(|(begin, until, units)| profile.release(begin, until, units).unwrap());
        prop_assert_eq!(profile.steps().collect::<Vec<_>>(), [(Millis(from), capacity)]);
    }
}

#[test]
fn what_was_never_held_is_not_released() {
    let mut profile = Profile::new(Millis(0), 4);
    profile.hold(Millis(5), Millis(9), 2).unwrap();
    assert!(profile.release(Millis(5), Millis(10), 2).is_err());
    assert!(profile.hold(Millis(8), Millis(20), 3).is_err());
    assert_eq!(profile.free_at(Millis(10)), 4);
}
