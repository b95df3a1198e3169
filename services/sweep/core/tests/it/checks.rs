//! Bad input: each fault names its field, its value and what is allowed.

use crate::world::*;
use footplate_events::facts::*;
use footplate_sweep_core::check;

fn fault(fact: SweepCreated) -> (String, String) {
    let invalid = check(&fact).unwrap_err();
    assert!(!invalid.allowed.is_empty());
    (invalid.field, invalid.value)
}

fn of_space(sampler: Sampler, space: Vec<Parameter>) -> (String, String) {
    fault(sweep(sampler, space))
}

fn told(field: &str, value: &str) -> (String, String) {
    (field.to_owned(), value.to_owned())
}

#[test]
fn a_space_that_cannot_be_searched_is_refused_by_its_field() {
    let random = || Sampler::Random;
    assert_eq!(of_space(random(), Vec::new()), told("space", "0 params"));
    assert_eq!(of_space(random(), vec![float("a", f64::NAN, 1.0, None)]), told("space.a.low", "NaN"));
    assert_eq!(of_space(random(), vec![float("a", 0.0, f64::INFINITY, None)]), told("space.a.high", "inf"));
    assert_eq!(of_space(random(), vec![float("a", 2.0, 1.0, None)]), told("space.a.low", "2"));
    assert_eq!(of_space(random(), vec![int("a", 2, 1)]), told("space.a.low", "2"));
    assert_eq!(of_space(random(), vec![log("a", 0.0, 1.0)]), told("space.a.low", "0"));
    assert_eq!(of_space(random(), vec![float("a", 0.0, 1.0, Some(2.0))]), told("space.a.step", "2"));
    assert_eq!(of_space(random(), vec![float("a", 0.0, 1.0, Some(f64::NAN))]), told("space.a.step", "NaN"));
    assert_eq!(of_space(random(), vec![float("a", 0.0, 1.0, Some(0.0))]), told("space.a.step", "0"));
    // 1e16 + 1 is no number of its own: a grid would come back to 1e16 for ever.
    let narrow = |step| of_space(random(), vec![float("a", 1e16, 1e16 + 64.0, Some(step))]);
    assert_eq!(narrow(1.0), told("space.a.step", "1"));
    assert!(check(&sweep(random(), vec![float("a", 1e16, 1e16 + 64.0, Some(16.0))])).is_ok());
    assert_eq!(of_space(random(), vec![int("a", 1, 2), int("a", 1, 2)]), told("space", "a"));
    assert_eq!(of_space(random(), vec![int("opt.lr", 1, 2), choice("opt", &["x"])]), told("space", "opt"));
    assert_eq!(of_space(random(), vec![int("a..b", 1, 2)]), told("space", "a..b"));
    assert_eq!(of_space(random(), vec![choice("a", &[])]), told("space.a.choices", "0 values"));
    assert_eq!(of_space(random(), vec![choice("a", &["x", "x"])]), told("space.a.choices", "x"));
}

#[test]
fn a_condition_that_can_never_be_looked_at_is_refused() {
    let random = |space| of_space(Sampler::Random, space);
    let a = || choice("a", &["x", "y"]);
    assert_eq!(random(vec![a(), when(int("b", 1, 2), "c", &[text("x")])]), told("space.b.when", "c"));
    assert_eq!(random(vec![when(a(), "a", &[text("x")])]), told("space.a.when", "a"));
    assert_eq!(random(vec![a(), when(int("b", 1, 2), "a", &[text("z")])]), told("space.b.when.a", "z"));
    assert_eq!(random(vec![int("n", 1, 3), when(int("b", 1, 2), "n", &[ParamValue::Int(4)])]), told("space.b.when.n", "4"));
    assert_eq!(random(vec![log("n", 1.0, 3.0), when(int("b", 1, 2), "n", &[ParamValue::Int(1)])]), told("space.b.when.n", "1"));
    let cycle = vec![when(choice("a", &["x"]), "b", &[text("x")]), when(choice("b", &["x"]), "a", &[text("x")])];
    assert_eq!(random(cycle), told("space.a.when", "b"));
}

#[test]
fn a_grid_must_be_finite_and_not_too_large() {
    let grid = |space| of_space(Sampler::Grid, space);
    assert_eq!(grid(vec![float("a", 0.0, 1.0, None)]), told("space.a.step", "nothing"));
    assert_eq!(grid(vec![int("a", 1, 1_000), int("b", 1, 1_000), int("c", 1, 1_000)]), told("space", "1000000000 points"));
    let conditional = vec![choice("a", &["x", "y"]), int("b", 1, 1_000), when(int("c", 1, 1_000_000), "a", &[text("x")])];
    assert_eq!(grid(conditional), told("space", "more than 100000 points"));
    let points = |space| check(&sweep(Sampler::Grid, space)).unwrap();
    assert_eq!(points(vec![int("a", 1, 100), float("b", 0.0, 1.0, Some(0.1))]), Some(1_100));
    assert_eq!(points(vec![choice("a", &["x", "y"]), when(int("b", 1, 5), "a", &[text("x")])]), Some(6));
}

#[test]
fn limits_of_the_search_are_told() {
    let space = || vec![int("a", 1, 4)];
    let of = |change: fn(&mut SweepCreated)| {
        let mut fact = sweep(Sampler::Random, space());
        change(&mut fact);
        fault(fact)
    };
    assert_eq!(of(|fact| fact.parallel = 0), told("parallel", "0"));
    assert_eq!(of(|fact| fact.trials = Some(0)), told("trials", "0"));
    assert_eq!(of(|fact| fact.trials = None), told("trials", "nothing"));
    assert_eq!(of(|fact| fact.rungs = vec![3, 3]), told("rungs", "3"));
    assert_eq!(of(|fact| fact.pruner = Pruner::Median { startup: 5 }), told("rungs", "nothing"));
    assert_eq!(of(|fact| fact.job.resources.nodes = 0).0, "job.resources.nodes");
    assert_eq!(of(|fact| fact.job.masked = vec!["config.api_key".to_owned()]), told("job.config", "config.api_key"));
    let run = footplate_types::RunId::from_bytes([0x17; 16]);
    let mut fact = sweep(Sampler::Random, space());
    fact.job.after = vec![AfterJob { run, when: AfterWhen::Any }];
    assert_eq!(fault(fact), told("job.after", &run.to_string()));
    assert_eq!(check(&SweepCreated { trials: None, ..sweep(Sampler::Grid, space()) }).unwrap(), Some(4), "a grid ends by itself");
}
