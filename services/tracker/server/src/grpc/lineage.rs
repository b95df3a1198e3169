//! GetLineage: replays the ledger for one run and for the runs that it repeats or is compared with; no projection is asked.

use footplate_api::Refusal;
use footplate_api::v1::{GetLineageResponse, LineageEdge, LineageNode};
use footplate_es::Evolve;
use footplate_eventlog::{Ledger, LedgerItem};
use footplate_events::{Recorded, Subject};
use footplate_shell::away;
use footplate_tracker_core::Lineage;
use footplate_types::{AttemptId, ProjectName, RunId};
use std::collections::{BTreeSet, VecDeque};

/// The most runs of one lineage; what lies beyond is shown as a name alone.
const RUNS_MAX: usize = 64;

/// The lineage of a run.
pub(super) async fn of(ledger: &Ledger, project: &ProjectName, run: RunId) -> Result<GetLineageResponse, Refusal> {
    let view_sequence = ledger.end().await.map_err(away)?;
    let mut lineage = Lineage::default();
    let mut seen = BTreeSet::from([run]);
    let mut next = VecDeque::from([run]);
    while let Some(run) = next.pop_front() {
        replay(ledger, project, run, view_sequence, &mut lineage).await?;
        for other in lineage.points_to(run) {
            if seen.len() < RUNS_MAX && seen.insert(other) {
                next.push_back(other);
            }
        }
    }
    let node = |node: &footplate_tracker_core::LineageNode| LineageNode {
        id: node.id.clone(),
        kind: node.kind.to_owned(),
        label: node.label.clone(),
        facts: node.facts.clone(),
        sequence: node.sequence,
    };
    let edge = |edge: &footplate_tracker_core::LineageEdge| LineageEdge {
        from: edge.from.clone(),
        to: edge.to.clone(),
        relation: edge.relation.to_owned(),
    };
    Ok(GetLineageResponse {
        nodes: lineage.nodes().into_iter().map(node).collect(),
        edges: lineage.edges().map(edge).collect(),
        view_sequence,
    })
}

/// Folds every event about a run, in ledger order.
async fn replay(ledger: &Ledger, project: &ProjectName, run: RunId, up_to: u64, lineage: &mut Lineage) -> Result<(), Refusal> {
    let mut events = facts(ledger, &Subject::run(project, run)).await?;
    events.extend(facts(ledger, &Subject::job(project, run)).await?);
    let placed = |recorded: &Recorded| match &recorded.envelope.event {
        footplate_events::Event::JobPlaced(fact) => Some(fact.attempt),
        _ => None,
    };
    let attempts: BTreeSet<_> = events.iter().filter_map(placed).collect();
    for attempt in attempts {
        events.extend(facts(ledger, &Subject::attempt(project, AttemptId { run, attempt })).await?);
    }
    events.sort_by_key(|recorded| recorded.sequence);
    events.iter().filter(|recorded| recorded.sequence <= up_to).for_each(|recorded| lineage.evolve(recorded));
    Ok(())
}

async fn facts(ledger: &Ledger, subject: &Subject) -> Result<Vec<Recorded>, Refusal> {
    let items = ledger.aggregate(subject).await.map_err(away)?;
    Ok(items.into_iter().filter_map(|item| if let LedgerItem::Fact(recorded) = item { Some(*recorded) } else { None }).collect())
}
