//! Laws that hold for any space and any history.

use crate::world::*;
use footplate_es::{Evolve, Project};
use footplate_events::facts::*;
use footplate_sweep_core::{Seen, Sweeps, TrialState, check};
use footplate_types::RunId;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A small space: params in any order, some of them under conditions on the first choice.
fn spaces() -> impl Strategy<Value = Vec<Parameter>> {
    let domain = prop_oneof![
        (-5i64..5, 0i64..4, 1i64..3).prop_map(|(low, more, step)| Domain::Int {
            low,
            high: low + more,
            log: false,
            step: (more >= step).then_some(step)
        }),
        (0u32..4, 1u32..5).prop_map(|(low, steps)| Domain::Float {
            low: f64::from(low),
            high: f64::from(low) + 0.1 * f64::from(steps),
            log: false,
            step: Some(0.1),
        }),
        (1usize..4).prop_map(|count| Domain::Categorical { choices: (0..count).map(|at| ParamValue::Int(at as i64)).collect() }),
    ];
    proptest::collection::vec((domain, any::<bool>()), 1..5).prop_map(|params| {
        let mut space: Vec<Parameter> = params
            .into_iter()
            .enumerate()
            .map(|(at, (domain, conditional))| {
                let parameter = Parameter { name: key(&format!("p{at}")), domain, when: Vec::new() };
                if conditional { when(parameter, "root", &[text("on")]) } else { parameter }
            })
            .collect();
        space.push(choice("root", &["off", "on"]));
        space
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_grid_is_as_many_distinct_points_as_it_says(space in spaces()) {
        let fact = SweepCreated { trials: None, parallel: 16, ..sweep(Sampler::Grid, space) };
        let points = check(&fact).unwrap().unwrap();
        prop_assume!(points <= 600);
        let mut world = World::new(fact);
        world.look(&[]);
        while let Some(number) = world.running().first().copied() {
            world.seals(number, Outcome::Succeeded, Some(1.0));
            world.look(&[]);
        }
        let distinct: BTreeSet<String> = world.sweep().trials.values().map(|trial| format!("{:?}", trial.values)).collect();
        prop_assert_eq!(distinct.len() as u64, points);
        prop_assert_eq!(world.sweep().trials.len() as u64, points);
    }

    #[test]
    fn a_draw_lies_in_its_domain_and_has_just_the_params_that_exist(space in spaces(), seed in any::<u64>()) {
        let fact = SweepCreated { seed, trials: Some(12), parallel: 12, ..sweep(Sampler::Random, space) };
        check(&fact).unwrap();
        let mut world = World::new(fact.clone());
        world.look(&[]);
        for trial in world.sweep().trials.values() {
            let on = trial.values.get(&key("root")) == Some(&text("on"));
            for parameter in &fact.space.0 {
                let value = trial.values.get(&parameter.name);
                prop_assert_eq!(value.is_some(), on || parameter.when.is_empty());
                let lies_in = match (&parameter.domain, value) {
                    (_, None) => true,
                    (Domain::Int { low, high, step, .. }, Some(ParamValue::Int(value))) => {
                        (low..=high).contains(&value) && (value - low) % step.unwrap_or(1) == 0
                    }
                    (Domain::Float { low, high, .. }, Some(ParamValue::Float(value))) => low <= value && value <= high,
                    (Domain::Categorical { choices }, Some(value)) => choices.contains(value),
                    _ => false,
                };
                prop_assert!(lies_in, "{:?} in {:?}", value, parameter);
            }
        }
    }

    /// Any order of seals, reports, stops and resumes: the limits hold at every moment, a replay gives the same state, a repeated event changes
    /// nothing, and the best trial is the best of the complete ones.
    #[test]
    fn no_history_breaks_a_limit(steps in proptest::collection::vec((0u8..6, 1u32..12, -3i32..4), 1..40)) {
        let fact = SweepCreated {
            pruner: Pruner::Median { startup: 1 },
            rungs: vec![1, 2],
            parallel: 3,
            trials: Some(10),
            ..sweep(Sampler::Random, vec![log("lr", 1e-4, 1.0)])
        };
        let mut world = World::new(fact);
        for (what, number, value) in steps {
            let known = world.sweep().trials.contains_key(&footplate_types::TrialNumber(number));
            let report = |step| Seen { run: World::run(number), step, value: f64::from(value) };
            let seen: Vec<Seen> = match what {
                0 if known => { world.seals(number, Outcome::Succeeded, Some(f64::from(value))); Vec::new() }
                1 if known => { world.seals(number, Outcome::Failed, None); Vec::new() }
                2 => { world.on_sweep(SweepStopRequested { cancel: value > 0, reason: String::new() }); Vec::new() }
                3 => { world.on_sweep(SweepResumed { trials: None }); Vec::new() }
                4 => vec![report(1)],
                5 => vec![report(2), Seen { run: RunId::from_bytes([1; 16]), step: 1, value: 0.0 }],
                _ => Vec::new(),
            };
            world.look(&seen);
            let sweep = world.sweep();
            prop_assert!(sweep.running.len() <= 3 && sweep.trials.len() <= 10);
            let values = sweep.trials.iter().filter(|(_, trial)| trial.state() == TrialState::Finished(TrialOutcome::Complete));
            let best = values.filter_map(|(number, trial)| Some((trial.finished.as_ref()?.value?, *number)));
            let best = best.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            prop_assert_eq!(sweep.best, best.map(|(_, number)| number));
        }
        let mut twice = Sweeps::default();
        for recorded in world.story.recorded() {
            twice.evolve(recorded);
            twice.evolve(recorded);
        }
        let fold = |state: &Sweeps| state.fingerprint();
        prop_assert_eq!(fold(&twice), fold(&world.state()));
    }
}
