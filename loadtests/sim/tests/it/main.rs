//! A fixed set of seeds, small enough for every test run; `footplate-sim --seeds 2000` is the large one.

#![allow(clippy::unwrap_used)]

use footplate_sim::{Planted, find, run, survey};

/// The seeds of every test run.
const SEEDS: u64 = 14;
/// Within how many seeds a planted fault must be found.
const SEEDS_FOR_PLANTED: u64 = 200;

/// Seeds that have found a fault once: a gang of roles that had room and was not seated.
const FOUND: [u64; 1] = [1_898];

#[test]
fn what_a_seed_has_found_once_it_finds_no_more() {
    for seed in FOUND {
        let figures = survey(seed, 1, |violation| panic!("{}: {}", violation.rule, violation.detail));
        assert_eq!((figures.seeds, figures.violations), (1, 0));
    }
}

#[test]
fn no_seed_breaks_a_rule_and_the_runs_meet_what_they_are_for() {
    let mut told = Vec::new();
    let figures = survey(0, SEEDS, |violation| {
        told.push(format!("{}: {}\n{}\n{}", violation.rule, violation.detail, violation.lines.join("\n"), violation.replay()));
    });
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    assert_eq!((figures.seeds, figures.violations), (SEEDS, 0));
    let met = [
        "terms",
        "gangs",
        "trees",
        "preempted",
        "drained",
        "cancelled",
        "member failed",
        "requeued",
        "lost",
        "nodes lost",
        "fences",
        "ended for others",
        "behind others of an array",
        "shares",
        "slices",
        "gangs of roles",
    ];
    for what in met {
        assert!(figures.seen.get(what).is_some_and(|count| *count > 0), "no run met this: {what}; {:?}", figures.seen);
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let once = run(5, None);
    assert_eq!(once, run(5, None));
    assert_ne!(once.hash, run(1, None).hash);
}

#[test]
fn every_planted_fault_is_found_and_its_replay_finds_it_again() {
    for planted in Planted::ALL {
        let found = find(planted, 0, SEEDS_FOR_PLANTED);
        let violation = found.unwrap_or_else(|| panic!("{} is not found in {SEEDS_FOR_PLANTED} seeds", planted.name()));
        assert_eq!(run(violation.seed, Some(planted)).violation.as_ref(), Some(&violation));
        assert!(violation.replay().contains(&format!("--seed {} --seeds 1 --planted {}", violation.seed, planted.name())));
        assert!(!violation.lines.is_empty(), "a violation says what happened before: {violation:?}");
    }
}
