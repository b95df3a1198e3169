//! How a state is kept in a snapshot: without what follows from the rest.

use super::after::Ties;
use super::{EndedJob, Job, Node, Part, Queue, Stamp, State, Wanted};
use footplate_types::{NodeName, QueueName, RunId};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// As [`State`], without its index.
#[derive(Deserialize)]
pub(super) struct Kept {
    position: u64,
    revision: u64,
    term: Option<Stamp>,
    queues: BTreeMap<QueueName, Queue>,
    jobs: BTreeMap<RunId, Job>,
    ended: BTreeMap<RunId, EndedJob>,
    nodes: BTreeMap<NodeName, Node>,
    joined_at: u64,
    wanted: BTreeMap<RunId, Wanted>,
    asking: BTreeSet<RunId>,
    ties: Ties,
}

impl From<Kept> for State {
    fn from(kept: Kept) -> Self {
        let Kept { position, revision, term, queues, mut jobs, ended, nodes, joined_at, wanted, asking, ties } = kept;
        for job in jobs.values_mut().filter(|job| !job.spec.roles.is_empty()) {
            job.parts = Part::all(&job.spec, &job.avoid);
        }
        Self { position, revision, term, queues, index: Self::indexed(&jobs), jobs, ended, nodes, joined_at, wanted, asking, ties }
    }
}
