//! Wrong clocks: no age is negative, no start is delayed, no limit is doubled without bound.

use crate::world::*;
use footplate_es::Evolve;
use footplate_events::facts::*;
use footplate_events::{Envelope, Recorded, Subject};
use footplate_scheduler_core::{Facts, Memory, Policy, State, Timeline, decide};
use footplate_types::*;

/// The same story with other broker times.
fn retimed(world: &World, time: impl Fn(u64) -> i64) -> Vec<Recorded> {
    let at = |recorded: &Recorded| Timestamp::from_millis(time(recorded.sequence));
    world.story.recorded().iter().map(|recorded| Recorded { recorded_at: at(recorded), ..recorded.clone() }).collect()
}

#[test]
fn a_broker_clock_that_jumped_back_an_hour_delays_no_start_and_ends_no_run() {
    let mut world = World::new();
    world.slots("n1", 1);
    let limits = Limits { max_duration: Millis(60_000), ..Limits::default() };
    world.running(JobSpec { limits, ..spec(1, 1) });
    world.slots("n2", 1);
    world.submit(spec(1, 1));
    let service = ServiceName::parse("scheduler").unwrap();
    world.record(Subject::term(&service), TermBegan { service, instance: "next".to_owned() });
    let end = world.story.sequence();
    for jump in [-3_600_000, 0] {
        let mut state = State::default();
        for recorded in retimed(&world, |sequence| if sequence == end { 1_000_000 + jump } else { 1_000_000 }) {
            state.evolve(&recorded);
        }
        let timeline = Timeline::begin(state.term().unwrap(), Millis(500));
        let policy = Policy::default();
        let facts = |elapsed: u64| Facts {
            view: end,
            now: Timestamp::from_millis(-1),
            elapsed: Millis(elapsed),
            seed: 0,
            policy: &policy,
            timeline: &timeline,
        };
        let first = decide(&state, &facts(500), &mut Memory::default());
        assert_eq!(first.decisions.len(), 1, "only the placement of the second job: {first:?}");
        assert_eq!(first.wake_in, Some(Millis(60_000)), "the running limit counts from the term's start at the latest");
        let late = decide(&state, &facts(60_500), &mut Memory::default());
        assert!(late.decisions.iter().any(
            |decision| matches!(&decision.event, footplate_events::Event::JobStopRequested(stop) if stop.cause == StopCause::TimedOut)
        ));
    }
}

#[test]
fn an_events_own_time_is_never_decided_upon() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.running(JobSpec { limits: Limits { max_duration: Millis(60_000), ..Limits::default() }, ..spec(1, 1) });
    let mut state = State::default();
    for recorded in world.story.recorded() {
        let envelope = Envelope { time: Timestamp::from_millis(9_999_999_999_999), ..recorded.envelope.clone() };
        state.evolve(&Recorded { envelope, ..recorded.clone() });
    }
    use footplate_es::Project;
    assert_eq!(state.fingerprint(), world.state.fingerprint());
}
