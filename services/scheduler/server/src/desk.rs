//! The desk from which assignments are written: each expecting its subject's last sequence, never over a higher `as_of`.

use crate::measures::Measures;
use footplate_eventlog::{Broker, Expect, Headers, Live, Message, PublishError, Stored, StreamName};
use footplate_events::messages::{Assignment, assign_subject};
use footplate_scheduler_core::{State, assignment, assignments};
use footplate_types::NodeName;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Assignments that are written at once.
const AT_ONCE: usize = 64;
/// Assignments that one read of the stream asks for.
const PAGE: usize = 500;

/// What stands in the stream for one node, as far as this leader knows.
#[derive(Clone, Copy, Debug)]
struct Standing {
    sequence: u64,
    as_of: u64,
}

pub(crate) struct Desk {
    broker: Arc<dyn Broker>,
    standing: BTreeMap<NodeName, Standing>,
    measures: Measures,
}

/// What came of writing one assignment.
enum Wrote {
    Standing(Standing),
    /// Another leader's stands there, as new as this or newer.
    Theirs(Standing),
    Failed(String),
}

impl Desk {
    pub(crate) fn new(broker: Arc<dyn Broker>, measures: Measures) -> Self {
        Self { broker, standing: BTreeMap::new(), measures }
    }

    /// Forgets what it knows of the stream.
    pub(crate) fn forget(&mut self) {
        self.standing.clear();
    }

    /// Reads the whole stream and rewrites what differs from what the ledger says.
    pub(crate) async fn compare(&mut self, live: &Live<State>) -> Result<(), String> {
        let stored = self.read_all().await?;
        let wanted = assignments(&live.read());
        self.standing = stored.iter().map(|(node, (standing, _))| (node.clone(), *standing)).collect();
        let differs = |assignment: &Assignment| match stored.get(&assignment.node) {
            None => true,
            Some((standing, _)) if standing.as_of > assignment.as_of => {
                tracing::warn!(node = %assignment.node, theirs = standing.as_of, ours = assignment.as_of, "a newer assignment stands; left alone");
                false
            }
            Some((_, theirs)) => theirs.as_ref() != Some(assignment),
        };
        let rewrite: Vec<Assignment> = wanted.into_values().filter(differs).collect();
        self.write(rewrite).await
    }

    /// Writes the assignments that have changed since they were written last.
    pub(crate) async fn write_changed(&mut self, live: &Live<State>) -> Result<(), String> {
        let changed: Vec<Assignment> = {
            let state = live.read();
            let is_behind = |name: &NodeName, at: u64| self.standing.get(name).is_none_or(|standing| standing.as_of < at);
            let behind = state.nodes().iter().filter(|(name, node)| is_behind(name, node.assigned_at));
            behind.filter_map(|(name, _)| assignment(&state, name)).collect()
        };
        self.write(changed).await
    }

    async fn write(&mut self, assignments: Vec<Assignment>) -> Result<(), String> {
        let broker = &self.broker;
        let standing = &self.standing;
        let write = |assignment: Assignment| {
            let known = standing.get(&assignment.node).copied();
            async move {
                let wrote = write_one(broker.as_ref(), &assignment, known).await;
                (assignment.node, wrote)
            }
        };
        let written: Vec<(NodeName, Wrote)> = futures::stream::iter(assignments).map(write).buffer_unordered(AT_ONCE).collect().await;
        let mut failed = None;
        for (node, wrote) in written {
            match wrote {
                Wrote::Standing(now) => {
                    self.measures.wrote_assignment();
                    self.standing.insert(node, now);
                }
                Wrote::Theirs(theirs) => {
                    self.measures.lost_assignment();
                    self.standing.insert(node, theirs);
                }
                Wrote::Failed(why) => {
                    self.standing.remove(&node);
                    failed = Some(format!("the assignment of {node} was not written: {why}"));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn read_all(&self) -> Result<BTreeMap<NodeName, (Standing, Option<Assignment>)>, String> {
        let mut all = BTreeMap::new();
        let mut from = Some(1);
        while let Some(next) = from {
            let page = self.broker.read(StreamName::Assignments, "fp.assign.*", next, PAGE).await.map_err(|error| error.to_string())?;
            for stored in &page.messages {
                let Some(node) = stored.subject.strip_prefix("fp.assign.").and_then(|name| NodeName::parse(name).ok()) else { continue };
                all.insert(node, read(stored));
            }
            from = page.next;
        }
        Ok(all)
    }
}

/// What a stored assignment says; one that cannot be read is older than any.
fn read(stored: &Stored) -> (Standing, Option<Assignment>) {
    let assignment: Option<Assignment> = serde_json::from_slice(&stored.payload).ok();
    let as_of = assignment.as_ref().map_or(0, |assignment| assignment.as_of);
    (Standing { sequence: stored.sequence, as_of }, assignment)
}

/// Writes one assignment over what is known to stand there. What stands there is looked up when it is not known, or has moved.
async fn write_one(broker: &dyn Broker, assignment: &Assignment, known: Option<Standing>) -> Wrote {
    const TRIES: u32 = 3;
    let subject = assign_subject(&assignment.node);
    let payload = match serde_json::to_vec(assignment) {
        Ok(payload) => payload,
        Err(error) => return Wrote::Failed(error.to_string()),
    };
    let mut known = known;
    for _ in 0..TRIES {
        let standing = match known {
            Some(standing) => standing,
            None => match broker.last(StreamName::Assignments, &subject).await {
                Ok(last) => last.as_ref().map_or(Standing { sequence: 0, as_of: 0 }, |stored| read(stored).0),
                Err(error) => return Wrote::Failed(error.to_string()),
            },
        };
        if standing.as_of > assignment.as_of {
            return Wrote::Theirs(standing);
        }
        let message = Message { subject: subject.clone(), headers: Headers::default(), payload: payload.clone().into() };
        match broker.publish(StreamName::Assignments, message, Expect::Subject(standing.sequence)).await {
            Ok(sequence) => return Wrote::Standing(Standing { sequence, as_of: assignment.as_of }),
            Err(PublishError::Conflict) => known = None,
            Err(error) => return Wrote::Failed(error.to_string()),
        }
    }
    Wrote::Failed("another leader writes it too".to_owned())
}
