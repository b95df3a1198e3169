//! What each way to overtake promises, on whole histories: jobs come, start as the plan says, and leave, some sooner than expected.

use footplate_scheduler_core::plan::*;
use footplate_types::Millis;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Job {
    arrives: u64,
    units: u32,
    estimate: u64,
    takes: u64,
}

/// Everything that plans said on the way: (time, who is first in line, the turn of each who waited).
struct History {
    looks: Vec<(u64, Option<usize>, BTreeMap<usize, Turn>)>,
    started: BTreeMap<usize, u64>,
    held_most: u32,
}

const CAPACITY: u32 = 6;

fn play(jobs: &[Job], rules: &Rules) -> History {
    let mut history = History { looks: Vec::new(), started: BTreeMap::new(), held_most: 0 };
    let mut waiting: Vec<usize> = Vec::new();
    let mut running: BTreeMap<usize, u64> = BTreeMap::new();
    // Somebody runs as long as anybody waits, so by then all have run, one after the other at worst.
    let end = jobs.iter().map(|job| job.arrives).max().unwrap_or(0) + jobs.iter().map(|job| job.takes).sum::<u64>();
    for now in 0..=end {
        let before = (running.len(), waiting.len());
        running.retain(|_, end| *end > now);
        waiting.extend((0..jobs.len()).filter(|at| jobs[*at].arrives == now));
        if before == (running.len(), waiting.len()) {
            continue;
        }
        let occupant = |(at, _): (&usize, &u64)| Occupant {
            units: jobs[*at].units,
            started: Millis(history.started[at]),
            estimate: Millis(jobs[*at].estimate),
        };
        let occupants: Vec<Occupant> = running.iter().map(occupant).collect();
        let held: u32 = occupants.iter().map(|occupant| occupant.units).sum();
        let candidates: Vec<Candidate> =
            waiting.iter().map(|at| Candidate { units: jobs[*at].units, estimate: Millis(jobs[*at].estimate) }).collect();
        let turns = plan(Millis(now), CAPACITY - held, &occupants, &candidates, rules, |_| true);
        let turns: BTreeMap<usize, Turn> = waiting.iter().copied().zip(turns).collect();
        let starting: Vec<usize> = waiting.iter().copied().filter(|at| turns[at] == Turn::Now).collect();
        for at in starting {
            waiting.retain(|other| *other != at);
            running.insert(at, now + jobs[at].takes);
            history.started.insert(at, now);
        }
        history.held_most = history.held_most.max(running.keys().map(|at| jobs[*at].units).sum());
        history.looks.push((now, waiting.first().copied(), turns));
    }
    history
}

/// Jobs in order of arrival. `exact`: they take what they were expected to.
fn jobs(exact: bool) -> impl Strategy<Value = Vec<Job>> {
    let one = (0..4u64, 1..=CAPACITY, 1..20u64, 0..20u64);
    prop::collection::vec(one, 1..25).prop_map(move |drawn| {
        let mut arrives = 0;
        let mut job = |(later, units, estimate, less): (u64, u32, u64, u64)| {
            arrives += later;
            Job { arrives, units, estimate, takes: if exact { estimate } else { estimate.saturating_sub(less).max(1) } }
        };
        drawn.into_iter().map(&mut job).collect()
    })
}

fn modes() -> impl Strategy<Value = Backfill> {
    prop_oneof![Just(Backfill::None), Just(Backfill::EndsBefore), Just(Backfill::Easy), Just(Backfill::Conservative)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn never_more_than_there_is_runs_and_everybody_gets_its_turn(jobs in jobs(false), backfill in modes()) {
        let history = play(&jobs, &Rules::of(backfill));
        prop_assert!(history.held_most <= CAPACITY);
        prop_assert_eq!(history.started.len(), jobs.len());
    }

    #[test]
    fn the_first_in_line_is_never_delayed_by_who_overtakes_it(
        jobs in jobs(false),
        backfill in prop_oneof![Just(Backfill::EndsBefore), Just(Backfill::Easy), Just(Backfill::Conservative)],
    ) {
        let history = play(&jobs, &Rules::of(backfill));
        let mut promised: BTreeMap<usize, u64> = BTreeMap::new();
        for (now, first, turns) in &history.looks {
            let Some(first) = first else { continue };
            let Turn::Reserved(start) = turns[first] else {
                return Err(TestCaseError::fail(format!("the first in line has no reservation at {now}: {:?}", turns[first])));
            };
            let known = promised.entry(*first).or_insert(start.0);
            prop_assert!(start.0 <= *known, "{first} was promised {known}, and {start} at {now}");
            *known = start.0;
        }
        for (at, start) in promised {
            prop_assert!(history.started[&at] <= start);
        }
    }

    #[test]
    fn with_exact_estimates_nobody_is_delayed_by_who_stands_behind(jobs in jobs(true)) {
        let rules = Rules { reservations_max: usize::MAX, ..Rules::of(Backfill::Conservative) };
        let history = play(&jobs, &rules);
        let mut promised: BTreeMap<usize, u64> = BTreeMap::new();
        for (now, _, turns) in &history.looks {
            for (at, turn) in turns {
                let start = match turn {
                    Turn::Now => *now,
                    Turn::Reserved(start) => start.0,
                    other => return Err(TestCaseError::fail(format!("{at} waits without a reservation: {other:?}"))),
                };
                let known = promised.entry(*at).or_insert(start);
                prop_assert!(start <= *known, "{at} was promised {known}, and {start} at {now}");
                *known = start;
            }
        }
        // Who comes last delays nobody: the others' starts are what they are without it.
        let (Some((_, others)), started) = (jobs.split_last(), &history.started) else { return Ok(()) };
        let without = play(others, &rules);
        for (at, start) in &without.started {
            prop_assert_eq!(started[at], *start);
        }
    }

    #[test]
    fn who_outlives_its_estimate_delays_but_stops_nobody(jobs in jobs(true), backfill in modes(), over in 1..9u64) {
        let late: Vec<Job> = jobs.iter().map(|job| Job { takes: job.takes * over, ..*job }).collect();
        let history = play(&late, &Rules::of(backfill));
        prop_assert!(history.held_most <= CAPACITY);
        prop_assert_eq!(history.started.len(), jobs.len());
    }
}
