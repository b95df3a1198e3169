//! What a model and its versions stand on and what was done with them, as a graph, folded from ledger events alone.
//!
//! Runs, artifacts and people are named as the tracker's lineage names them (`run:<id>`, `artifact:<run>/<path>@<digest>`, `person:<who>`), so
//! that a version leads on to the run's code, config, data and attempts.

use footplate_events::facts::{ModelVersionEvaluated, ModelVersionRegistered, Stage};
use footplate_events::{Event, Recorded};
use footplate_types::{ModelName, VersionNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// A thing in the lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id: `<kind>:<what it is named by>`.
    pub id: String,
    /// model, version, act, run, artifact, person.
    pub kind: &'static str,
    /// What people call it.
    pub label: String,
    /// What is known of it.
    pub facts: BTreeMap<String, String>,
    /// The ledger sequence that says so first.
    pub sequence: u64,
}

/// How two things of a lineage belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The one that stands on the other.
    pub from: String,
    /// The other.
    pub to: String,
    /// version_of, made_of, produced, underwent, asked_by.
    pub relation: &'static str,
}

/// A lineage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    nodes: BTreeMap<String, Node>,
    edges: BTreeSet<Edge>,
}

/// The lineage of a model from its events in ledger order; with `only`, of that version alone.
pub fn of(events: &[Recorded], only: Option<VersionNumber>) -> Graph {
    let mut graph = Graph::default();
    for recorded in events {
        let concerns = |version: VersionNumber| only.is_none_or(|only| only == version);
        let (by, at, event) = (recorded.envelope.actor.as_str(), recorded.recorded_at, &recorded.envelope.event);
        let mut act = |model: &ModelName, word: &str, about: &[VersionNumber], facts: &[(&str, String)], reason: &str| {
            if !about.iter().any(|version| concerns(*version)) {
                return;
            }
            let id = graph.node("act", recorded.envelope.id, word, recorded.sequence);
            for (key, value) in facts.iter().cloned().chain([("at", at.to_string()), ("reason", reason.to_owned())]) {
                graph.fact(&id, key, value);
            }
            for version in about.iter().filter(|version| concerns(**version)) {
                graph.edge(&version_id(model, *version), &id, "underwent");
            }
            let person = graph.node("person", by, by, recorded.sequence);
            graph.edge(&id, &person, "asked_by");
        };
        let version = |number: VersionNumber| number.to_string();
        let or_none = |number: Option<VersionNumber>| number.map_or_else(String::new, |number| number.to_string());
        let both = |one: VersionNumber, other: Option<VersionNumber>| [Some(one), other].into_iter().flatten().collect::<Vec<_>>();
        match event {
            Event::ModelCreated(fact) => {
                let id = graph.node("model", &fact.model, fact.model.as_str(), recorded.sequence);
                graph.fact(&id, "created_at", at);
                graph.fact(&id, "note", &fact.note);
                let person = graph.node("person", by, by, recorded.sequence);
                graph.edge(&id, &person, "asked_by");
            }
            Event::ModelVersionRegistered(fact) if concerns(fact.version) => graph.registered(fact, recorded),
            Event::ModelVersionEvaluated(fact) => {
                let told = evaluation(fact);
                let facts: Vec<(&str, String)> = told.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
                act(&fact.model, "evaluated", &[fact.version], &facts, &fact.note);
            }
            Event::ModelVersionProposed(fact) => act(&fact.model, "proposed", &[fact.version], &[], &fact.reason),
            Event::ModelVersionApproved(fact) => {
                let alone = if fact.as_only_member { "true".to_owned() } else { String::new() };
                act(&fact.model, "approved", &[fact.version], &[("as_only_member", alone)], &fact.reason);
            }
            Event::ModelVersionRejected(fact) => act(&fact.model, "rejected", &[fact.version], &[], &fact.reason),
            Event::ModelPromoted(fact) => {
                let facts = [("from", or_none(fact.from)), ("to", version(fact.to.version)), ("approval", fact.approval.to_string())];
                act(&fact.model, "promoted", &both(fact.to.version, fact.from), &facts, &fact.reason);
            }
            Event::ModelRolledBack(fact) => {
                let facts = [("from", or_none(fact.from)), ("to", version(fact.to.version))];
                act(&fact.model, "rolled back", &both(fact.to.version, fact.from), &facts, &fact.reason);
            }
            Event::ModelStaged(fact) => {
                let stage = |stage: Stage| stage.as_str().to_owned();
                let facts = [("from", stage(fact.from)), ("to", stage(fact.to)), ("displaced", or_none(fact.displaced))];
                act(&fact.model, "moved", &both(fact.version, fact.displaced), &facts, &fact.reason);
            }
            Event::ModelArchived(fact) => {
                let freed = fact.freed.iter().map(|alias| alias.as_str()).collect::<Vec<_>>().join(", ");
                let facts = [("from", fact.from.as_str().to_owned()), ("freed", freed)];
                act(&fact.model, "archived", &[fact.version], &facts, &fact.reason);
            }
            Event::ModelAliasSet(fact) => {
                let facts = [("alias", fact.alias.to_string()), ("from", or_none(fact.from)), ("to", version(fact.to.version))];
                act(&fact.model, "alias set", &both(fact.to.version, fact.from), &facts, &fact.reason);
            }
            Event::ModelAliasRemoved(fact) => {
                act(&fact.model, "alias removed", &[fact.version], &[("alias", fact.alias.to_string())], &fact.reason);
            }
            _ => {}
        }
    }
    graph
}

