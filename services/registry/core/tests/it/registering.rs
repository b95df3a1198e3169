//! Models, versions and what they may be made of.

use crate::world::*;
use footplate_events::facts::{Outcome, RunArtifactsLogged};
use footplate_registry_core::{Allowed, Command, FILES_MAX, Refusal, SourceRefusal};
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
    let wanted = path("model.bin");
    let ask = |record: footplate_registry_core::RunRecord| record.source(run_id(), &wanted, Allowed::default()).unwrap_err();
    assert_eq!(ask(told(vec![])), SourceRefusal::NoSuchRun { run: run_id() });
    assert_eq!(ask(told(vec![opened()])), SourceRefusal::NotSealed { run: run_id() });
    let failed = ask(record(&[("model.bin", "w")], sealed(Outcome::Failed, true)));
    assert_eq!(failed, SourceRefusal::NotSucceeded { run: run_id(), outcome: Outcome::Failed });
    let incomplete = ask(record(&[("model.bin", "w")], sealed(Outcome::Succeeded, false)));
    assert!(incomplete.to_string().contains("logs of rank 3"), "{incomplete}");
    let missing = ask(record(&[("model.pt", "w")], sealed(Outcome::Succeeded, true)));
    let SourceRefusal::NoSuchArtifact { late: false, there, .. } = &missing else { panic!("{missing:?}") };
    assert_eq!(there, "model.pt");
    let empty = ask(record(&[], sealed(Outcome::Succeeded, true)));
    assert!(matches!(&empty, SourceRefusal::NoSuchArtifact { there, .. } if there.starts_with("none")), "{empty:?}");
}

#[test]
fn a_failed_or_incomplete_run_needs_an_explicit_word() {
    let failed = record(&[("model.bin", "w")], sealed(Outcome::Failed, false));
    let both = Allowed { failed: true, incomplete: true };
    let made = failed.source(run_id(), &path("model.bin"), both).unwrap();
    assert_eq!((made.outcome, made.complete), (Outcome::Failed, false));
    assert!(failed.source(run_id(), &path("model.bin"), Allowed { failed: true, incomplete: false }).is_err());
    assert!(failed.source(run_id(), &path("model.bin"), Allowed { failed: false, incomplete: true }).is_err());
}

#[test]
fn a_folder_is_its_files_and_its_digest_that_of_its_listing() {
    let record = record(&[("m/a.bin", "a"), ("m/b/c.bin", "c"), ("mm.bin", "x")], sealed(Outcome::Succeeded, true));
    let made = record.source(run_id(), &path("m"), Allowed::default()).unwrap();
    assert_eq!(made.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["m/a.bin", "m/b/c.bin"]);
    let listing = format!("{}  m/a.bin\n{}  m/b/c.bin\n", Digest::of(b"a"), Digest::of(b"c"));
    assert_eq!((made.digest, made.bytes), (Digest::of(listing.as_bytes()), 2));
    let one = record.source(run_id(), &path("m/b"), Allowed::default()).unwrap();
    assert_ne!(one.digest, Digest::of(b"c"), "a folder of one file is a folder");
    let names: Vec<String> = (0..=FILES_MAX).map(|n| format!("big/{n}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let refused = crate::world::record(&files, sealed(Outcome::Succeeded, true)).source(run_id(), &path("big"), Allowed::default());
    assert!(matches!(refused, Err(SourceRefusal::TooManyFiles { count, .. }) if count == FILES_MAX + 1));
}

#[test]
fn what_was_logged_after_the_seal_is_no_part_of_the_record() {
    let late = |at: &str, content: &str| RunArtifactsLogged { artifacts: vec![logged(at, content)] }.into();
    let events =
        vec![opened(), late("model.bin", "sealed"), sealed(Outcome::Succeeded, true).into(), late("model.bin", "late"), late("b", "b")];
    let record = told(events);
    let made = record.source(run_id(), &path("model.bin"), Allowed::default()).unwrap();
    assert_eq!(made.digest, Digest::of(b"sealed"));
    let refused = record.source(run_id(), &path("b"), Allowed::default()).unwrap_err();
    assert!(refused.to_string().contains("after the seal"), "{refused}");
}

#[test]
fn a_later_attempts_file_outranks_an_earlier_ones_that_comes_late() {
    let of = |attempt: u32, content: &str| {
        let artifact = footplate_events::facts::LoggedArtifact { attempt: AttemptNumber(attempt), ..logged("m", content) };
        RunArtifactsLogged { artifacts: vec![artifact] }.into()
    };
    let record = told(vec![opened(), of(2, "second"), of(1, "first"), sealed(Outcome::Succeeded, true).into()]);
    let made = record.source(run_id(), &path("m"), Allowed::default()).unwrap();
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
    let shown: Vec<(&str, f64)> = version.figures().into_iter().map(|(name, (figure, _))| (name.as_str(), figure)).collect();
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
