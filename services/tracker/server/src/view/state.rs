//! The folded state, and which rows of it have changed since they were last written.

use footplate_es::Evolve;
use footplate_events::{Aggregate, Event, Recorded};
use footplate_tracker_core::{Artifact, Experiment, Run, experiment::named_by};
use footplate_types::{ArtifactPath, ExperimentId, ProjectName, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The tables of the view's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    /// One row a run.
    Runs,
    /// One row an experiment.
    Experiments,
    /// One row a file of a run.
    Artifacts,
}

impl Table {
    /// All tables.
    pub(crate) const ALL: [Self; 3] = [Self::Runs, Self::Experiments, Self::Artifacts];

    /// Its name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Experiments => "experiments",
            Self::Artifacts => "artifacts",
        }
    }
}

/// One row: project, id, name inside it (a path; empty otherwise), and the document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    /// The tenant.
    pub project: String,
    /// The run's or experiment's id.
    pub id: String,
    /// An artifact's path; empty otherwise.
    pub name: String,
    /// The folded state as JSON.
    pub document: String,
}

/// What has changed and is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    runs: BTreeSet<(ProjectName, RunId)>,
    experiments: BTreeSet<(ProjectName, ExperimentId)>,
    artifacts: BTreeSet<(ProjectName, RunId, ArtifactPath)>,
    /// The last folded event: its sequence and id.
    pub last: Option<(u64, String)>,
}

/// Rows to be written, and the last event that they follow from: its sequence and id.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The rows.
    pub rows: Vec<(Table, Row)>,
    /// The event.
    pub last: Option<(u64, String)>,
}

/// Every run and experiment.
#[derive(Debug, Default)]
pub(crate) struct State {
    runs: BTreeMap<ProjectName, BTreeMap<RunId, Arc<Run>>>,
    experiments: BTreeMap<ProjectName, BTreeMap<ExperimentId, Arc<Experiment>>>,
    /// The project of each run: ids are unique over all projects, since series know no project.
    owners: BTreeMap<RunId, ProjectName>,
    /// Runs that the leader has something to do for: a config to read, a seal to set.
    open: BTreeSet<(ProjectName, RunId)>,
    touched: Mutex<Touched>,
}

impl State {
    /// A run.
    pub(crate) fn run(&self, project: &ProjectName, run: RunId) -> Option<Arc<Run>> {
        self.runs.get(project)?.get(&run).cloned()
    }

    /// The project that has a run.
    pub(crate) fn owner(&self, run: RunId) -> Option<&ProjectName> {
        self.owners.get(&run)
    }

    /// The visible runs of a project, by id.
    pub(crate) fn runs(&self, project: &ProjectName) -> impl Iterator<Item = &Arc<Run>> {
        self.runs.get(project).into_iter().flat_map(BTreeMap::values).filter(|run| run.is_visible())
    }

    /// At most `most` visible runs of a project whose id begins with `prefix` (hex digits).
    pub(crate) fn runs_with_prefix(&self, project: &ProjectName, prefix: &str, most: usize) -> Vec<Arc<Run>> {
        let Some(runs) = self.runs.get(project) else { return Vec::new() };
        let Ok(from) = RunId::parse(&format!("{prefix:0<32}")) else { return Vec::new() };
        let within = runs.range(from..).take_while(|(id, _)| id.to_string().starts_with(prefix));
        within.map(|(_, run)| run).filter(|run| run.is_visible()).take(most).cloned().collect()
    }

    /// An experiment.
    pub(crate) fn experiment(&self, project: &ProjectName, id: ExperimentId) -> Option<Arc<Experiment>> {
        self.experiments.get(project)?.get(&id).cloned()
    }

    /// The experiments of a project, by id.
    pub(crate) fn experiments(&self, project: &ProjectName) -> impl Iterator<Item = &Arc<Experiment>> {
        self.experiments.get(project).into_iter().flat_map(BTreeMap::values)
    }

    /// Runs that the leader has something to do for.
    pub(crate) fn open(&self) -> Vec<Arc<Run>> {
        self.open.iter().filter_map(|(project, run)| self.run(project, *run)).collect()
    }

    fn fold_run(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        let Some(id) = subject.run_id() else { return };
        let project = &subject.project;
        let runs = self.runs.entry(project.clone()).or_default();
        let run = Arc::make_mut(runs.entry(id).or_insert_with(|| Arc::new(Run::new(project.clone(), id))));
        run.evolve(recorded);
        let is_open = run.config_wanted.is_some() || (run.ended.is_some() && run.seal.is_none());
        self.owners.entry(id).or_insert_with(|| project.clone());
        if is_open {
            self.open.insert((project.clone(), id));
        } else {
            self.open.remove(&(project.clone(), id));
        }
        let touched = self.touched.get_mut().unwrap_or_else(PoisonError::into_inner);
        touched.runs.insert((project.clone(), id));
        if let Event::RunArtifactsLogged(fact) = &recorded.envelope.event {
            touched.artifacts.extend(fact.artifacts.iter().map(|artifact| (project.clone(), id, artifact.path.clone())));
        }
    }

