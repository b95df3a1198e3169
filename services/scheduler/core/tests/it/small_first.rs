//! Small jobs first in a queue that wants it: who overtakes whom, and for how long.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_types::*;
use proptest::prelude::*;

const HOUR: u64 = 3_600_000;

fn small_first(world: &mut World, hours: u64) {
    let settings = QueueConfigured { small_first: Millis(hours * HOUR), ..QueueConfigured::default() };
    world.record(Subject::queue(&queue_name("q")), settings);
}

/// The broker's clock goes on, and the leader's.
fn pass(world: &mut World, millis: u64) {
    world.story.pass(millis as u32);
    world.wait(millis);
}

/// A job that takes the whole of a node of four slots, for so long at the most; 0 for as long as it likes.
fn job(millis: u64) -> JobSpec {
    let limits = Limits { max_duration: Millis(millis), ..Limits::default() };
    JobSpec { queue: queue_name("q"), limits, ..spec(1, 4) }
}

/// A node that is taken, with whom it is taken by.
fn taken() -> (World, RunId) {
    let mut world = World::new();
    world.slots("n1", 4);
    small_first(&mut world, 0);
    let first = world.running(job(0));
    (world, first)
}

/// Ends one after another; in which order they start.
fn starts(world: &mut World, first: RunId, jobs: usize) -> Vec<RunId> {
    let mut order = vec![first];
    while order.len() <= jobs {
        let last = order[order.len() - 1];
        world.exits(last, 0, 0, None);
        world.settle();
        let next = *world.state.jobs().keys().find(|run| world.is_active(**run)).unwrap();
        world.all_ready(next);
        world.settle();
        order.push(next);
    }
    order.split_off(1)
}

#[test]
fn without_it_jobs_go_in_the_order_of_their_submission() {
    let (mut world, first) = taken();
    let asked = [world.submit(job(8 * HOUR)), world.submit(job(HOUR)), world.submit(job(0))];
    assert_eq!(starts(&mut world, first, 3), asked);
}

#[test]
fn a_job_yields_to_smaller_ones_for_so_long_for_each_time_that_they_are_half_its_size() {
    let (mut world, first) = taken();
    small_first(&mut world, 1);
    let large = world.submit(job(8 * HOUR));
    pass(&mut world, 2 * HOUR);
    let in_time = world.submit(job(HOUR));
    pass(&mut world, HOUR + 60_000);
    let too_late = world.submit(job(HOUR));
    assert_eq!(starts(&mut world, first, 3), [in_time, large, too_late]);
}

#[test]
fn who_says_no_limit_counts_as_a_week() {
    let (mut world, first) = taken();
    small_first(&mut world, 1);
    let (endless, week) = (world.submit(job(0)), world.submit(job(7 * 24 * HOUR)));
    let day = world.submit(job(24 * HOUR));
    assert_eq!(starts(&mut world, first, 3), [day, endless, week]);
}

#[test]
fn a_priority_goes_before_any_size() {
    let (mut world, first) = taken();
    small_first(&mut world, 1);
    let small = world.submit(job(60_000));
    let urgent = world.submit(JobSpec { priority: 1, ..job(24 * HOUR) });
    assert_eq!(starts(&mut world, first, 2), [urgent, small]);
}

#[test]
fn those_that_wait_take_their_new_places_when_it_is_set_and_their_old_ones_when_it_is_taken_away() {
    let (mut world, first) = taken();
    let (large, small) = (world.submit(job(8 * HOUR)), world.submit(job(HOUR)));
    small_first(&mut world, 1);
    world.state.check().unwrap();
    assert!(world.state.jobs()[&small].order < world.state.jobs()[&large].order);
    small_first(&mut world, 0);
    world.state.check().unwrap();
    assert_eq!(starts(&mut world, first, 2), [large, small]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// The bound: a job is overtaken by those alone that are submitted less than the time times the logarithm of how much smaller they are after it.
    #[test]
    fn nobody_is_overtaken_for_longer_than_was_said(asked in prop::collection::vec((1u64..3_000, 0u64..600), 2..9), hours in 1u64..4) {
        let (mut world, first) = taken();
        small_first(&mut world, hours);
        let mut submitted = Vec::new();
        for (minutes, wait) in &asked {
            pass(&mut world, wait * 60_000);
            let run = world.submit(job(minutes * 60_000));
            submitted.push((run, world.state.jobs()[&run].submitted.at.as_millis(), *minutes));
        }
        let order = starts(&mut world, first, asked.len());
        let place = |run: &RunId| order.iter().position(|known| known == run).unwrap();
        for (one, since, size) in &submitted {
            for (other, later, smaller) in submitted.iter().filter(|(_, later, _)| later > since) {
                if place(other) < place(one) {
                    let allowed = (hours * HOUR) as f64 * (*size as f64 / *smaller as f64).log2();
                    prop_assert!(((later - since) as f64) <= allowed + 200.0, "{later} {since} {allowed} {one} {other}");
                }
            }
        }
    }
}
