//! Plans: what each way to overtake promises, and that a plan is what a slow planner makes of it.

mod promises;
mod slow;

use footplate_scheduler_core::plan::*;
use footplate_types::Millis;

/// A job of units that is expected to take so long.
fn job(units: u32, estimate: u64) -> Candidate {
    Candidate { units, estimate: Millis(estimate) }
}

/// Something that started at 0 and is expected to take so long.
fn runs(units: u32, estimate: u64) -> Occupant {
    Occupant { units, started: Millis(0), estimate: Millis(estimate) }
}

/// The plan of a machine of 4 units at 10: two are held until 20, one until 30, one is free. The first job needs three.
fn turns(backfill: Backfill, behind: &[Candidate]) -> Vec<Turn> {
    let waiting: Vec<Candidate> = [job(3, 10)].iter().chain(behind).copied().collect();
    plan(Millis(10), 1, &[runs(2, 20), runs(1, 30)], &waiting, &Rules::of(backfill), |_| true)
}

#[test]
fn without_backfill_nobody_passes_the_first_that_does_not_fit() {
    assert_eq!(turns(Backfill::None, &[job(1, 1)]), [Turn::Reserved(Millis(20)), Turn::Later]);
}

#[test]
fn who_ends_before_the_reservation_may_pass() {
    for backfill in [Backfill::EndsBefore, Backfill::Easy, Backfill::Conservative] {
        assert_eq!(turns(backfill, &[job(1, 9)]), [Turn::Reserved(Millis(20)), Turn::Now], "{backfill:?}");
    }
}

#[test]
fn who_ends_with_the_reservations_begin_may_pass_but_in_the_weaker_form() {
    for backfill in [Backfill::Easy, Backfill::Conservative] {
        assert_eq!(turns(backfill, &[job(1, 10)])[1], Turn::Now, "{backfill:?}");
    }
    assert_eq!(turns(Backfill::EndsBefore, &[job(1, 10)])[1], Turn::Later);
}

#[test]
fn who_leaves_the_reservation_its_units_may_pass_however_long_it_takes() {
    let spare = |backfill| plan(Millis(10), 1, &[runs(3, 20)], &[job(3, 10), job(1, 999)], &Rules::of(backfill), |_| true)[1];
    assert_eq!(spare(Backfill::Easy), Turn::Now);
    assert_eq!(spare(Backfill::Conservative), Turn::Now);
    assert_eq!(spare(Backfill::EndsBefore), Turn::Later);
}

#[test]
fn with_easy_a_job_may_delay_the_second_in_line_and_with_conservative_it_may_not() {
    // The second in line could have everything at 30; the third would hold one unit until 35.
    let line = [job(3, 10), job(4, 5), job(1, 25)];
    let at = |backfill| plan(Millis(10), 1, &[runs(3, 20)], &line, &Rules::of(backfill), |_| true);
    assert_eq!(at(Backfill::Easy), [Turn::Reserved(Millis(20)), Turn::Later, Turn::Now]);
    assert_eq!(at(Backfill::Conservative), [Turn::Reserved(Millis(20)), Turn::Reserved(Millis(30)), Turn::Reserved(Millis(35))]);
}

#[test]
fn who_asks_for_more_than_there_is_holds_nobody_up() {
    for backfill in [Backfill::None, Backfill::Easy, Backfill::Conservative] {
        let turns = plan(Millis(10), 1, &[runs(3, 20)], &[job(5, 1), job(1, 50)], &Rules::of(backfill), |_| true);
        assert_eq!(turns, [Turn::Never, Turn::Now], "{backfill:?}");
    }
}

#[test]
fn units_that_lie_apart_are_waited_for_until_something_changes() {
    let waiting = [job(2, 10), job(1, 5), job(1, 50)];
    let turns = plan(Millis(10), 2, &[runs(2, 20)], &waiting, &Rules::of(Backfill::Easy), |at| at != 0);
    // At 20 all four are free, and two of them are the first job's.
    assert_eq!(turns, [Turn::Reserved(Millis(20)), Turn::Now, Turn::Now]);
}

#[test]
fn who_holds_no_reservation_is_told_when_to_expect_its_turn() {
    let rules = Rules { forecasts_max: 1, ..Rules::of(Backfill::Easy) };
    let turns = plan(Millis(10), 0, &[runs(4, 20)], &[job(4, 10), job(4, 10), job(4, 10)], &rules, |_| true);
    assert_eq!(turns, [Turn::Reserved(Millis(20)), Turn::Expected(Millis(30)), Turn::Later]);
}

#[test]
fn reservations_end_at_their_bound_and_at_the_horizon() {
    let line = [job(4, 10), job(4, 10), job(4, 10), job(4, 10)];
    let rules = Rules { reservations_max: 2, ..Rules::of(Backfill::Conservative) };
    let turns = plan(Millis(10), 0, &[runs(4, 20)], &line, &rules, |_| true);
    assert_eq!(turns, [Turn::Reserved(Millis(20)), Turn::Reserved(Millis(30)), Turn::Later, Turn::Later]);
    // The first holds one however far it lies.
    let rules = Rules { horizon: Millis(5), ..Rules::of(Backfill::Conservative) };
    let turns = plan(Millis(10), 0, &[runs(4, 20)], &line, &rules, |_| true);
    assert_eq!(turns, [Turn::Reserved(Millis(20)), Turn::Later, Turn::Later, Turn::Later]);
}

#[test]
fn a_job_that_outlives_what_was_expected_moves_the_plan_on() {
    let late = runs(4, 20);
    let reserved = |now| plan(Millis(now), 0, &[late], &[job(4, 10)], &Rules::of(Backfill::Easy), |_| true)[0];
    assert_eq!(reserved(19), Turn::Reserved(Millis(20)));
    assert_eq!(reserved(20), Turn::Reserved(Millis(21)), "at its end it is about to leave");
    assert_eq!(reserved(21), Turn::Reserved(Millis(40)), "then it is expected to take as long again");
    assert_eq!(reserved(41), Turn::Reserved(Millis(80)));
    let endless = Occupant { estimate: Millis(u64::MAX), ..late };
    assert_eq!(endless.expected_end(Millis(5)), Millis(u64::MAX));
    assert_eq!(runs(1, 0).expected_end(Millis(1_000)), Millis(1_024));
}
