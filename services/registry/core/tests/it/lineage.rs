//! From a version back to what it is made of, and to who said what of it.

use crate::world::*;
use footplate_registry_core::Command;
use footplate_registry_core::lineage::{self, Graph};
use footplate_types::MetricName;
use std::collections::BTreeSet;

fn acts(graph: &Graph) -> Vec<&str> {
    graph.nodes().into_iter().filter(|node| node.kind == "act").map(|node| node.label.as_str()).collect()
}

#[test]
fn everything_that_was_said_of_a_version_is_in_its_lineage_and_nothing_of_another() {
    let mut world = World::with_versions(3);
    world.promoted(1);
    world.promoted(2);
    world.does("eve", roll_back(None));
    world.does("eve", set_alias("champion", 2));
    let graph = lineage::of(&world.ledger, Some(v(2)));
    assert_eq!(acts(&graph), ["proposed", "approved", "promoted", "rolled back", "alias set"]);
    let ids: BTreeSet<&str> = graph.nodes().into_iter().map(|node| node.id.as_str()).collect();
    let artifact = format!("artifact:{}/model.bin@{}", run_id(), footplate_types::Digest::of(b"weights"));
    for id in ["model:digits", "version:digits/2", "person:bob", &format!("run:{}", run_id()), &artifact] {
        assert!(ids.contains(id), "{id} is not in {ids:?}");
    }
    assert!(!ids.contains("version:digits/3") && !ids.contains("version:digits/1"));
    let ends = graph.edges().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]);
    assert!(ends.into_iter().all(|end| ids.contains(end)), "no edge leads nowhere");
    let nodes = graph.nodes();
    let rolled = nodes.iter().find(|node| node.label == "rolled back").unwrap();
    assert_eq!(
        (rolled.facts["from"].as_str(), rolled.facts["to"].as_str(), rolled.facts["reason"].as_str()),
        ("2", "1", "it answers slowly")
    );
    let whole = lineage::of(&world.ledger, None);
    assert_eq!(acts(&whole).len(), 8);
}

#[test]
fn a_figure_is_told_as_one_whatever_its_name() {
    let mut world = World::with_versions(1);
    let figures = ["acc", "at", "reason"].map(|name| (MetricName::parse(name).unwrap(), 0.5)).into();
    world.does("ada", Command::Evaluate { version: v(1), figures, data: None, note: "nightly".to_owned() });
    let graph = lineage::of(&world.ledger, None);
    let act = graph.nodes().into_iter().find(|node| node.label == "evaluated").unwrap();
    let figures: Vec<&str> = act.facts.keys().filter_map(|key| key.strip_prefix("figure ")).collect();
    assert_eq!((figures, act.facts["reason"].as_str()), (vec!["acc", "at", "reason"], "nightly"));
    assert_ne!(act.facts["at"], "0.5");
}
