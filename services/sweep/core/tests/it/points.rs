//! Which points are tried: grids, draws, and the order they come in.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_sweep_core::{Standing, check, drafts};
use footplate_types::SweepId;
use std::collections::BTreeSet;

/// Every point of a sweep, tried one after the other.
fn all_points(mut fact: SweepCreated, parallel: u32) -> Vec<Values> {
    fact.parallel = parallel;
    let mut world = World::new(fact);
    world.look(&[]);
    while let Some(number) = world.running().pop() {
        world.seals(number, Outcome::Succeeded, Some(1.0));
        world.look(&[]);
    }
    assert_eq!(world.sweep().standing(), Standing::Finished);
    world.sweep().trials.into_values().map(|trial| trial.values).collect()
}

fn grid(space: Vec<Parameter>) -> SweepCreated {
    SweepCreated { trials: None, ..sweep(Sampler::Grid, space) }
}

#[test]
fn a_grid_is_every_point_once_and_then_it_is_finished() {
    let space = || vec![int("a", 1, 3), choice("b", &["x", "y"]), float("c", 0.0, 0.2, Some(0.1))];
    let points = all_points(grid(space()), 4);
    let distinct: BTreeSet<String> = points.iter().map(|point| format!("{point:?}")).collect();
    assert_eq!((points.len(), distinct.len()), (18, 18));
    assert_eq!(check(&grid(space())).unwrap(), Some(18));
}

#[test]
fn a_param_of_a_grid_exists_only_where_its_conditions_hold() {
    let space = vec![
        when(int("layers", 1, 2), "model", &[text("mlp")]),
        when(choice("width", &["s", "l"]), "layers", &[ParamValue::Int(2)]),
        choice("model", &["linear", "mlp"]),
    ];
    let points = all_points(grid(space), 1);
    let names = |point: &Values| point.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let shapes: Vec<String> = points.iter().map(names).collect();
    assert_eq!(shapes, ["model", "layers model", "layers model width", "layers model width"]);
}

#[test]
fn a_budget_below_the_grid_ends_it_earlier_and_a_larger_one_ends_at_its_last_point() {
    let of = |trials| all_points(SweepCreated { trials: Some(trials), ..grid(vec![int("a", 1, 5)]) }, 2).len();
    assert_eq!((of(3), of(50)), (3, 5));
}

#[test]
fn draws_are_fixed_by_seed_and_number_whatever_runs_beside_them() {
    let space = || {
        vec![
            log("lr", 1e-5, 1.0),
            int("layers", 1, 8),
            choice("opt", &["sgd", "adam"]),
            when(float("momentum", 0.0, 0.9, Some(0.3)), "opt", &[text("sgd")]),
        ]
    };
    let of = |seed, parallel| all_points(SweepCreated { seed, trials: Some(40), ..sweep(Sampler::Random, space()) }, parallel);
    let serial = of(3, 1);
    assert_eq!(serial, of(3, 8));
    assert_ne!(serial, of(4, 1));
    for point in &serial {
        let sgd = point.get(&key("opt")) == Some(&text("sgd"));
        assert_eq!(point.contains_key(&key("momentum")), sgd, "{point:?}");
    }
    assert!(serial.iter().any(|point| point.contains_key(&key("momentum"))) && serial.iter().any(|point| point.len() == 3));
}

#[test]
fn no_more_is_wanted_than_may_be_under_way() {
    let world = World::new(SweepCreated { parallel: 3, ..sweep(Sampler::Random, vec![int("a", 1, 9)]) });
    assert_eq!(drafts(&world.state()).len(), 3);
    let wide = World::new(SweepCreated { parallel: 1_000, trials: Some(900), ..sweep(Sampler::Random, vec![int("a", 1, 9)]) });
    assert_eq!(drafts(&wide.state()).len(), footplate_sweep_core::DRAFTS_MAX);
}

#[test]
fn a_wide_sweep_keeps_no_other_waiting() {
    let space = || vec![int("a", 1, 9)];
    let mut world = World::new(SweepCreated { parallel: 1_000, trials: Some(900), ..sweep(Sampler::Random, space()) });
    let others = [[1; 16], [0xff; 16]].map(SweepId::from_bytes);
    for other in others {
        world.story.record(Subject::sweep(&project(), other), SweepCreated { parallel: 3, ..sweep(Sampler::Random, space()) });
    }
    let drafts = drafts(&world.state());
    let of = |sweep| drafts.iter().filter(|draft| draft.id.sweep == sweep).map(|draft| draft.id.trial.0).collect::<Vec<_>>();
    assert_eq!(others.map(of), [[1, 2, 3], [1, 2, 3]]);
    assert_eq!((of(id()).len(), drafts.len()), (footplate_sweep_core::DRAFTS_MAX - 6, footplate_sweep_core::DRAFTS_MAX));
}
