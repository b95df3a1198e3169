//! How a run follows from events: one arm an event, one small function an arm.

use super::{Artifact, Attempt, Chain, Ended, Member, MemberLogs, MemberState, Origin, Param, RECENT_MAX, Run, SealMark, Status};
use footplate_es::Evolve;
use footplate_events::facts::{
    AttemptCheckpointed, AttemptExited, AttemptLogsArchived, AttemptLost, AttemptReady, AttemptStarted, Cause, Exit, JobEnded, JobPlaced,
    JobRequeued, JobStopRequested, JobSubmitted, MemberExited, RootCause, RunArtifactsLogged, RunCreated, RunFinished, RunInputsLogged,
    RunNoted, RunParamsLogged, RunTagsSet, WaitReason,
};
use footplate_events::{Aggregate, Envelope, Event, Recorded};
use footplate_types::{AttemptNumber, EventId, ExperimentId, MemberIndex, ParamKey, Timestamp};

impl Evolve for Run {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        if subject.run_id() != Some(self.id) || subject.project != self.project {
            return;
        }
        self.sequence = recorded.sequence;
        if subject.aggregate == Aggregate::Run {
            self.version = recorded.sequence;
            self.recent.push_back((recorded.envelope.id, recorded.sequence));
            if self.recent.len() > RECENT_MAX {
                self.recent.pop_front();
            }
        }
        self.apply(recorded);
    }
}

impl Run {
    fn apply(&mut self, recorded: &Recorded) {
        let (at, envelope) = (recorded.recorded_at, &recorded.envelope);
        let of = envelope.subject.attempt_id().map(|id| id.attempt);
        match &envelope.event {
            Event::RunCreated(fact) => self.opened(fact, envelope, at),
            Event::RunParamsLogged(fact) => self.params_logged(fact, envelope),
            Event::RunTagsSet(fact) => self.tags_set(fact),
            Event::RunNoted(fact) => self.noted(fact),
            Event::RunInputsLogged(fact) => self.inputs_logged(fact),
            Event::RunArtifactsLogged(fact) => self.artifacts_logged(fact, recorded.sequence),
            Event::RunFinished(fact) => self.finished(fact, envelope.id, at),
            Event::RunSealed(fact) => self.sealed(SealMark { at, fact: fact.clone() }),
            Event::JobSubmitted(fact) => self.submitted(fact, envelope, at),
            Event::JobWaiting(fact) => self.waits(wait_text(&fact.reason)),
            Event::JobHeld(_) => self.waits("held; release it with `footplate job release`".to_owned()),
            Event::JobReleased(_) => self.waits(String::new()),
            Event::JobReprioritized(fact) => self.priority = fact.priority,
            Event::JobPlaced(fact) => self.placed(fact, at),
            Event::JobLaunched(fact) => self.launched(fact.attempt, at),
            Event::JobStopRequested(fact) => self.stop_requested(fact),
            Event::JobRequeued(fact) => self.requeued(fact, at),
            Event::JobEnded(fact) => self.job_ended(fact, envelope.id, at),
            Event::AttemptReady(fact) => self.ready(of, fact),
            Event::AttemptStarted(fact) => self.started(of, fact),
            Event::AttemptCheckpointed(fact) => self.checkpointed(of, fact),
            Event::AttemptExited(fact) => self.exited(of, fact),
            Event::AttemptLost(fact) => self.lost(of, fact),
            Event::AttemptLogsArchived(fact) => self.logs_archived(of, fact),
            Event::JobRefused(_)
            | Event::JobDeadlineNeared(_)
            | Event::JobDeadlineMissed(_)
            | Event::JobCancelRequested(_)
            | Event::JobHoldRequested(_)
            | Event::JobReleaseRequested(_)
            | Event::JobReprioritizeRequested(_)
            | Event::ExperimentCreated(_)
            | Event::ExperimentNoted(_)
            | Event::QueueConfigured(_)
            | Event::TermBegan(_)
            | Event::NodeRegistered(_)
            | Event::NodeHealthChanged(_)
            | Event::NodeCordoned(_)
            | Event::NodeUncordoned(_)
            | Event::NodeDrained(_)
            | Event::NodeLost(_)
            | Event::NodeRefused(_)
            | Event::NodeCordonRequested(_)
            | Event::NodeUncordonRequested(_)
            | Event::NodeDrainRequested(_)
            | Event::NodeTainted(_)
            | Event::NodeUntainted(_)
            | Event::NodeTaintRequested(_)
            | Event::NodeUntaintRequested(_)
            | Event::NodeLossDeclared(_)
            | Event::ModelCreated(_)
            | Event::ModelPromoted(_)
            | Event::ModelRolledBack(_)
            | Event::ModelStaged(_)
            | Event::ModelArchived(_)
            | Event::ModelAliasSet(_)
            | Event::ModelAliasRemoved(_)
            | Event::ModelVersionRegistered(_)
            | Event::ModelVersionEvaluated(_)
            | Event::ModelVersionProposed(_)
            | Event::ModelVersionApproved(_)
            | Event::ModelVersionRejected(_)
            | Event::SweepCreated(_)
            | Event::SweepStopRequested(_)
            | Event::SweepResumed(_)
            | Event::TrialSuggested(_)
            | Event::TrialObserved(_)
            | Event::TrialPruned(_)
            | Event::TrialFinished(_)
            | Event::ProjectCreated(_)
            | Event::ProjectRoleGiven(_)
            | Event::ProjectRoleTaken(_)
            | Event::PrincipalCreated(_)
            | Event::PrincipalDisabled(_)
            | Event::PrincipalEnabled(_)
            | Event::TokenCreated(_)
            | Event::TokenRevoked(_)
            | Event::SubscriptionCreated(_)
            | Event::SubscriptionDeleted(_)
            | Event::WebhookCreated(_)
            | Event::WebhookReplayed(_)
            | Event::WebhookPaused(_)
            | Event::WebhookResumed(_)
            | Event::WebhookDeleted(_) => {}
        }
    }

