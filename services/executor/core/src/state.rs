//! The executor's view: every attempt with its members, and the generation of every node. A pure fold of the ledger.

use footplate_es::{Cause, Evolve, Project};
use footplate_events::facts::{
    AttemptCheckpointed, AttemptLogsArchived, Cause as JobCause, JobPlaced, MemberExited, MemberLost, Rendezvous,
};
use footplate_events::{Event, Recorded};
use footplate_types::{AttemptId, Epoch, MemberIndex, NodeName, ProjectName, Rank, RequestId, RunId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How far a member has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MemberPhase {
    /// Placed; its node prepares it.
    Placed,
    /// Prepared; nothing started.
    Ready,
    /// Its workers run.
    Started,
    /// Its tree is empty: released.
    Exited(Box<MemberExited>),
    /// Lost with its node: released.
    Lost(MemberLost),
}

impl MemberPhase {
    /// Whether its claims are free.
    pub const fn is_released(&self) -> bool {
        matches!(self, Self::Exited(_) | Self::Lost(_))
    }

    /// The word for it in the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Ready => "ready",
            Self::Started => "started",
            Self::Exited(_) => "exited",
            Self::Lost(_) => "lost",
        }
    }
}

/// One member of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberState {
    /// Its node.
    pub node: NodeName,
    /// The node's generation at the placement.
    pub epoch: Epoch,
    /// The node's boot id at the placement; absent when the node was not known.
    pub boot_id: Option<String>,
    /// The rank of its first worker.
    pub first_rank: Rank,
    /// How many workers it has.
    pub workers: u32,
    /// How far it has come.
    pub phase: MemberPhase,
    /// Where rank 0 waits, told by member 0.
    pub rendezvous: Option<Rendezvous>,
    /// Its archived logs.
    pub archived: Option<AttemptLogsArchived>,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptState {
    /// The tenant.
    pub project: ProjectName,
    /// The ledger sequence of its placement.
    pub placed_at: u64,
    /// What its events answer.
    pub cause: Cause,
    /// Its members.
    pub members: BTreeMap<MemberIndex, MemberState>,
    /// Its newest checkpoint.
    pub checkpoint: Option<AttemptCheckpointed>,
}

impl AttemptState {
    /// Whether every member is released.
    pub fn is_released(&self) -> bool {
        self.members.values().all(|member| member.phase.is_released())
    }
}

/// What the ledger says of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its generation.
    pub epoch: Epoch,
    /// Its boot id.
    pub boot_id: String,
    /// An operator's word that this generation is gone, not yet followed by a higher one.
    pub declared_lost: Option<RequestId>,
    /// The generation of which that was said. Absent in what was stored before this was kept: then it is said of whatever lives.
    #[serde(default)]
    pub declared_of: Option<Epoch>,
}

/// The executor's view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Executor {
    attempts: BTreeMap<AttemptId, AttemptState>,
    nodes: BTreeMap<NodeName, NodeState>,
    unreleased: BTreeMap<NodeName, BTreeSet<(AttemptId, MemberIndex)>>,
    unarchived: BTreeSet<(AttemptId, MemberIndex)>,
    projects: BTreeMap<RunId, ProjectName>,
    ended: BTreeSet<RunId>,
}

impl Executor {
    /// One attempt.
    pub fn attempt(&self, id: &AttemptId) -> Option<&AttemptState> {
        self.attempts.get(id)
    }

    /// The attempts of a run, oldest first.
    pub fn attempts_of(&self, run: RunId) -> impl Iterator<Item = (&AttemptId, &AttemptState)> {
        let id = |attempt| AttemptId { run, attempt: footplate_types::AttemptNumber(attempt) };
        self.attempts.range(id(0)..=id(u32::MAX))
    }

    /// The project of a run that was submitted as a job.
    pub fn project_of(&self, run: RunId) -> Option<&ProjectName> {
        self.projects.get(&run)
    }

