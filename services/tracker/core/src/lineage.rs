//! What a run stands on and what came of it, as a graph, folded from ledger events alone.

use crate::run::command::outcome_text;
use crate::search::cause_text;
use footplate_es::Evolve;
use footplate_events::facts::{AttemptLogsArchived, DocumentRef, InputRef, JobSubmitted, RunArtifactsLogged, RunCreated};
use footplate_events::{Event, Recorded};
use footplate_types::{AttemptId, AttemptNumber, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// A thing in the lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineageNode {
    /// Its id: `<kind>:<what it is named by>`.
    pub id: String,
    /// run, source, config, launch, document, input, attempt, checkpoint, artifact, log, person.
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
pub struct LineageEdge {
    /// The one that stands on the other.
    pub from: String,
    /// The other.
    pub to: String,
    /// used, produced, resumed_from, repeats, compared_with, asked_by.
    pub relation: &'static str,
}

/// A lineage under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    nodes: BTreeMap<String, LineageNode>,
    edges: BTreeSet<LineageEdge>,
    checkpoints: BTreeMap<RunId, String>,
    attempts: BTreeMap<RunId, BTreeSet<AttemptNumber>>,
    points_to: BTreeMap<RunId, BTreeSet<RunId>>,
}

impl Lineage {
    /// The things, by the order in which the ledger says so.
    pub fn nodes(&self) -> Vec<&LineageNode> {
        let mut nodes: Vec<_> = self.nodes.values().collect();
        nodes.sort_by_key(|node| (node.sequence, node.id.clone()));
        nodes
    }

    /// How they belong together.
    pub fn edges(&self) -> impl Iterator<Item = &LineageEdge> {
        self.edges.iter()
    }

    /// The runs that a run repeats or is compared with.
    pub fn points_to(&self, run: RunId) -> Vec<RunId> {
        self.points_to.get(&run).into_iter().flatten().copied().collect()
    }

    /// The attempts that a run was placed with.
    pub fn attempts_of(&self, run: RunId) -> Vec<AttemptNumber> {
        self.attempts.get(&run).into_iter().flatten().copied().collect()
    }

    fn node(&mut self, kind: &'static str, name: impl std::fmt::Display, label: impl Into<String>, sequence: u64) -> String {
        let id = format!("{kind}:{name}");
        let fresh = || LineageNode { id: id.clone(), kind, label: label.into(), facts: BTreeMap::new(), sequence };
        self.nodes.entry(id.clone()).or_insert_with(fresh);
        id
    }

    fn fact(&mut self, id: &str, key: &str, value: impl std::fmt::Display) {
        let value = value.to_string();
        if let Some(node) = self.nodes.get_mut(id)
            && !value.is_empty()
        {
            node.facts.insert(key.to_owned(), value);
        }
    }

    fn edge(&mut self, from: &str, to: &str, relation: &'static str) {
        self.edges.insert(LineageEdge { from: from.to_owned(), to: to.to_owned(), relation });
    }

    fn uses_document(&mut self, run: &str, kind: &'static str, document: DocumentRef, sequence: u64) {
        let id = self.node(kind, document.digest, kind, sequence);
        self.fact(&id, "digest", document.digest);
        self.fact(&id, "bytes", document.bytes);
        self.edge(run, &id, "used");
    }

    fn uses_input(&mut self, run: &str, input: &InputRef, sequence: u64) {
        let id = self.node("input", format!("{}@{}", input.name, input.snapshot), &input.name, sequence);
        self.fact(&id, "snapshot", &input.snapshot);
        if let Some(digest) = input.digest {
            self.fact(&id, "digest", digest);
        }
        self.edge(run, &id, "used");
    }

    fn asked_by(&mut self, run: &str, recorded: &Recorded) {
        let actor = recorded.envelope.actor.to_string();
        let id = self.node("person", &actor, &actor, recorded.sequence);
        self.edge(run, &id, "asked_by");
    }

    fn relates(&mut self, run: RunId, to: Option<RunId>, relation: &'static str, sequence: u64) {
        if let Some(other) = to {
            let (from, to) = (format!("run:{run}"), self.node("run", other, other.to_string(), sequence));
            self.edge(&from, &to, relation);
            self.points_to.entry(run).or_default().insert(other);
        }
    }

