//! Attempts: ready, started, checkpointed; and the two facts that release a claim, `exited` and `lost`.
//!
//! What a report claims is checked against the placement: another node, or an older generation than the placement's, changes nothing.
//! The first end of a member stands.

use crate::state::{Attempt, Checkpoint, ClaimKey, Ending, How, Job, MemberStage, Stage, Stamp, State};
use footplate_events::Envelope;
use footplate_events::facts::{AttemptCheckpointed, AttemptExited, AttemptLost, AttemptReady, AttemptStarted, Cause, RetryPolicy};
use footplate_types::{AttemptId, AttemptNumber, Epoch, MemberIndex, NodeName, RunId};

impl State {
    /// The living attempt that an event is about: of this job, in this project, not void.
    fn attempt_of(&mut self, envelope: &Envelope) -> Option<(&mut Job, AttemptId)> {
        let id = envelope.subject.attempt_id()?;
        let job = self.jobs.get_mut(&id.run)?;
        let living = job.attempt().is_some_and(|attempt| attempt.number == id.attempt && !attempt.void);
        (living && job.project == envelope.subject.project).then_some((job, id))
    }

    pub(super) fn attempt_ready(&mut self, envelope: &Envelope, stamp: Stamp, fact: &AttemptReady) {
        let Some((job, _)) = self.attempt_of(envelope) else { return };
        let Stage::Active(attempt) = &mut job.stage else { return };
        for ready in &fact.members {
            let Some(at) = same(attempt, ready.member, &ready.node) else { continue };
            let member = &mut attempt.members[at];
            if member.stage != MemberStage::Preparing || member.placement.epoch != ready.epoch {
                continue;
            }
            member.stage = MemberStage::Ready;
            if member.placement.role.is_some() {
                member.port = ready.rendezvous.as_ref().map(|rendezvous| rendezvous.port);
            }
            if at == 0 {
                attempt.rendezvous.clone_from(&ready.rendezvous);
            }
            attempt.reported = stamp;
        }
    }

    pub(super) fn attempt_started(&mut self, envelope: &Envelope, stamp: Stamp, fact: &AttemptStarted) {
        let Some((job, id)) = self.attempt_of(envelope) else { return };
        // Of the try before this one: which node could not start it.
        let failed = job.past.last().filter(|past| past.number.next() == id.attempt && past.cause == Cause::Infrastructure);
        let failed = failed.and_then(|past| past.root.as_ref()).map(|root| root.node.clone());
        let Stage::Active(attempt) = &mut job.stage else { return };
        let is_first = attempt.members.iter().all(|member| member.stage != MemberStage::Running);
        let mut works = Vec::new();
        for started in &fact.members {
            let Some(at) = same(attempt, started.member, &started.node) else { continue };
            let member = &mut attempt.members[at];
            if !member.is_released() && member.placement.epoch == started.epoch {
                member.stage = MemberStage::Running;
                attempt.reported = stamp;
                works.push(started.node.clone());
            }
        }
        let everywhere_else = |node: &NodeName| !attempt.members.iter().any(|member| member.placement.node == *node);
        let failed = failed.filter(|node| is_first && !works.is_empty() && everywhere_else(node));
        for name in works {
            if let Some(node) = self.nodes.get_mut(&name).filter(|node| node.quarantined.is_none()) {
                node.pardon();
            }
        }
        if let Some(node) = failed.and_then(|name| self.nodes.get_mut(&name))
            && node.blame(id.run, stamp)
        {
            // A node less: other guarantees may be short.
            self.revision = stamp.sequence;
        }
    }

    /// The newest whole checkpoint: of the highest attempt; in it of the highest step, of the lowest rank among equals; a rank that goes
    /// back replaces its own. A lower attempt's is refused, also when it comes late.
    pub(super) fn attempt_checkpointed(&mut self, envelope: &Envelope, stamp: Stamp, fact: &AttemptCheckpointed) {
        let Some(id) = envelope.subject.attempt_id() else { return };
        let Some(job) = self.jobs.get_mut(&id.run) else { return };
        if job.project != envelope.subject.project || id.attempt > job.last_attempt {
            return;
        }
        let newer = job.checkpoint.as_ref().is_none_or(|known| {
            id.attempt > known.attempt
                || (id.attempt == known.attempt
                    && (fact.step > known.step || fact.rank == known.rank || (fact.step == known.step && fact.rank < known.rank)))
        });
        // An older attempt than the one that lives must not move what the living one began from.
        if newer && id.attempt == job.last_attempt {
            job.checkpoint = Some(Checkpoint { attempt: id.attempt, step: fact.step, rank: fact.rank, manifest: fact.manifest });
            if let Stage::Active(attempt) = &mut job.stage {
                attempt.saved = Some(stamp);
            }
        }
    }

    pub(super) fn attempt_exited(&mut self, envelope: &Envelope, stamp: Stamp, fact: &AttemptExited) {
        for exited in &fact.members {
            let how = |retry: &RetryPolicy| How::of(exited, retry);
            self.end_member(envelope, stamp, (exited.member, &exited.node, exited.epoch), MemberStage::Exited, how);
        }
    }

    pub(super) fn attempt_lost(&mut self, envelope: &Envelope, stamp: Stamp, fact: &AttemptLost) {
        for lost in &fact.members {
            self.end_member(envelope, stamp, (lost.member, &lost.node, lost.epoch), MemberStage::Lost, |_| How::Lost);
        }
    }

    /// A member ends: its claim is free from here on.
    fn end_member(
        &mut self,
        envelope: &Envelope,
        stamp: Stamp,
        (member, node, epoch): (MemberIndex, &NodeName, Epoch),
        stage: MemberStage,
        how: impl Fn(&RetryPolicy) -> How,
    ) {
        let Some((job, id)) = self.attempt_of(envelope) else { return };
        let spec = job.spec.clone();
        let Stage::Active(attempt) = &mut job.stage else { return };
        let Some(at) = same(attempt, member, node) else { return };
        if attempt.members[at].is_released() || epoch < attempt.members[at].placement.epoch {
            return;
        }
        attempt.members[at].stage = stage;
        attempt.endings.push(Ending { member: at, how: how(&spec.retry), stamp });
        attempt.reported = stamp;
        let placed = attempt.placed.sequence;
        self.release(placed, id.run, id.attempt, member, node, &spec.queue, stamp.sequence);
    }

    #[allow(clippy::too_many_arguments)]
    fn release(
        &mut self,
        placed: u64,
        run: RunId,
        attempt: AttemptNumber,
        member: MemberIndex,
        node: &NodeName,
        queue: &footplate_types::QueueName,
        sequence: u64,
    ) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        let Some(claim) = node.claims.remove(&ClaimKey { placed, run, attempt, member }) else { return };
        node.assigned_at = sequence;
        node.changed_at = sequence;
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.holding.remove(&claim);
        }
    }
}

/// The position of a member that stands on this node.
fn same(attempt: &Attempt, member: MemberIndex, node: &NodeName) -> Option<usize> {
    attempt.members.iter().position(|known| known.placement.member == member && known.placement.node == *node)
}
