//! Models, versions and what they may be made of.

use crate::world::*;
use footplate_events::Event;
use footplate_events::facts::{Outcome, RunArtifactsLogged};
use footplate_registry_core::{Allowed, Command, FIGURES_MAX, FIGURES_SHOWN_MAX, FILES_MAX, Refusal, RunRecord, SourceRefusal};
use footplate_types::{AttemptNumber, Digest, MetricName};
use std::collections::BTreeMap;

#[test]
fn versions_are_counted_from_one_and_hold_what_they_are_made_of() {
    let mut world = World::with_versions(3);
    assert_eq!(world.model().versions.keys().copied().collect::<Vec<_>>(), [v(1), v(2), v(3)]);
    let version = world.model().versions[&v(2)].clone();
    assert_eq!((version.run, version.digest, version.bytes), (run_id(), Digest::of(b"weights"), 7));
    assert_eq!(version.registered.by, who("ada"));
    let again = world.refuses("bob", Command::Create { note: String::new() });
    assert_eq!(again, Refusal::ModelExists { model: name() });
    let mut nothing = World::default();
    assert_eq!(nothing.refuses("ada", Command::Register { source: source(), note: String::new() }), Refusal::NoSuchModel { model: name() });
}

#[test]
fn of_a_run_that_does_not_fit_nothing_is_made_and_it_is_named() {
    let at = "model.bin";
    let ask = |record: RunRecord| record.source(run_id(), Allowed::default()).unwrap_err();
    assert_eq!(ask(told(at, vec![])), SourceRefusal::NoSuchRun { run: run_id() });
    assert_eq!(ask(told(at, vec![opened()])), SourceRefusal::NotSealed { run: run_id() });
    let failed = ask(record(at, &[("model.bin", "w")], sealed(Outcome::Failed, true)));
    assert_eq!(failed, SourceRefusal::NotSucceeded { run: run_id(), outcome: Outcome::Failed });
    let incomplete = ask(record(at, &[("model.bin", "w")], sealed(Outcome::Succeeded, false)));
    assert!(incomplete.to_string().contains("logs of rank 3"), "{incomplete}");
    let missing = ask(record(at, &[("model.pt", "w")], sealed(Outcome::Succeeded, true)));
    let SourceRefusal::NoSuchArtifact { late: false, there, .. } = &missing else { panic!("{missing:?}") };
    assert_eq!(there, "model.pt");
    let empty = ask(record(at, &[], sealed(Outcome::Succeeded, true)));
    assert!(matches!(&empty, SourceRefusal::NoSuchArtifact { there, .. } if there.starts_with("none")), "{empty:?}");
}

#[test]
fn a_failed_or_incomplete_run_needs_an_explicit_word() {
    let failed = record("model.bin", &[("model.bin", "w")], sealed(Outcome::Failed, false));
    let both = Allowed { failed: true, incomplete: true };
    let made = failed.source(run_id(), both).unwrap();
    assert_eq!((made.outcome, made.complete), (Outcome::Failed, false));
    assert!(failed.source(run_id(), Allowed { failed: true, incomplete: false }).is_err());
    assert!(failed.source(run_id(), Allowed { failed: false, incomplete: true }).is_err());
}