    fn opened(&mut self, fact: &RunCreated, envelope: &Envelope, at: Timestamp) {
        if self.origin.is_some() {
            return;
        }
        self.origin = Some(Origin::Opened);
        self.name = Some(fact.name.clone());
        self.experiment = Some(fact.experiment);
        self.experiment_name = Some(fact.experiment_name.clone());
        self.body = fact.body;
        self.hypothesis = fact.hypothesis.clone();
        self.chain = Some(chain(envelope));
        self.created_by = envelope.actor.to_string();
        self.created_at = at;
        self.started_at = Some(at);
        self.running_since = Some(at);
        self.status = Status::Running;
    }

    fn submitted(&mut self, fact: &JobSubmitted, envelope: &Envelope, at: Timestamp) {
        if self.origin.is_some() {
            return;
        }
        let spec = &fact.spec;
        self.origin = Some(Origin::Submitted);
        self.name = Some(spec.name.clone());
        self.experiment = Some(ExperimentId::of(&self.project, &spec.experiment));
        self.experiment_name = Some(spec.experiment.clone());
        self.body = Some(fact.body);
        self.hypothesis = spec.why.hypothesis.clone();
        self.baseline = spec.why.baseline;
        self.chain = Some(chain(envelope));
        self.created_by = envelope.actor.to_string();
        self.created_at = at;
        self.status = Status::Pending;
        self.inputs = spec.inputs.clone();
        self.queue = Some(spec.queue.clone());
        self.priority = spec.priority;
        self.source = spec.source.clone();
        self.objectives = spec.objectives.clone();
        self.rerun_of = spec.rerun_of;
        self.config_wanted = spec.config.map(|config| (config, envelope.id));
        let labels = spec.labels.iter().filter_map(|(key, value)| Some((ParamKey::parse(key).ok()?, value.clone())));
        self.tags.extend(labels);
    }

    fn params_logged(&mut self, fact: &RunParamsLogged, envelope: &Envelope) {
        if self.config_wanted.is_some_and(|(_, submission)| envelope.causation == Some(submission)) {
            self.config_wanted = None;
        } else {
            self.count_late();
        }
        for (key, value) in &fact.params {
            match self.params.get_mut(key) {
                Some(param) => param.log_again(fact.attempt, fact.rank, value.clone()),
                None => {
                    self.params.insert(key.clone(), Param::first(fact.attempt, fact.rank, value.clone()));
                }
            }
        }
    }

    fn tags_set(&mut self, fact: &RunTagsSet) {
        self.tags.extend(fact.set.iter().map(|(key, value)| (key.clone(), value.clone())));
        for key in &fact.removed {
            self.tags.remove(key);
        }
    }

    fn noted(&mut self, fact: &RunNoted) {
        for (field, text) in
            [(&mut self.hypothesis, &fact.hypothesis), (&mut self.conclusion, &fact.conclusion), (&mut self.note, &fact.note)]
        {
            if let Some(text) = text {
                field.clone_from(text);
            }
        }
    }

    fn inputs_logged(&mut self, fact: &RunInputsLogged) {
        self.count_late();
        for input in &fact.inputs {
            if !self.inputs.contains(input) {
                self.inputs.push(input.clone());
            }
        }
    }

