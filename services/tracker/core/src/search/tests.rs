//! What users ask for, and the errors they get.

use super::*;
use crate::Run;
use crate::run::Param;
use footplate_events::facts::ParamValue;
use footplate_types::{AttemptNumber, DisplayName, ParamKey, ProjectName, Rank, RunId, Timestamp};
use std::collections::BTreeMap;

#[derive(Default)]
struct Figures(BTreeMap<String, f64>);

impl Metrics for Figures {
    fn figures(&self, _: &Run, name: &str) -> Option<MetricFigures> {
        self.0.get(name).map(|last| MetricFigures { last: *last, min: Some(*last - 1.0), max: Some(*last), count: 7 })
    }

    fn last_metric_at(&self, _: &Run) -> Option<Timestamp> {
        Some(Timestamp::from_millis(70_000))
    }
}

fn param(value: ParamValue) -> Param {
    Param { attempt: AttemptNumber(0), rank: Rank(0), value, earlier: Vec::new() }
}

fn run(params: &[(&str, ParamValue)]) -> Run {
    let mut run = Run::new(ProjectName::parse("vision").unwrap(), RunId::from_bytes([1; 16]));
    run.name = DisplayName::parse("Net").ok();
    run.created_at = Timestamp::from_millis(10_000);
    run.started_at = Some(Timestamp::from_millis(20_000));
    run.running_since = Some(Timestamp::from_millis(20_000));
    run.status = crate::Status::Running;
    run.tags.insert(ParamKey::parse("a b").unwrap(), "x".to_owned());
    run.tags.insert(ParamKey::parse("flag").unwrap(), "true".to_owned());
    for (key, value) in params {
        run.params.insert(ParamKey::parse(key).unwrap(), param(value.clone()));
    }
    run
}

fn text(text: &str) -> ParamValue {
    ParamValue::Text(text.to_owned())
}

fn odd_names() -> Run {
    run(&[
        ("model.type", text("flat")),
        ("model", ParamValue::Map([("type".to_owned(), text("nested"))].into())),
        ("enc.0", ParamValue::Int(1)),
        ("enc", ParamValue::List(vec![ParamValue::Int(7), ParamValue::Int(8)])),
        ("a/b c", ParamValue::Int(2)),
        ("1st-try", ParamValue::Bool(true)),
        ("学习率", ParamValue::Float(0.5)),
        ("lr", ParamValue::Float(1.0)),
        ("LR", ParamValue::Float(2.0)),
        ("it`s", text("it's")),
        ("text3", text("3")),
        ("big", ParamValue::Int(9_007_199_254_740_993)),
        ("none", ParamValue::Null(())),
    ])
}

fn figures() -> Figures {
    Figures([("val/acc (top 1)".to_owned(), 0.95), ("loss".to_owned(), f64::NAN), ("a.b".to_owned(), 3.0)].into())
}