#[test]
fn a_folder_is_its_files_and_its_digest_that_of_its_listing() {
    let of = |at: &str, files: &[(&str, &str)]| record(at, files, sealed(Outcome::Succeeded, true)).source(run_id(), Allowed::default());
    let few = [("m/a.bin", "a"), ("m/b/c.bin", "c"), ("mm.bin", "x")];
    let made = of("m", &few).unwrap();
    assert_eq!(made.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["m/a.bin", "m/b/c.bin"]);
    let listing = format!("{}  m/a.bin\n{}  m/b/c.bin\n", Digest::of(b"a"), Digest::of(b"c"));
    assert_eq!((made.digest, made.bytes), (Digest::of(listing.as_bytes()), 2));
    let one = of("m/b", &few).unwrap();
    assert_ne!(one.digest, Digest::of(b"c"), "a folder of one file is a folder");
    let names: Vec<String> = (0..=FILES_MAX).map(|n| format!("big/{n}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    assert_eq!(of("big", &files[1..]).unwrap().files.len(), FILES_MAX);
    assert!(matches!(of("big", &files), Err(SourceRefusal::TooManyFiles { .. })));
}

#[test]
fn what_was_logged_after_the_seal_is_no_part_of_the_record() {
    let late = |at: &str, content: &str| RunArtifactsLogged { artifacts: vec![logged(at, content)] }.into();
    let events =
        vec![opened(), late("model.bin", "sealed"), sealed(Outcome::Succeeded, true).into(), late("model.bin", "late"), late("b", "b")];
    let made = told("model.bin", events.clone()).source(run_id(), Allowed::default()).unwrap();
    assert_eq!(made.digest, Digest::of(b"sealed"));
    let refused = told("b", events).source(run_id(), Allowed::default()).unwrap_err();
    assert!(refused.to_string().contains("after the seal"), "{refused}");
}

#[test]
fn of_a_run_no_more_is_held_than_a_version_may_have_however_much_it_logged() {
    let batch = |folder: &str, n: usize| {
        let artifacts = (0..100).map(|k| logged(&format!("{folder}/{n}-{k}"), "x")).collect();
        Event::from(RunArtifactsLogged { artifacts })
    };
    let after = |batches: usize| {
        let mut events = vec![opened()];
        events.extend((0..batches).flat_map(|n| [batch("logs", n), batch("m", n)]));
        events.push(sealed(Outcome::Succeeded, true).into());
        events.extend((0..batches).map(|n| batch("late", n)));
        (told("m", events.clone()), told("model.bin", events))
    };
    let ((folder, file), (larger_folder, larger_file)) = (after(10), after(100));
    let held = |record: &RunRecord| format!("{record:?}").len();
    assert_eq!((held(&folder), held(&file)), (held(&larger_folder), held(&larger_file)));
    assert!(matches!(larger_folder.source(run_id(), Allowed::default()), Err(SourceRefusal::TooManyFiles { .. })));
    let missing = larger_file.source(run_id(), Allowed::default()).unwrap_err();
    assert!(matches!(&missing, SourceRefusal::NoSuchArtifact { there, .. } if there.starts_with("logs/0-0, ") && there.ends_with(", ...")));
}

#[test]
fn a_later_attempts_file_outranks_an_earlier_ones_that_comes_late() {
    let of = |attempt: u32, content: &str| {
        let artifact = footplate_events::facts::LoggedArtifact { attempt: AttemptNumber(attempt), ..logged("m", content) };
        RunArtifactsLogged { artifacts: vec![artifact] }.into()
    };
    let record = told("m", vec![opened(), of(2, "second"), of(1, "first"), sealed(Outcome::Succeeded, true).into()]);
    let made = record.source(run_id(), Allowed::default()).unwrap();
    assert_eq!((made.digest, made.attempt), (Digest::of(b"second"), AttemptNumber(2)));
}

#[test]
fn figures_are_kept_with_their_data_and_the_newest_of_a_name_shows() {
    let mut world = World::with_versions(1);
    let evaluate = |name: &str, figure: f64| Command::Evaluate {
        version: v(1),
        figures: BTreeMap::from([(MetricName::parse(name).unwrap(), figure)]),
        data: None,
        note: String::new(),
    };
    world.does("ada", evaluate("acc", 0.5));
    world.does("bob", evaluate("acc", 0.75));
    world.does("bob", evaluate("loss", 1.0));
    let version = world.model().versions[&v(1)].clone();
    let shown: Vec<(&str, f64)> = version.figures.iter().map(|(name, figure)| (name.as_str(), *figure)).collect();
    assert_eq!(shown, [("acc", 0.75), ("loss", 1.0)]);
    for wrong in [f64::NAN, f64::INFINITY] {
        let refused = world.refuses("ada", evaluate("acc", wrong));
        assert!(matches!(&refused, Refusal::Invalid(invalid) if invalid.field == "figures.acc"), "{refused:?}");
    }
    let empty = Command::Evaluate { version: v(1), figures: BTreeMap::new(), data: None, note: String::new() };
    assert!(matches!(world.refuses("ada", empty), Refusal::Invalid(_)));
    let refused = world.refuses(
        "ada",
        Command::Evaluate {
            version: v(9),
            figures: BTreeMap::from([(MetricName::parse("acc").unwrap(), 1.0)]),
            data: None,
            note: String::new(),
        },
    );
    assert_eq!(refused.to_string(), "model digits has no version 9; the newest is 1");
}

#[test]
fn a_text_beyond_its_bound_is_refused() {
    let mut world = World::with_versions(1);
    let long = "x".repeat(footplate_events::facts::TEXT_MAX + 1);
    for command in [
        Command::Propose { version: v(1), reason: long.clone() },
        Command::SetAlias { alias: alias("a"), version: v(1), reason: long.clone() },
        Command::Register { source: source(), note: long },
    ] {
        assert!(matches!(world.refuses("ada", command), Refusal::Invalid(_)));
    }
}

#[test]
fn a_version_has_so_many_names_of_figures_and_shows_so_many_of_its_evaluations() {
    let mut world = World::with_versions(1);
    let named = |from: usize, to: usize, figure: f64| Command::Evaluate {
        version: v(1),
        figures: (from..to).map(|n| (MetricName::parse(&format!("f{n}")).unwrap(), figure)).collect(),
        data: None,
        note: String::new(),
    };
    for begin in (0..FIGURES_SHOWN_MAX).step_by(FIGURES_MAX) {
        world.does("ada", named(begin, begin + FIGURES_MAX, 0.5));
    }
    let Refusal::Invalid(invalid) = world.refuses("ada", named(FIGURES_SHOWN_MAX - 1, FIGURES_SHOWN_MAX + 1, 1.0)) else {
        panic!("one name more is refused");
    };
    assert_eq!((invalid.field.as_str(), invalid.allowed.as_str()), ("figures", "at most 2000 names of figures a version"));
    assert!(invalid.value.starts_with("2001 names"), "{invalid:?}");
    // What has a name already is measured as often as anyone likes; every name goes on showing its newest figure.
    world.does("ada", named(0, 1, 0.75));
    let version = world.model().versions[&v(1)].clone();
    assert_eq!((version.evaluations.len(), version.figures.len()), (2, FIGURES_SHOWN_MAX), "the oldest evaluation is no longer shown");
    assert_eq!((version.figures.values().next(), version.figures.values().nth(1)), (Some(&0.75), Some(&0.5)));
}