    /// The runs of a project.
    pub fn runs_of(&self, project: &ProjectName) -> impl Iterator<Item = RunId> {
        self.projects.iter().filter(move |(_, of)| *of == project).map(|(run, _)| *run)
    }

    /// Whether a run's job has ended.
    pub fn has_ended(&self, run: RunId) -> bool {
        self.ended.contains(&run)
    }

    /// What the ledger says of a node.
    pub fn node(&self, name: &NodeName) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// Nodes whose generation an operator has declared gone, with the request and the generation of which that was said.
    pub fn declared_lost(&self) -> impl Iterator<Item = (&NodeName, RequestId, Option<Epoch>)> {
        self.nodes.iter().filter_map(|(name, node)| node.declared_lost.map(|request| (name, request, node.declared_of)))
    }

    /// Members of a node that hold claims there.
    pub fn unreleased_on<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = (AttemptId, MemberIndex, &'a MemberState)> + use<'a> {
        self.unreleased.get(node).into_iter().flatten().filter_map(|(id, index)| {
            self.attempts.get(id).and_then(|attempt| attempt.members.get(index)).map(|member| (*id, *index, member))
        })
    }

    /// Nodes with unreleased members.
    pub fn busy_nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.unreleased.keys()
    }

    /// Released members whose logs are not archived.
    pub fn unarchived(&self) -> impl Iterator<Item = (AttemptId, MemberIndex, &AttemptState, &MemberState)> {
        self.unarchived.iter().filter_map(|(id, index)| {
            let attempt = self.attempts.get(id)?;
            attempt.members.get(index).map(|member| (*id, *index, attempt, member))
        })
    }

    fn place(&mut self, recorded: &Recorded, run: RunId, placed: &JobPlaced) {
        let id = AttemptId { run, attempt: placed.attempt };
        if self.attempts.contains_key(&id) {
            return;
        }
        let mut members = BTreeMap::new();
        for member in &placed.members {
            let boot_id = self.nodes.get(&member.node).map(|node| node.boot_id.clone());
            self.unreleased.entry(member.node.clone()).or_default().insert((id, member.member));
            let state = MemberState {
                node: member.node.clone(),
                epoch: member.epoch,
                boot_id,
                first_rank: member.first_rank,
                workers: member.workers,
                phase: MemberPhase::Placed,
                rendezvous: None,
                archived: None,
            };
            members.insert(member.member, state);
        }
        let attempt = AttemptState {
            project: recorded.envelope.subject.project.clone(),
            placed_at: recorded.sequence,
            cause: Cause::of(&recorded.envelope),
            members,
            checkpoint: None,
        };
        self.attempts.insert(id, attempt);
    }

    /// A void placement claimed nothing and was never told to any node: there is nothing of it to be lost or archived.
    fn void(&mut self, id: AttemptId) {
        let Some(attempt) = self.attempts.remove(&id) else { return };
        for (index, member) in attempt.members {
            self.release(id, index, &member.node);
            self.unarchived.remove(&(id, index));
        }
    }

    fn release(&mut self, id: AttemptId, index: MemberIndex, node: &NodeName) {
        if let Some(held) = self.unreleased.get_mut(node) {
            held.remove(&(id, index));
            if held.is_empty() {
                self.unreleased.remove(node);
            }
        }
        self.unarchived.insert((id, index));
    }

    fn member_mut(&mut self, id: &AttemptId, index: MemberIndex) -> Option<&mut MemberState> {
        self.attempts.get_mut(id).and_then(|attempt| attempt.members.get_mut(&index))
    }