    /// The node of a run that begins here: a run named before by another takes its own label now.
    fn begins(&mut self, run: RunId, label: &str, recorded: &Recorded) -> String {
        let id = self.node("run", run, label, recorded.sequence);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.label = label.to_owned();
            node.sequence = node.sequence.min(recorded.sequence);
        }
        self.fact(&id, "created_at", recorded.recorded_at);
        self.asked_by(&id, recorded);
        id
    }

    fn opened(&mut self, run: RunId, fact: &RunCreated, recorded: &Recorded) {
        let id = self.begins(run, fact.name.as_str(), recorded);
        self.fact(&id, "experiment", &fact.experiment_name);
        self.fact(&id, "hypothesis", &fact.hypothesis);
    }

    fn submitted(&mut self, run: RunId, fact: &JobSubmitted, recorded: &Recorded) {
        let spec = &fact.spec;
        let sequence = recorded.sequence;
        let id = self.begins(run, spec.name.as_str(), recorded);
        self.fact(&id, "experiment", &spec.experiment);
        self.fact(&id, "hypothesis", &spec.why.hypothesis);
        self.fact(&id, "queue", &spec.queue);
        if let Some(seed) = spec.seed {
            self.fact(&id, "seed", seed);
        }
        if let Some(source) = &spec.source {
            let source_id = self.node("source", source.tree, if source.commit.is_empty() { "source" } else { &source.commit }, sequence);
            self.fact(&source_id, "tree", source.tree);
            self.fact(&source_id, "archive", source.archive.digest);
            self.fact(&source_id, "commit", &source.commit);
            self.fact(&source_id, "branch", &source.branch);
            self.fact(&source_id, "dirty", source.dirty);
            self.fact(&source_id, "remark", &source.remark);
            self.edge(&id, &source_id, "used");
        }
        self.uses_document(&id, "launch", spec.launch, sequence);
        for (kind, document) in [("config", spec.config), ("document", spec.document)] {
            if let Some(document) = document {
                self.uses_document(&id, kind, document, sequence);
            }
        }
        for input in &spec.inputs {
            self.uses_input(&id, input, sequence);
        }
        self.relates(run, spec.rerun_of, "repeats", sequence);
        self.relates(run, spec.why.baseline, "compared_with", sequence);
    }

    fn placed(&mut self, run: RunId, number: AttemptNumber, nodes: Vec<String>, sequence: u64) {
        self.attempts.entry(run).or_default().insert(number);
        let attempt = AttemptId { run, attempt: number };
        let id = self.node("attempt", attempt, format!("attempt {number}"), sequence);
        self.fact(&id, "nodes", nodes.join(", "));
        self.edge(&format!("run:{run}"), &id, "produced");
        if let Some(checkpoint) = self.checkpoints.get(&run).cloned() {
            self.edge(&id, &checkpoint, "resumed_from");
        }
    }

    fn artifacts(&mut self, run: RunId, fact: &RunArtifactsLogged, sequence: u64) {
        for artifact in &fact.artifacts {
            let name = format!("{run}/{}@{}", artifact.path, artifact.digest);
            let id = self.node("artifact", name, artifact.path.as_str(), sequence);
            self.fact(&id, "digest", artifact.digest);
            self.fact(&id, "bytes", artifact.bytes);
            self.edge(&maker(run, artifact.attempt), &id, "produced");
        }
    }

    fn logs(&mut self, of: AttemptId, fact: &AttemptLogsArchived, sequence: u64) {
        for log in &fact.logs {
            let name = format!("{of}/{}/{}@{}", log.rank, log.stream.as_str(), log.digest);
            let id = self.node("log", name, format!("rank {} {}", log.rank, log.stream.as_str()), sequence);
            self.fact(&id, "digest", log.digest);
            self.fact(&id, "bytes", log.bytes);
            self.edge(&maker(of.run, of.attempt), &id, "produced");
        }
    }
}

fn maker(run: RunId, attempt: AttemptNumber) -> String {
    if attempt == AttemptNumber(0) { format!("run:{run}") } else { format!("attempt:{}", AttemptId { run, attempt }) }
}

impl Evolve for Lineage {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        let Some(run) = subject.run_id() else { return };
        let sequence = recorded.sequence;
        let run_node = format!("run:{run}");
        match &recorded.envelope.event {
            Event::RunCreated(fact) => self.opened(run, fact, recorded),
            Event::JobSubmitted(fact) => self.submitted(run, fact, recorded),
            Event::JobPlaced(fact) => {
                let nodes = fact.members.iter().map(|member| member.node.to_string()).collect();
                self.placed(run, fact.attempt, nodes, sequence);
            }
            Event::AttemptCheckpointed(fact) => {
                if let Some(of) = subject.attempt_id() {
                    let id = self.node("checkpoint", fact.manifest.digest, format!("step {}", fact.step), sequence);
                    self.fact(&id, "step", fact.step);
                    self.fact(&id, "bytes", fact.bytes);
                    self.fact(&id, "manifest", fact.manifest.digest);
                    self.edge(&maker(run, of.attempt), &id, "produced");
                    self.checkpoints.insert(run, id);
                }
            }
            Event::JobRequeued(fact) => self.fact(&maker(run, fact.attempt), "cause", cause_text(fact.cause)),
            Event::JobEnded(fact) => {
                self.fact(&maker(run, fact.attempt), "cause", cause_text(fact.cause));
                self.fact(&run_node, "outcome", outcome_text(fact.outcome));
            }
            Event::RunFinished(fact) if fact.attempt == AttemptNumber(0) => self.fact(&run_node, "outcome", outcome_text(fact.outcome)),
            Event::RunInputsLogged(fact) => {
                for input in &fact.inputs {
                    self.uses_input(&run_node, input, sequence);
                }
            }
            Event::RunArtifactsLogged(fact) => self.artifacts(run, fact, sequence),
            Event::AttemptLogsArchived(fact) => {
                if let Some(of) = subject.attempt_id() {
                    self.logs(of, fact, sequence);
                }
            }
            Event::RunSealed(fact) => {
                self.fact(&run_node, "sealed", if fact.complete { "complete" } else { "incomplete" });
                self.fact(&run_node, "record", fact.record);
            }
            _ => {}
        }
    }
}