    fn fold_experiment(&mut self, recorded: &Recorded) {
        let Some(id) = named_by(recorded) else { return };
        let project = &recorded.envelope.subject.project;
        let experiments = self.experiments.entry(project.clone()).or_default();
        let experiment = experiments.entry(id).or_insert_with(|| Arc::new(Experiment::new(project.clone(), id)));
        Arc::make_mut(experiment).evolve(recorded);
        let touched = self.touched.get_mut().unwrap_or_else(PoisonError::into_inner);
        touched.experiments.insert((project.clone(), id));
    }

    /// Takes note of everything that has changed since the last call, as rows.
    pub(crate) fn take_touched(&self) -> Result<Changes, serde_json::Error> {
        let touched = std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rows = Vec::new();
        for (project, id) in &touched.runs {
            if let Some(run) = self.run(project, *id) {
                rows.push((Table::Runs, run_row(&run)?));
            }
        }
        for (project, id) in &touched.experiments {
            if let Some(experiment) = self.experiment(project, *id) {
                rows.push((Table::Experiments, experiment_row(&experiment)?));
            }
        }
        for (project, id, path) in &touched.artifacts {
            if let Some(artifact) = self.run(project, *id).and_then(|run| run.artifacts.get(path).cloned()) {
                rows.push((Table::Artifacts, artifact_row(project, *id, path, &artifact)?));
            }
        }
        Ok(Changes { rows, last: touched.last })
    }

    /// Every row of a table, in order.
    pub(crate) fn rows(&self, table: Table) -> Result<Vec<Row>, serde_json::Error> {
        let all_runs = || self.runs.values().flat_map(BTreeMap::values);
        match table {
            Table::Runs => all_runs().map(|run| run_row(run)).collect(),
            Table::Experiments => self.experiments.values().flat_map(BTreeMap::values).map(|one| experiment_row(one)).collect(),
            Table::Artifacts => all_runs()
                .flat_map(|run| run.artifacts.iter().map(move |(path, artifact)| artifact_row(&run.project, run.id, path, artifact)))
                .collect(),
        }
    }

    /// A state from what the rows of a file hold, each in the order of its table; none when they do not belong together.
    pub(crate) fn from_parts(
        runs: Vec<Run>,
        experiments: Vec<Experiment>,
        artifacts: Vec<(ProjectName, RunId, ArtifactPath, Artifact)>,
    ) -> Option<Self> {
        let mut state = Self::default();
        for run in runs {
            let key = (run.project.clone(), run.id);
            if run.config_wanted.is_some() || (run.ended.is_some() && run.seal.is_none()) {
                state.open.insert(key.clone());
            }
            state.owners.entry(run.id).or_insert_with(|| key.0.clone());
            state.runs.entry(key.0).or_default().insert(key.1, Arc::new(run));
        }
        for experiment in experiments {
            state.experiments.entry(experiment.project.clone()).or_default().insert(experiment.id, Arc::new(experiment));
        }
        for (project, id, path, artifact) in artifacts {
            let run = state.runs.get_mut(&project)?.get_mut(&id)?;
            Arc::make_mut(run).artifacts.insert(path, artifact);
        }
        Some(state)
    }
}

impl Evolve for State {
    fn evolve(&mut self, recorded: &Recorded) {
        match recorded.envelope.subject.aggregate {
            Aggregate::Run | Aggregate::Job | Aggregate::Attempt => self.fold_run(recorded),
            Aggregate::Experiment
            | Aggregate::JobRequest
            | Aggregate::Queue
            | Aggregate::Node
            | Aggregate::NodeRequest
            | Aggregate::Model
            | Aggregate::ModelVersion
            | Aggregate::Sweep
            | Aggregate::Trial
            | Aggregate::Project
            | Aggregate::Principal
            | Aggregate::Token
            | Aggregate::Subscription
            | Aggregate::Webhook
            | Aggregate::Term => {}
        }
        self.fold_experiment(recorded);
        let touched = self.touched.get_mut().unwrap_or_else(PoisonError::into_inner);
        touched.last = Some((recorded.sequence, recorded.envelope.id.to_string()));
    }
}

fn run_row(run: &Run) -> Result<Row, serde_json::Error> {
    let document = serde_json::to_string(run)?;
    Ok(Row { project: run.project.to_string(), id: run.id.to_string(), name: String::new(), document })
}

fn experiment_row(experiment: &Experiment) -> Result<Row, serde_json::Error> {
    let document = serde_json::to_string(experiment)?;
    Ok(Row { project: experiment.project.to_string(), id: experiment.id.to_string(), name: String::new(), document })
}

fn artifact_row(project: &ProjectName, run: RunId, path: &ArtifactPath, artifact: &Artifact) -> Result<Row, serde_json::Error> {
    let document = serde_json::to_string(artifact)?;
    Ok(Row { project: project.to_string(), id: run.to_string(), name: path.to_string(), document })
}
