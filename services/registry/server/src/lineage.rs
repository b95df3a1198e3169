//! GetModelLineage: replays the ledger for a model and its versions; no projection is asked. Things are named as the tracker's lineage names
//! them, so that the two make one graph.

use crate::shell::{Shell, model_of};
use footplate_api::server::named_project;
use footplate_api::v1::{GetLineageResponse, GetModelLineageRequest, LineageEdge, LineageNode};
use footplate_api::{Refusal, reason};
use footplate_events::{Event, Recorded, Subject};
use footplate_registry_core::{Refusal as No, lineage};
use footplate_shell::away;
use footplate_types::{ModelId, ModelVersionId, VersionNumber};

/// The most versions of one lineage.
const VERSIONS_MAX: u32 = 1_000;

impl Shell {
    pub(crate) async fn lineage(&self, request: GetModelLineageRequest) -> Result<GetLineageResponse, Refusal> {
        let (project, name) = (named_project(&request.project)?, model_of(&request.model, "model")?);
        let model = ModelId::of(&project, &name);
        let view_sequence = self.ledger.end().await.map_err(away)?;
        let (mut events, _) = self.aggregate(&Subject::model(&project, model)).await?;
        if !events.iter().any(|recorded| matches!(recorded.envelope.event, Event::ModelCreated(_))) {
            return Err(crate::refused::refused(No::NoSuchModel { model: name }));
        }
        let wanted = (request.version > 0).then_some(VersionNumber(request.version));
        let of_version = |version| Subject::model_version(&project, ModelVersionId { model, version });
        match wanted {
            Some(version) => {
                let (facts, _) = self.aggregate(&of_version(version)).await?;
                if facts.is_empty() {
                    // Which versions there are instead, the view knows.
                    self.at_least(view_sequence).await?;
                    let newest = self.live.read().model(&project, &name).and_then(|model| model.versions.keys().next_back().copied());
                    return Err(crate::refused::refused(No::NoSuchVersion { model: name, version, newest }));
                }
                events.extend(facts);
            }
            None => {
                // Versions are counted without gaps: the first number that has no event is behind the last version.
                for number in 1.. {
                    let (facts, _) = self.aggregate(&of_version(VersionNumber(number))).await?;
                    if facts.is_empty() {
                        break;
                    }
                    if number > VERSIONS_MAX {
                        let told = format!("model {name} has more than {VERSIONS_MAX} versions");
                        return Err(Refusal::new(&reason::TOO_LARGE, told).field("version").next("ask for one version"));
                    }
                    events.extend(facts);
                }
            }
        }
        events.retain(|recorded: &Recorded| recorded.sequence <= view_sequence);
        events.sort_by_key(|recorded| recorded.sequence);
        let graph = lineage::of(&events, wanted);
        let node = |node: &lineage::Node| LineageNode {
            id: node.id.clone(),
            kind: node.kind.to_owned(),
            label: node.label.clone(),
            facts: node.facts.clone(),
            sequence: node.sequence,
        };
        let edge = |edge: &lineage::Edge| LineageEdge { from: edge.from.clone(), to: edge.to.clone(), relation: edge.relation.to_owned() };
        Ok(GetLineageResponse {
            nodes: graph.nodes().into_iter().map(node).collect(),
            edges: graph.edges().map(edge).collect(),
            view_sequence,
        })
    }
}
