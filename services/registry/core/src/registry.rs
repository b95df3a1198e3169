//! All models: the view that the service folds from the ledger.

use crate::Model;
use footplate_es::{Evolve, Project};
use footplate_events::{Event, Recorded};
use footplate_types::{ModelId, ModelName, ProjectName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;

/// All models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registry {
    models: BTreeMap<ModelId, Model>,
    names: BTreeMap<ProjectName, BTreeMap<ModelName, ModelId>>,
}

impl Registry {
    /// A model by its name.
    pub fn model(&self, project: &ProjectName, name: &ModelName) -> Option<&Model> {
        self.models.get(&ModelId::of(project, name))
    }

    /// The models of a project in the order of their names, behind a name or from the beginning.
    pub fn models<'a>(&'a self, project: &ProjectName, after: Option<&ModelName>) -> impl Iterator<Item = &'a Model> {
        let from = after.map_or(Bound::Unbounded, |name| Bound::Excluded(name.clone()));
        let named = self.names.get(project).map(|names| names.range((from, Bound::Unbounded)));
        named.into_iter().flatten().filter_map(|(_, id)| self.models.get(id))
    }
}

impl Evolve for Registry {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        let Some(id) = subject.model_id() else { return };
        if let Event::ModelCreated(fact) = &recorded.envelope.event
            && ModelId::of(&subject.project, &fact.model) == id
        {
            self.names.entry(subject.project.clone()).or_default().insert(fact.model.clone(), id);
            self.models.entry(id).or_insert_with(|| Model::new(subject.project.clone(), fact.model.clone()));
        }
        if let Some(model) = self.models.get_mut(&id) {
            model.evolve(recorded);
        }
    }
}

impl Project for Registry {
    fn fingerprint(&self) -> String {
        self.models.values().map(|model| format!("{model:?}\n")).collect()
    }
}