    fn evolve_attempt(&mut self, id: AttemptId, event: &Event) {
        match event {
            Event::AttemptReady(fact) => {
                for ready in &fact.members {
                    if let Some(member) = self.member_mut(&id, ready.member).filter(|member| member.phase == MemberPhase::Placed) {
                        member.phase = MemberPhase::Ready;
                        member.rendezvous.clone_from(&ready.rendezvous);
                    }
                }
            }
            Event::AttemptStarted(fact) => {
                for started in &fact.members {
                    if let Some(member) = self.member_mut(&id, started.member).filter(|member| !member.phase.is_released()) {
                        member.phase = MemberPhase::Started;
                    }
                }
            }
            Event::AttemptExited(fact) => {
                for exited in &fact.members {
                    if let Some(member) = self.member_mut(&id, exited.member).filter(|member| !member.phase.is_released()) {
                        member.phase = MemberPhase::Exited(Box::new(exited.clone()));
                        let node = member.node.clone();
                        self.release(id, exited.member, &node);
                    }
                }
            }
            Event::AttemptLost(fact) => {
                for lost in &fact.members {
                    if let Some(member) = self.member_mut(&id, lost.member).filter(|member| !member.phase.is_released()) {
                        member.phase = MemberPhase::Lost(lost.clone());
                        let node = member.node.clone();
                        self.release(id, lost.member, &node);
                    }
                }
            }
            Event::AttemptCheckpointed(fact) => {
                if let Some(attempt) = self.attempts.get_mut(&id) {
                    attempt.checkpoint = Some(fact.clone());
                }
            }
            Event::AttemptLogsArchived(fact) => {
                if let Some(member) = self.member_mut(&id, fact.member) {
                    member.archived = Some(fact.clone());
                    self.unarchived.remove(&(id, fact.member));
                }
            }
            _ => {}
        }
    }

    fn evolve_node(&mut self, name: NodeName, event: &Event) {
        let node = self.nodes.entry(name).or_default();
        match event {
            Event::NodeRegistered(fact) if fact.epoch >= node.epoch => {
                if fact.epoch > node.epoch {
                    node.declared_lost = None;
                    node.declared_of = None;
                }
                node.epoch = fact.epoch;
                node.boot_id.clone_from(&fact.boot_id);
            }
            // Of a generation that is over it says nothing of the one that stands.
            Event::NodeLossDeclared(fact) if fact.epoch.is_none_or(|meant| meant >= node.epoch) => {
                node.declared_lost = Some(fact.request);
                node.declared_of = Some(fact.epoch.unwrap_or(node.epoch));
            }
            _ => {}
        }
    }
}

impl Evolve for Executor {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        match &recorded.envelope.event {
            Event::JobSubmitted(_) => {
                if let Some(run) = subject.run_id() {
                    self.projects.insert(run, subject.project.clone());
                }
            }
            Event::JobPlaced(placed) => {
                if let Some(run) = subject.run_id() {
                    self.place(recorded, run, placed);
                }
            }
            Event::JobRequeued(fact) if fact.cause == JobCause::Void => {
                if let Some(run) = subject.run_id() {
                    self.void(AttemptId { run, attempt: fact.attempt });
                }
            }
            Event::JobEnded(_) => {
                if let Some(run) = subject.run_id() {
                    self.ended.insert(run);
                }
            }
            event => {
                if let Some(id) = subject.attempt_id() {
                    self.evolve_attempt(id, event);
                } else if let Some(name) = subject.node_name() {
                    self.evolve_node(name, event);
                }
            }
        }
    }
}

impl Project for Executor {
    fn fingerprint(&self) -> String {
        let mut out = String::new();
        for (id, attempt) in &self.attempts {
            let _ = writeln!(out, "attempt {id} {attempt:?}");
        }
        for (name, node) in &self.nodes {
            let _ = writeln!(out, "node {name} {node:?}");
        }
        let _ = writeln!(out, "unreleased {:?}", self.unreleased);
        let _ = writeln!(out, "unarchived {:?}", self.unarchived);
        let _ = writeln!(out, "projects {:?}", self.projects);
        let _ = writeln!(out, "ended {:?}", self.ended);
        out
    }
}