    fn artifacts_logged(&mut self, fact: &RunArtifactsLogged, sequence: u64) {
        self.count_late();
        for logged in &fact.artifacts {
            let artifact = Artifact { digest: logged.digest, bytes: logged.bytes, attempt: logged.attempt, rank: logged.rank, sequence };
            let outranked = self.artifacts.get(&logged.path).is_some_and(|known| outranks(known, &artifact));
            if !outranked {
                self.artifacts.insert(logged.path.clone(), artifact);
            }
        }
    }

    fn finished(&mut self, fact: &RunFinished, event: EventId, at: Timestamp) {
        if self.origin != Some(Origin::Opened) || self.ended.is_some() {
            return;
        }
        self.pause(at);
        self.status = Status::Ending;
        self.ended = Some(Ended {
            event,
            at,
            outcome: fact.outcome,
            cause: None,
            attempt: AttemptNumber(0),
            root: None,
            message: fact.message.clone(),
            sessions: fact.sessions.clone(),
        });
    }

    fn sealed(&mut self, mark: SealMark) {
        if self.seal.is_none() && self.ended.is_some() {
            self.seal = Some(mark);
            self.status = Status::Sealed;
        }
    }

    fn count_late(&mut self) {
        self.late += u64::from(self.seal.is_some());
    }

    fn waits(&mut self, reason: String) {
        if self.status == Status::Pending {
            self.waiting = reason;
        }
    }

    fn placed(&mut self, fact: &JobPlaced, at: Timestamp) {
        if self.ended.is_some() {
            return;
        }
        self.status = Status::Preparing;
        self.waiting.clear();
        let members = fact.members.iter().map(|placed| {
            let member = Member {
                node: placed.node.clone(),
                gpus: placed.gpus.clone(),
                gpu_profile: placed.gpu_profile.clone(),
                gpu_share: (placed.gpu_share > 0).then_some((placed.gpu_share, placed.gpu_memory_bytes)),
                slots: placed.slots.clone(),
                first_rank: placed.first_rank,
                workers: placed.workers,
                state: MemberState::Placed,
                exits: Vec::new(),
                offsets: None,
                logs: None,
            };
            (placed.member, member)
        });
        let attempt = Attempt {
            placed_at: at,
            launched_at: None,
            ended_at: None,
            stop: None,
            cause: None,
            root: None,
            checkpoint: None,
            members: members.collect(),
        };
        self.attempts.entry(fact.attempt).or_insert(attempt);
    }

    fn launched(&mut self, number: AttemptNumber, at: Timestamp) {
        if let Some(attempt) = self.attempts.get_mut(&number) {
            attempt.launched_at.get_or_insert(at);
        }
        if self.ended.is_none() && self.status == Status::Preparing {
            self.status = Status::Running;
            self.running_since = Some(at);
            self.started_at.get_or_insert(at);
        }
    }

    fn stop_requested(&mut self, fact: &JobStopRequested) {
        if let Some(attempt) = self.attempts.get_mut(&fact.attempt) {
            attempt.stop.get_or_insert(fact.cause);
        }
        if self.ended.is_none() && matches!(self.status, Status::Preparing | Status::Running) {
            self.status = Status::Stopping;
        }
    }

    fn requeued(&mut self, fact: &JobRequeued, at: Timestamp) {
        self.close_attempt(fact.attempt, fact.cause, fact.root.clone(), at);
        if self.ended.is_none() {
            self.pause(at);
            self.status = Status::Pending;
            self.waiting = if fact.backoff.0 > 0 { wait_text(&WaitReason::Backoff) } else { String::new() };
        }
    }

    fn job_ended(&mut self, fact: &JobEnded, event: EventId, at: Timestamp) {
        if self.ended.is_some() || self.origin != Some(Origin::Submitted) {
            return;
        }
        self.close_attempt(fact.attempt, fact.cause, fact.root.clone(), at);
        self.pause(at);
        self.waiting.clear();
        self.status = Status::Ending;
        self.ended = Some(Ended {
            event,
            at,
            outcome: fact.outcome,
            cause: Some(fact.cause),
            attempt: fact.attempt,
            root: fact.root.clone(),
            message: fact.message.clone(),
            sessions: Vec::new(),
        });
    }

    fn close_attempt(&mut self, number: AttemptNumber, cause: Cause, root: Option<RootCause>, at: Timestamp) {
        if let Some(attempt) = self.attempts.get_mut(&number)
            && attempt.ended_at.is_none()
        {
            attempt.ended_at = Some(at);
            attempt.cause = Some(cause);
            attempt.root = root;
        }
    }

