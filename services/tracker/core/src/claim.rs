//! What a node may say about a run: only what its own members' workers said, as the placement names them.

use crate::{Run, RunCommand};
use footplate_events::facts::{LoggedArtifact, RunFinished};
use footplate_events::messages::{MemberRef, TrackerReport};
use footplate_types::{AttemptNumber, EventId, NodeName, RunId, SpoolId};

/// Why a node's word about a run is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefused {
    /// The run is not known in the project that the node names.
    #[error("run {0} is not known in that project")]
    UnknownRun(RunId),
    /// The run was never placed with that member.
    #[error("attempt {attempt} of run {run} has no member {member}")]
    NoSuchMember {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: AttemptNumber,
        /// The member.
        member: u32,
    },
    /// The member stands on another node.
    #[error("member {member} of attempt {attempt} of run {run} stands on node {placed}")]
    OtherNode {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: AttemptNumber,
        /// The member.
        member: u32,
        /// Its node.
        placed: NodeName,
    },
}

impl Run {
    /// Whether `node` may speak for `of`.
    pub fn check_claim(&self, of: &MemberRef, node: &NodeName) -> Result<(), ClaimRefused> {
        if !self.is_visible() || self.id != of.run || self.project != of.project {
            return Err(ClaimRefused::UnknownRun(of.run));
        }
        let member = self.attempts.get(&of.attempt).and_then(|attempt| attempt.members.get(&of.member));
        let member = member.ok_or(ClaimRefused::NoSuchMember { run: of.run, attempt: of.attempt, member: of.member.0 })?;
        if member.node != *node {
            let placed = member.node.clone();
            return Err(ClaimRefused::OtherNode { run: of.run, attempt: of.attempt, member: of.member.0, placed });
        }
        Ok(())
    }

    /// Whether `node` has a member of that attempt: what a metric batch from a node must show.
    pub fn is_on(&self, attempt: AttemptNumber, node: &NodeName) -> bool {
        self.attempts.get(&attempt).is_some_and(|attempt| attempt.members.values().any(|member| member.node == *node))
    }
}

/// The member that a report is about.
pub fn member_of(report: &TrackerReport) -> &MemberRef {
    match report {
        TrackerReport::Params { of, .. }
        | TrackerReport::Tags { of, .. }
        | TrackerReport::Noted { of, .. }
        | TrackerReport::Artifacts { of, .. }
        | TrackerReport::Finished { of, .. } => of,
    }
}

/// What a report asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A write like a client's, decided like one.
    Command(RunCommand),
    /// A worker's word about its own end, recorded as it is: it decides nothing.
    Word(RunFinished),
}

/// What a report asks for. The attempt is the member's, whatever the payload says.
pub fn asked(report: &TrackerReport) -> Asked {
    let attempt = member_of(report).attempt;
    match report {
        TrackerReport::Params { params, .. } => {
            Asked::Command(RunCommand::LogParams { attempt, rank: params.rank, params: params.params.clone() })
        }
        TrackerReport::Tags { tags, .. } => Asked::Command(RunCommand::SetTags { set: tags.set.clone(), removed: tags.removed.clone() }),
        TrackerReport::Noted { noted, .. } => Asked::Command(RunCommand::Note(noted.clone())),
        TrackerReport::Artifacts { artifacts, .. } => {
            let own = |artifact: &LoggedArtifact| LoggedArtifact { attempt, ..artifact.clone() };
            Asked::Command(RunCommand::LogArtifacts(artifacts.iter().map(own).collect()))
        }
        TrackerReport::Finished { finished, .. } => Asked::Word(RunFinished { attempt, ..finished.clone() }),
    }
}

/// The id of the event that a report becomes: fixed by its place in the spool, so that a report folded twice is the same event.
pub fn report_event_id(spool: SpoolId, offset: u64) -> EventId {
    EventId::derived(&[b"report", spool.as_bytes(), &offset.to_be_bytes()])
}
