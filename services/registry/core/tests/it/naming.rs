//! What names mean.

use crate::world::*;
use footplate_events::facts::Stage;
use footplate_registry_core::{Command, Model, Pick, Reference, Refusal};

#[test]
fn references_are_read_as_mlflow_has_them_and_written_back() {
    let picks = [
        ("models:/digits@champion", Pick::Alias(alias("champion"))),
        ("models:/digits/3", Pick::Version(v(3))),
        ("models:/digits/Production", Pick::Stage(Stage::Production)),
        ("models:/digits/None", Pick::Stage(Stage::None)),
        ("models:/digits/latest", Pick::Latest),
    ];
    for (text, pick) in picks {
        let read = Reference::parse(text).unwrap();
        assert!(matches!(&read, Reference::Model(uri) if uri.model == name() && uri.pick == pick), "{read:?}");
        assert_eq!(read.to_string(), text);
    }
    let lenient = Reference::parse("models:/digits/production").unwrap();
    assert_eq!(lenient.to_string(), "models:/digits/Production");
    let odd = Reference::parse("models:/a@b@c").unwrap();
    assert!(matches!(&odd, Reference::Model(uri) if uri.model.as_str() == "a@b" && uri.pick == Pick::Alias(alias("c"))));
    let run = Reference::parse("runs:/0190f3a2/weights/最终 model.pt").unwrap();
    assert!(matches!(&run, Reference::Run(uri) if uri.run == "0190f3a2" && uri.path == path("weights/最终 model.pt")));
    assert_eq!(run.to_string(), "runs:/0190f3a2/weights/最终 model.pt");
}

#[test]
fn what_is_no_reference_is_refused() {
    for text in [
        "",
        "digits",
        "models:",
        "models:/",
        "models:/digits",
        "models:/digits/",
        "models:/digits/0",
        "models:/digits/03",
        "models:/digits/-1",
        "models:/digits/4294967296",
        "models:/digits/3/model.bin",
        "models:/digits/Prod",
        "models:/digits@",
        "models:/digits@v3",
        "models:/digits@latest",
        "models:/@champion",
        "models:/../3",
        "models://digits/3",
        "runs:/",
        "runs:/0190f3a2",
        "runs:/0190f3a2/",
        "runs:/0190f3a2/../x",
        "runs:/XYZ/model.bin",
        "runs:/0190f3a20190f3a20190f3a20190f3a20/model.bin",
        "s3://bucket/model.bin",
        "/etc/passwd",
    ] {
        assert!(Reference::parse(text).is_err(), "{text}");
    }
    assert!(Reference::is_meant_by("models:/x") && Reference::is_meant_by("runs:/x") && !Reference::is_meant_by("model.bin"));
}

#[test]
fn each_pick_finds_one_version_or_says_what_there_is() {
    let mut world = World::with_versions(3);
    world.promoted(2);
    let model = world.model();
    let number = |pick: Pick| model.pick(&pick).map(|version| version.number);
    assert_eq!(number(Pick::Latest), Ok(v(3)));
    assert_eq!(number(Pick::Stage(Stage::Production)), Ok(v(2)));
    assert_eq!(number(Pick::Stage(Stage::None)), Ok(v(3)), "the newest there");
    assert_eq!(number(Pick::Stage(Stage::Staging)), Err(Refusal::NothingInStage { model: name(), stage: Stage::Staging }));
    assert!(matches!(number(Pick::Version(v(4))), Err(Refusal::NoSuchVersion { newest: Some(newest), .. }) if newest == v(3)));
    let unknown = Model::new(project(), name());
    assert_eq!(unknown.pick(&Pick::Latest), Err(Refusal::NoSuchModel { model: name() }));
    let mut empty = World::default();
    empty.does("ada", Command::Create { note: String::new() });
    assert_eq!(empty.model().pick(&Pick::Latest), Err(Refusal::NoVersions { model: name() }));
}

#[test]
fn models_are_listed_by_name_and_each_project_has_its_own() {
    let mut world = World::default();
    for text in ["b", "a", "c"] {
        let name = footplate_types::ModelName::parse(text).unwrap();
        let model = Model::new(project(), name);
        let event = footplate_es::Decide::decide(&model, Command::Create { note: String::new() }, &World::facts("ada")).unwrap().remove(0);
        let (subject, expected) = model.place_of(&event);
        assert!(world.append(&who("ada"), subject, expected, event));
    }
    let names = |after: Option<&str>| {
        let after = after.map(|text| footplate_types::ModelName::parse(text).unwrap());
        world.view.models(&project(), after.as_ref()).map(|model| model.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["a", "b", "c"]);
    assert_eq!(names(Some("a")), ["b", "c"]);
    let other = footplate_types::ProjectName::parse("audio").unwrap();
    assert_eq!(world.view.models(&other, None).count(), 0);
}