    /// Stops the count of its running time.
    fn pause(&mut self, at: Timestamp) {
        if let Some(since) = self.running_since.take() {
            self.ran_ms += at.millis_since(since);
        }
    }

    fn member(&mut self, attempt: Option<AttemptNumber>, member: MemberIndex) -> Option<&mut Member> {
        self.attempts.get_mut(&attempt?)?.members.get_mut(&member)
    }

    fn raise(&mut self, attempt: Option<AttemptNumber>, member: MemberIndex, state: MemberState) {
        if let Some(member) = self.member(attempt, member) {
            member.state = member.state.max(state);
        }
    }

    fn ready(&mut self, of: Option<AttemptNumber>, fact: &AttemptReady) {
        for ready in &fact.members {
            self.raise(of, ready.member, MemberState::Ready);
        }
    }

    fn started(&mut self, of: Option<AttemptNumber>, fact: &AttemptStarted) {
        for started in &fact.members {
            self.raise(of, started.member, MemberState::Started);
        }
    }

    fn checkpointed(&mut self, of: Option<AttemptNumber>, fact: &AttemptCheckpointed) {
        if let Some(attempt) = of.and_then(|number| self.attempts.get_mut(&number)) {
            attempt.checkpoint = Some(fact.step);
        }
    }

    fn exited(&mut self, of: Option<AttemptNumber>, fact: &AttemptExited) {
        for exited in &fact.members {
            let Some(member) = self.member(of, exited.member) else { continue };
            if member.state < MemberState::Exited {
                member.state = MemberState::Exited;
                member.exits = exit_lines(exited);
            }
            member.offsets.get_or_insert_with(|| exited.offsets.clone());
        }
    }

    fn lost(&mut self, of: Option<AttemptNumber>, fact: &AttemptLost) {
        for lost in &fact.members {
            if let Some(member) = self.member(of, lost.member)
                && member.state < MemberState::Exited
            {
                member.state = MemberState::Lost;
            }
        }
    }

    fn logs_archived(&mut self, of: Option<AttemptNumber>, fact: &AttemptLogsArchived) {
        if let Some(member) = self.member(of, fact.member) {
            let bytes = fact.logs.iter().map(|log| log.bytes).sum();
            member.logs = Some(MemberLogs { complete: fact.complete, bytes });
        }
    }
}

fn chain(envelope: &Envelope) -> Chain {
    Chain {
        event: envelope.id,
        correlation: envelope.correlation,
        actor: envelope.actor.clone(),
        trace: envelope.trace.as_ref().map(|trace| trace.as_str().to_owned()),
    }
}

/// Whether a file that stands is not to be replaced: an earlier attempt's word that came late names nothing new.
fn outranks(known: &Artifact, new: &Artifact) -> bool {
    new.attempt != AttemptNumber(0) && new.attempt < known.attempt
}

fn exit_lines(exited: &MemberExited) -> Vec<String> {
    let mut lines: Vec<String> = exited.not_started.iter().map(|why| format!("not started: {why}")).collect();
    // What kept the member from starting is each worker's own sentence again.
    let said = |exit: &Exit| matches!((exit, &exited.not_started), (Exit::NotStarted(why), Some(known)) if why == known);
    for worker in exited.workers.iter().filter(|worker| !said(&worker.exit)) {
        let how = match &worker.exit {
            Exit::Code(code) => format!("exit {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
            Exit::NotStarted(why) => format!("not started: {why}"),
            Exit::Unknown(why) => format!("end unknown: {why}"),
        };
        let stopped = exited.obeyed.is_some();
        let by_platform = if stopped { " (stopped by the platform)" } else { "" };
        lines.push(format!("rank {}: {how}{by_platform}", worker.rank));
    }
    lines
}

fn wait_text(reason: &WaitReason) -> String {
    match reason {
        WaitReason::Held => "held; release it with `footplate job release`".to_owned(),
        WaitReason::QueueHeld => "its queue is held".to_owned(),
        WaitReason::Quota { detail } => format!("quota: {detail}"),
        WaitReason::Resources { detail } => format!("resources: {detail}"),
        WaitReason::NoSuchNode { detail } => format!("no such node: {detail}"),
        WaitReason::Backoff => "waits before its next attempt".to_owned(),
        WaitReason::Preempting => "waits until preempted work has left".to_owned(),
        WaitReason::Dependencies { detail } => format!("waits for {detail}"),
        WaitReason::Array { detail } => format!("waits for others of its array: {detail}"),
    }
}