fn version_id(model: &ModelName, version: VersionNumber) -> String {
    format!("version:{model}/{version}")
}

/// What was measured. A figure may have any name, also that of another fact.
fn evaluation(fact: &ModelVersionEvaluated) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> =
        fact.figures.iter().map(|(name, figure)| (format!("figure {name}"), figure.to_string())).collect();
    if let Some(data) = &fact.data {
        facts.push(("data".to_owned(), data.name.clone()));
        facts.push(("data_digest".to_owned(), data.digest.map_or_else(String::new, |digest| digest.to_string())));
    }
    facts
}

impl Graph {
    /// The things, by the order in which the ledger says so.
    pub fn nodes(&self) -> Vec<&Node> {
        let mut nodes: Vec<&Node> = self.nodes.values().collect();
        nodes.sort_by_key(|node| (node.sequence, &node.id));
        nodes
    }

    /// How they belong together.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter()
    }

    fn node(&mut self, kind: &'static str, name: impl Display, label: &str, sequence: u64) -> String {
        let id = format!("{kind}:{name}");
        let fresh = || Node { id: id.clone(), kind, label: label.to_owned(), facts: BTreeMap::new(), sequence };
        self.nodes.entry(id.clone()).or_insert_with(fresh);
        id
    }

    fn fact(&mut self, id: &str, key: &str, value: impl Display) {
        let value = value.to_string();
        if let Some(node) = self.nodes.get_mut(id)
            && !value.is_empty()
        {
            node.facts.insert(key.to_owned(), value);
        }
    }

    fn edge(&mut self, from: &str, to: &str, relation: &'static str) {
        self.edges.insert(Edge { from: from.to_owned(), to: to.to_owned(), relation });
    }

    fn registered(&mut self, fact: &ModelVersionRegistered, recorded: &Recorded) {
        let sequence = recorded.sequence;
        let name = format!("{}/{}", fact.model, fact.version);
        let id = self.node("version", name, &format!("{} {}", fact.model, fact.version), sequence);
        self.fact(&id, "digest", fact.digest);
        self.fact(&id, "bytes", fact.bytes);
        self.fact(&id, "path", &fact.path);
        self.fact(&id, "note", &fact.note);
        self.fact(&id, "registered_at", recorded.recorded_at);
        self.edge(&id, &format!("model:{}", fact.model), "version_of");
        let run = self.node("run", fact.run, &fact.run.to_string(), sequence);
        self.edge(&id, &run, "made_of");
        for file in &fact.files {
            let artifact = self.node("artifact", format!("{}/{}@{}", fact.run, file.path, file.digest), file.path.as_str(), sequence);
            self.fact(&artifact, "digest", file.digest);
            self.fact(&artifact, "bytes", file.bytes);
            self.edge(&id, &artifact, "made_of");
        }
        let person = self.node("person", &recorded.envelope.actor, recorded.envelope.actor.as_str(), sequence);
        self.edge(&id, &person, "asked_by");
    }
}
