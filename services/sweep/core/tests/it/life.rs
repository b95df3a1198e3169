//! Given / when / then: trials come and go, are pruned, stopped, resumed; the best one is found.

use crate::world::*;
use footplate_events::Event;
use footplate_events::facts::*;
use footplate_sweep_core::{DECISIONS_MAX, Seen, Standing, decide, drafts};
use footplate_types::{MetricName, TrialNumber};
use std::collections::BTreeMap;

fn begun(fact: SweepCreated) -> World {
    let mut world = World::new(fact);
    world.look(&[]);
    world
}

fn random() -> SweepCreated {
    sweep(Sampler::Random, vec![log("lr", 1e-4, 1.0)])
}

fn finished(events: &[Event]) -> Vec<(TrialOutcome, Option<f64>)> {
    let of = |event: &Event| match event {
        Event::TrialFinished(fact) => Some((fact.outcome, fact.value)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn seen(number: u32, step: i64, value: f64) -> Seen {
    Seen { run: World::run(number), step, value }
}

#[test]
fn trials_follow_one_another_up_to_the_budget() {
    let mut world = begun(random());
    assert_eq!(world.running(), [1, 2]);
    for number in 1..=8 {
        world.seals(number, Outcome::Succeeded, Some(f64::from(number)));
        assert_eq!(finished(&world.look(&[])), [(TrialOutcome::Complete, Some(f64::from(number)))]);
    }
    let sweep = world.sweep();
    assert_eq!((sweep.standing(), sweep.trials.len(), sweep.best), (Standing::Finished, 8, Some(TrialNumber(1))));
}

#[test]
fn a_trial_is_finished_by_its_seal_alone_and_once() {
    let mut world = begun(random());
    assert!(world.look(&[]).is_empty(), "nothing happens without a seal");
    world.seals(1, Outcome::Succeeded, Some(0.5));
    world.look(&[]);
    world.seals(1, Outcome::Failed, None);
    assert!(finished(&world.look(&[])).is_empty(), "the first seal stands");
    assert_eq!(world.sweep().counts().complete, 1);
}

#[test]
fn what_has_no_finite_value_is_never_best() {
    let mut world = begun(SweepCreated { parallel: 6, ..random() });
    world.seals(1, Outcome::Succeeded, None);
    world.seals_with(2, Outcome::Succeeded, BTreeMap::new());
    world.seals(3, Outcome::Failed, Some(-100.0));
    world.seals(4, Outcome::Cancelled, Some(-100.0));
    world.seals(5, Outcome::Succeeded, Some(7.0));
    let ends = finished(&world.look(&[]));
    let failed = (TrialOutcome::Failed, None);
    assert_eq!(ends, [failed, failed, failed, (TrialOutcome::Cancelled, Some(-100.0)), (TrialOutcome::Complete, Some(7.0))]);
    let sweep = world.sweep();
    assert_eq!((sweep.best, sweep.counts().failed), (Some(TrialNumber(5)), 3));
    let why = |number| sweep.trials[&TrialNumber(number)].finished.as_ref().unwrap().message.clone();
    assert_eq!((why(1).as_str(), why(2).as_str()), ("loss is not a finite number", "its run logged no loss"));
}

#[test]
fn of_equal_trials_the_first_is_best_whatever_the_order_of_their_ends() {
    let mut world = begun(SweepCreated { parallel: 3, ..random() });
    for (number, value) in [(3, 1.0), (1, 2.0), (2, 1.0)] {
        world.seals(number, Outcome::Succeeded, Some(value));
        world.look(&[]);
    }
    assert_eq!(world.sweep().best, Some(TrialNumber(2)));
}

#[test]
fn direction_and_what_counts_of_a_metric_decide_the_best() {
    for (direction, take, best) in [
        (Direction::Minimize, Take::Last, 1.0),
        (Direction::Maximize, Take::Last, 3.0),
        (Direction::Minimize, Take::Best, 0.0),
        (Direction::Maximize, Take::Best, 4.0),
    ] {
        let objective = Objective { metric: MetricName::parse("loss").unwrap(), direction, take };
        let mut world = begun(SweepCreated { objective, parallel: 3, ..random() });
        for (number, value) in [(1, 1.0), (2, 3.0), (3, 2.0)] {
            world.seals(number, Outcome::Succeeded, Some(value));
        }
        world.look(&[]);
        let sweep = world.sweep();
        let value = sweep.trials[&sweep.best.unwrap()].finished.as_ref().unwrap().value;
        assert_eq!(value, Some(best), "{direction:?} {take:?}");
    }
}

#[test]
fn a_stop_lets_what_runs_end_and_a_resume_goes_on_where_it_stood() {
    let mut undisturbed = begun(random());
    let mut world = begun(random());
    world.on_sweep(SweepStopRequested { cancel: false, reason: String::new() });
    assert!(world.look(&[]).is_empty());
    assert_eq!(world.sweep().standing(), Standing::Stopping);
    for number in [1, 2] {
        world.seals(number, Outcome::Succeeded, Some(1.0));
        undisturbed.seals(number, Outcome::Succeeded, Some(1.0));
    }
    world.look(&[]);
    undisturbed.look(&[]);
    assert_eq!((world.sweep().standing(), world.running()), (Standing::Stopped, vec![]));
    world.on_sweep(SweepResumed { trials: None });
    world.look(&[]);
    assert_eq!(world.running(), [3, 4]);
    let points = |world: &World| world.sweep().trials.into_values().map(|trial| trial.values).collect::<Vec<_>>();
    assert_eq!(points(&world), points(&undisturbed), "the same points as without a stop");
}

#[test]
fn a_stop_that_cancels_ends_every_trial_once_and_one_that_was_quicker_keeps_its_value() {
    let mut world = begun(random());
    world.on_sweep(SweepStopRequested { cancel: true, reason: "enough".to_owned() });
    let pruned = world.look(&[]);
    let is_stop = |event: &Event| matches!(event, Event::TrialPruned(fact) if fact.cause == PruneCause::SweepStopped);
    assert!(pruned.len() == 2 && pruned.iter().all(is_stop), "{pruned:?}");
    world.seals(1, Outcome::Cancelled, None);
    world.seals(2, Outcome::Succeeded, Some(0.5));
    assert_eq!(finished(&world.look(&[])), [(TrialOutcome::Cancelled, None), (TrialOutcome::Complete, Some(0.5))]);
    assert_eq!(world.sweep().standing(), Standing::Stopped);
}

#[test]
fn a_larger_budget_makes_a_finished_sweep_go_on() {
    let mut world = begun(SweepCreated { trials: Some(1), ..random() });
    world.seals(1, Outcome::Succeeded, Some(1.0));
    world.look(&[]);
    assert_eq!(world.sweep().standing(), Standing::Finished);
    world.on_sweep(SweepResumed { trials: Some(3) });
    world.look(&[]);
    assert_eq!((world.sweep().standing(), world.running()), (Standing::Running, vec![2, 3]));
}

fn pruning() -> SweepCreated {
    SweepCreated { pruner: Pruner::Median { startup: 2 }, rungs: vec![1, 3], parallel: 4, ..random() }
}

#[test]
fn a_trial_that_is_worse_than_the_median_at_a_rung_is_pruned_there() {
    let mut world = begun(pruning());
    let events = world.look(&[seen(1, 1, 0.1), seen(2, 1, 0.2), seen(3, 1, 0.9), seen(4, 0, 0.0)]);
    let told: Vec<String> = events.iter().map(|event| event.event_type().verb.to_owned()).collect();
    assert_eq!(told, ["observed", "observed", "observed", "pruned"]);
    assert!(matches!(events.last(), Some(Event::TrialPruned(fact)) if fact.rung == Some(1) && fact.cause == PruneCause::Rule));
    assert!(world.look(&[seen(3, 3, 0.0)]).is_empty(), "what is pruned enters no rung any more");
    world.seals(3, Outcome::Cancelled, Some(0.01));
    assert_eq!(finished(&world.look(&[])), [(TrialOutcome::Pruned, Some(0.01))]);
    assert_eq!(world.sweep().best, None, "a pruned trial is not compared with those that ran their course");
}

#[test]
fn a_report_beyond_several_rungs_enters_each_once() {
    let mut world = begun(pruning());
    let events = world.look(&[seen(1, 5, 0.1), seen(1, 6, 0.05)]);
    let rungs: Vec<(i64, i64)> = events
        .iter()
        .filter_map(|event| match event {
            Event::TrialObserved(fact) => Some((fact.rung, fact.step)),
            _ => None,
        })
        .collect();
    assert_eq!(rungs, [(1, 5), (3, 5)]);
}

#[test]
fn a_value_that_is_no_number_is_recorded_as_absent_and_prunes_its_trial() {
    let mut world = begun(pruning());
    let events = world.look(&[seen(1, 1, f64::NAN)]);
    assert!(matches!(&events[..], [Event::TrialObserved(fact), Event::TrialPruned(_)] if fact.value.is_none()), "{events:?}");
}

#[test]
fn reports_of_other_runs_say_nothing() {
    let mut world = begun(pruning());
    assert!(world.look(&[seen(99, 1, 0.1)]).is_empty());
}

#[test]
fn a_look_that_is_full_never_parts_what_a_trial_saw_from_what_follows() {
    let many = SweepCreated { parallel: 300, trials: Some(300), ..pruning() };
    let mut world = World::new(many);
    while world.running().len() < 300 {
        for draft in drafts(&world.state()) {
            world.suggest(&draft);
        }
    }
    // One that is seen and goes on, then those that have no hope: two events each.
    let reports: Vec<Seen> = (1..=300).map(|number| seen(number, 1, if number == 1 { 1.0 } else { f64::NAN })).collect();
    let decisions = decide(&world.state(), &reports);
    assert_eq!(decisions.len(), DECISIONS_MAX - 1);
    assert!(matches!(decisions.last().unwrap().event, Event::TrialPruned(_)));
    // Read again, what was left over follows.
    for decision in decisions {
        world.story.record(decision.subject, decision.event);
    }
    world.look(&reports);
    let pruned = world.sweep().trials.values().filter(|trial| trial.pruned.is_some()).count();
    assert_eq!(pruned, 299);
}