fn finds(filter: &str) -> bool {
    let filter = parse_filter(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let run = odd_names();
    let figures = figures();
    matches(&filter, &RunRow { run: &run, parent: None, metrics: &figures, now: Timestamp::from_millis(110_000) })
}

#[test]
fn every_odd_name_can_be_filtered_by_with_one_quoting_rule() {
    for filter in [
        "params.`model.type` = flat",
        "params.\"model.type\" = 'flat'",
        "params.model.type = nested",
        "params.`enc.0` = 1",
        "params.enc.1 = 8",
        "params.'a/b c' = 2",
        "params.1st-try = true",
        "params.学习率 >= .5",
        "params.学习率 = 5e-1",
        "metrics.`val/acc (top 1)` > 0.9",
        "metrics.a.b = 3",
        "params.`it``s` = 'it''s'",
        "tags.\"a b\" = 'x'",
        "tags.flag = true",
        "params.big = 9007199254740993",
    ] {
        assert!(finds(filter), "{filter}");
    }
    for filter in ["params.model.type = flat", "params.enc.0 = 1", "params.big = 9007199254740992", "params.text3 = 3"] {
        assert!(!finds(filter), "{filter}");
    }
    assert!(finds("params.text3 = '3'"));
}

#[test]
fn names_that_differ_in_case_are_kept_apart() {
    assert!(finds("params.lr = 1 and params.LR = 2"));
    assert!(!finds("name = net"));
    assert!(finds("name = Net"));
}

#[test]
fn what_is_absent_matches_no_comparison_and_not_its_contrary() {
    for filter in ["params.gone = 1", "params.gone != 1", "not params.gone = 1", "ended < now", "not ended < now", "params.none = 1"] {
        assert!(!finds(filter), "{filter}");
    }
    assert!(finds("params.gone is null and params.lr is not null and params.model is not null and params.none is null"));
    assert!(finds("params.gone = 1 or params.lr = 1"));
}

#[test]
fn a_running_one_has_a_duration_so_far_and_silence_can_be_asked_for() {
    assert!(finds("duration > 89s and duration <= 1m30s"));
    assert!(finds("state = running and silent > 30s"));
    assert!(!finds("silent > 41s"));
    assert!(finds("created > now-2m and created < now - 1m"));
    assert!(finds("created = 1970-01-01T00:00:10Z"));
}

#[test]
fn the_words_that_are_shown_as_a_state_can_be_asked_for() {
    let finds = |run: &Run, filter: &str| {
        let figures = Figures::default();
        matches(&parse_filter(filter).unwrap(), &RunRow { run, parent: None, metrics: &figures, now: Timestamp::default() })
    };
    let (running, mut failed) = (run(&[]), run(&[]));
    failed.status = crate::Status::Sealed;
    failed.ended = Some(crate::run::Ended {
        event: footplate_types::EventId::from_bytes([2; 16]),
        at: Timestamp::from_millis(30_000),
        outcome: footplate_events::facts::Outcome::Failed,
        cause: None,
        attempt: AttemptNumber(1),
        root: None,
        message: String::new(),
        sessions: Vec::new(),
    });
    for filter in ["state = failed", "status = sealed", "state in (running, failed)", "state != succeeded", "not state = cancelled"] {
        assert!(finds(&failed, filter), "{filter}");
    }
    for filter in ["state != failed", "state = succeeded", "state = running", "state not in (failed)"] {
        assert!(!finds(&failed, filter), "{filter}");
    }
    for filter in ["state != failed", "not state = failed", "state not in (failed, succeeded)", "state in (failed, running)"] {
        assert!(finds(&running, filter), "{filter}");
    }
    assert!(!finds(&running, "state = failed") && !finds(&running, "parent.state != failed"));
}

#[test]
fn patterns_have_two_wildcards_and_an_escape() {
    for filter in ["name like 'N%'", "name ilike 'n_t'", "name like 'N\\et'", "params.`it``s` like 'it_s'", "not name like 'n%'"] {
        assert!(finds(filter), "{filter}");
    }
    for filter in ["name like 'N'", "name like 'n%'", "name like 'N\\_t'", "name ilike '\\%'"] {
        assert!(!finds(filter), "{filter}");
    }
    assert!(!finds(&format!("name like '{}b'", "%a".repeat(200))));
}

#[test]
fn sets_parentheses_and_figures() {
    assert!(finds("params.lr in (0.5, 1.0) and not (state in (sealed, ending))"));
    assert!(finds("max(metrics.`val/acc (top 1)`) > 0.9 and count(metrics.loss) = 7"));
    assert!(!finds("metrics.loss > 0 or metrics.loss <= 0"), "a NaN is above nothing");
    assert!(finds("params.lr not in (2, 3)"));
}

#[test]
fn the_parent_can_be_asked_for() {
    let parent = run(&[("set", text("A"))]);
    let child = run(&[]);
    let figures = Figures::default();
    let row = RunRow { run: &child, parent: Some(&parent), metrics: &figures, now: Timestamp::default() };
    assert!(matches(&parse_filter("parent.params.set = A").unwrap(), &row));
    assert!(!matches(&parse_filter("parent.params.set = B").unwrap(), &row));
}

#[test]
fn an_error_says_where_it_is_and_what_is_allowed() {
    for (filter, position, allowed) in [
        ("params.lr <", 12, "a value"),
        ("params.lr ~ 1", 11, "=, !="),
        ("statee = running", 1, "did you mean state?"),
        ("state = finished", 9, "sealed, succeeded, failed, cancelled"),
        ("state > running", 7, "=, !="),
        ("duration > 10", 12, "units"),
        ("ended > 2026-11-01", 9, "zone"),
        ("params. = 1", 9, "a name"),
        ("name = 'x", 8, "a closing '"),
        ("(name = x", 10, ")"),
        ("name = x y", 10, "and, or"),
        ("metrics.loss > abc", 16, "a number"),
        ("params.lr not = 1", 15, "in, like"),
    ] {
        let error = parse_filter(filter).unwrap_err();
        assert_eq!(error.position, position, "{filter}: {error}");
        assert!(error.allowed.contains(allowed), "{filter}: {error}");
    }
    assert!(parse_filter(&"(".repeat(100)).is_err());
    assert!(parse_filter(&format!("name = '{}'", "x".repeat(QUERY_MAX))).is_err());
    assert_eq!(parse_filter("  ").unwrap(), Filter::All);
}

#[test]
fn an_unknown_name_gets_a_note_with_the_nearest_ones() {
    let known = Known {
        params: [vec!["model.type".to_owned()], vec!["model".to_owned()], vec!["lr".to_owned()]].into(),
        tags: ["team".to_owned()].into(),
        metrics: ["train/step".to_owned(), "steps".to_owned()].into(),
    };
    let note = |text: &str| notes(parse_filter(text).unwrap().fields(), &known);
    assert_eq!(note("metrics.stepp > 1"), ["no run has the metric metrics.stepp; near: metrics.steps"]);
    assert_eq!(note("params.model.type = x"), ["no run has the param params.model.type; near: params.`model.type`"]);
    assert_eq!(note("params.LR = 1"), ["no run has the param params.LR; near: params.lr"]);
    assert!(note("params.lr = 1 and tags.team = x and metrics.steps > 1").is_empty());
}

#[test]
fn an_order_sorts_what_is_absent_last_either_way() {
    let (low, high, none) = (run(&[("x", ParamValue::Int(1))]), run(&[("x", ParamValue::Float(1.5))]), run(&[]));
    let figures = Figures::default();
    let row = |run| RunRow { run, parent: None, metrics: &figures, now: Timestamp::default() };
    for (order, first, second) in [("params.x", &low, &high), ("params.x desc", &high, &low)] {
        let order = parse_order(order).unwrap();
        assert!(compare(&order, &row(first), &row(second)).is_lt());
        assert!(compare(&order, &row(second), &row(&none)).is_lt());
    }
    let order = parse_order("metrics.`val/acc` desc, created_at asc, name").unwrap();
    assert_eq!(order.len(), 3);
    assert!(parse_order("created sideways").is_err());
    assert!(parse_order("stepp").is_err());
}
