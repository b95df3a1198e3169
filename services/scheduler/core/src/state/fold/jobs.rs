//! Jobs: submitted, asked about, placed, launched, stopped, requeued, ended.

use crate::state::{
    Answer, Ask, Attempt, Budget, Chain, Claim, ClaimKey, EndedJob, Job, Launch, Member, MemberStage, Part, PastAttempt, Request, Stage,
    Stamp, State, Stop, Urgency,
};
use footplate_es::Cause as EventCause;
use footplate_events::Envelope;
use footplate_events::facts::{
    JobEnded, JobLaunched, JobPlaced, JobRefused, JobReprioritized, JobRequeued, JobStopRequested, JobSubmitted, JobWaiting,
    MemberPlacement, Outcome, StopCause, WaitReason,
};
use footplate_types::{AttemptNumber, Millis, RequestId};
use std::collections::BTreeMap;
use std::sync::Arc;

fn remember(answers: &mut BTreeMap<RequestId, Answer>, request: RequestId, answer: Answer) {
    answers.entry(request).or_insert(answer);
    while answers.len() > Job::ANSWERS_MAX {
        let oldest = answers.iter().min_by_key(|(_, answer)| answer.sequence).map(|(id, _)| *id);
        oldest.map(|id| answers.remove(&id));
    }
}

/// What stood behind others of its array and is told something else: its wait begins only now.
fn begin_to_wait(told: Option<&WaitReason>, since: &mut Stamp, stamp: Stamp) {
    if matches!(told, Some(WaitReason::Array { .. })) {
        *since = stamp;
    }
}

impl State {
    /// The living job that an event of it is about.
    fn job_of(&mut self, envelope: &Envelope) -> Option<&mut Job> {
        let job = self.jobs.get_mut(&envelope.subject.run_id()?)?;
        (job.project == envelope.subject.project).then_some(job)
    }

    pub(super) fn job_submitted(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobSubmitted) {
        let Some(run) = envelope.subject.run_id() else { return };
        if self.jobs.contains_key(&run) || self.ended.contains_key(&run) {
            return;
        }
        let chain = Chain { actor: envelope.actor.clone(), correlation: envelope.correlation, trace: envelope.trace.clone() };
        let requests: Vec<Request> = self.wanted.remove(&run).and_then(|wanted| wanted.cancel).into_iter().collect();
        if !requests.is_empty() {
            self.asking.insert(run);
        }
        let settings = self.queues.get(&fact.spec.queue).map(|queue| queue.settings.clone()).unwrap_or_default();
        let job = Job {
            run,
            order: Job::order_of(&fact.spec, &stamp, &settings),
            project: envelope.subject.project.clone(),
            class: Job::class_of(&fact.spec, &[]),
            parts: Part::all(&fact.spec, &[]),
            priority: fact.spec.priority,
            spec: Arc::new(fact.spec.clone()),
            body: fact.body,
            chain,
            submitted: stamp,
            latest: stamp,
            held: false,
            tied: false,
            urgency: Urgency::None,
            stage: Stage::Pending { since: stamp, backoff: Millis(0), reason: None },
            last_attempt: AttemptNumber(0),
            past: Vec::new(),
            spent: BTreeMap::new(),
            avoid: Vec::new(),
            checkpoint: None,
            cancelled: None,
            requests,
            answers: BTreeMap::new(),
        };
        self.queues.entry(job.spec.queue.clone()).or_default().living += 1;
        self.jobs.insert(run, job);
        self.tie(run, stamp);
    }

    pub(super) fn job_asked(&mut self, envelope: &Envelope, id: RequestId, ask: Ask, reason: &str) {
        let Some(run) = envelope.subject.run_id() else { return };
        let request = Request { id, ask, reason: reason.to_owned(), cause: EventCause::of(envelope) };
        let (project, requests, answers) = if let Some(job) = self.jobs.get_mut(&run) {
            (&job.project, &mut job.requests, &job.answers)
        } else if let Some(job) = self.ended.get_mut(&run) {
            (&job.project, &mut job.requests, &job.answers)
        } else {
            return;
        };
        if *project != envelope.subject.project || answers.contains_key(&id) || requests.iter().any(|known| known.id == id) {
            return;
        }
        requests.push(request);
        self.asking.insert(run);
    }

    /// Takes in that a request was answered, by a living job or one that has ended.
    fn answered(&mut self, envelope: &Envelope, stamp: Stamp, request: Option<RequestId>, refused: Option<String>) {
        let (Some(request), Some(run)) = (request, envelope.subject.run_id()) else { return };
        let answer = Answer { sequence: stamp.sequence, refused };
        let left = if let Some(job) = self.jobs.get_mut(&run) {
            job.requests.retain(|known| known.id != request);
            remember(&mut job.answers, request, answer);
            job.requests.len()
        } else if let Some(job) = self.ended.get_mut(&run) {
            job.requests.retain(|known| known.id != request);
            remember(&mut job.answers, request, answer);
            job.requests.len()
        } else {
            return;
        };
        if left == 0 {
            self.asking.remove(&run);
        }
    }

    pub(super) fn job_refused(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobRefused) {
        if let Some(job) = self.job_of(envelope) {
            job.latest = stamp;
        }
        self.answered(envelope, stamp, Some(fact.request), Some(fact.reason.clone()));
    }

    pub(super) fn job_waiting(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobWaiting) {
        let Some(job) = self.job_of(envelope) else { return };
        job.latest = stamp;
        if let Stage::Pending { reason, backoff, since } = &mut job.stage {
            if !matches!(fact.reason, WaitReason::Array { .. }) {
                begin_to_wait(reason.as_ref(), since, stamp);
            }
            // Whoever waits for something else has its back-off behind it, whatever a later leader's clock says.
            if !matches!(fact.reason, WaitReason::Backoff | WaitReason::Held | WaitReason::QueueHeld) {
                *backoff = Millis(0);
            }
            *reason = Some(fact.reason.clone());
        }
        let run = job.run;
        self.look_at_telling(&run);
    }

    pub(super) fn job_deadline(&mut self, envelope: &Envelope, stamp: Stamp, urgency: Urgency) {
        let Some(job) = self.job_of(envelope) else { return };
        job.latest = stamp;
        // What has passed does not come near again.
        if job.urgency != Urgency::Missed {
            job.urgency = urgency;
        }
    }

    pub(super) fn job_held(&mut self, envelope: &Envelope, stamp: Stamp, request: RequestId, held: bool) {
        let Some(job) = self.job_of(envelope) else { return };
        job.latest = stamp;
        if job.held != held {
            job.held = held;
            if let Stage::Pending { reason, since, .. } = &mut job.stage {
                begin_to_wait(reason.as_ref(), since, stamp);
                *reason = held.then_some(WaitReason::Held);
            }
        }
        let run = job.run;
        self.look_at_telling(&run);
        self.answered(envelope, stamp, Some(request), None);
    }

    pub(super) fn job_reprioritized(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobReprioritized) {
        let Some(job) = self.job_of(envelope) else { return };
        job.latest = stamp;
        job.priority = fact.priority;
        self.answered(envelope, stamp, Some(fact.request), None);
    }

    pub(super) fn job_placed(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobPlaced) {
        let void = self.is_void(envelope, fact);
        let Some(job) = self.job_of(envelope) else { return };
        if job.attempt().is_some() || fact.attempt != job.last_attempt.next() {
            return;
        }
        let run = job.run;
        let queue = job.spec.queue.clone();
        job.latest = stamp;
        job.last_attempt = fact.attempt;
        let member = |placement: &MemberPlacement| Member { placement: placement.clone(), stage: MemberStage::Preparing, port: None };
        job.stage = Stage::Active(Box::new(Attempt {
            number: fact.attempt,
            placed: stamp,
            ready_within: fact.ready_within,
            members: fact.members.iter().map(member).collect(),
            checkpoint: job.checkpoint.clone(),
            rendezvous: None,
            reported: stamp,
            launched: None,
            saved: None,
            stop: None,
            endings: Vec::new(),
            void,
        }));
        if void {
            return;
        }
        for placement in &fact.members {
            let claim = Claim::of(placement);
            if let Some(queue) = self.queues.get_mut(&queue) {
                queue.holding.add(&claim);
            }
            if let Some(node) = self.nodes.get_mut(&placement.node) {
                let key = ClaimKey { placed: stamp.sequence, run, attempt: fact.attempt, member: placement.member };
                node.claims.insert(key, claim);
                node.assigned_at = stamp.sequence;
                node.changed_at = stamp.sequence;
            }
        }
    }

    /// Whether something before this point of the ledger makes the placement void: the loss, the drain or another generation of one of its
    /// nodes; or its queue's hold, or a quota that was lowered, both of which clients write whenever they like.
    fn is_void(&self, envelope: &Envelope, fact: &JobPlaced) -> bool {
        let open = |member: &MemberPlacement| {
            let node = self.nodes.get(&member.node);
            node.is_some_and(|node| node.lost.is_none() && node.drained.is_none() && node.epoch == member.epoch)
        };
        let job = envelope.subject.run_id().and_then(|run| self.jobs.get(&run));
        let refused = job.is_some_and(|job| !self.lets_start(job));
        refused || fact.members.is_empty() || !fact.members.iter().all(open)
    }

    /// Marks the assignments of an attempt's nodes as changed.
    fn reassign(&mut self, nodes: &[footplate_types::NodeName], sequence: u64) {
        for name in nodes {
            if let Some(node) = self.nodes.get_mut(name) {
                node.assigned_at = sequence;
            }
        }
    }

    pub(super) fn job_launched(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobLaunched) {
        let Some(job) = envelope.subject.run_id().and_then(|run| self.jobs.get(&run)) else { return };
        let Some(attempt) = job.attempt().filter(|attempt| attempt.number == fact.attempt && attempt.launched.is_none()) else { return };
        let nodes = living_nodes(attempt);
        let address = |member: &Member| self.nodes.get(&member.placement.node).map_or_else(String::new, |node| node.address.clone());
        let peers: Vec<String> = attempt.members.iter().map(address).collect();
        let Some(job) = self.job_of(envelope) else { return };
        job.latest = stamp;
        if let Stage::Active(attempt) = &mut job.stage {
            attempt.launched = Some(Launch { stamp, rendezvous: fact.rendezvous.clone(), peers });
        }
        self.reassign(&nodes, stamp.sequence);
    }

    /// The first stop stands; only a cancel replaces another one.
    pub(super) fn job_stopped(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobStopRequested) {
        let Some(job) = self.job_of(envelope) else { return };
        job.latest = stamp;
        let mut nodes = Vec::new();
        if let Stage::Active(attempt) = &mut job.stage
            && attempt.number == fact.attempt
        {
            let replaces =
                attempt.stop.as_ref().is_none_or(|stop| fact.cause == StopCause::Cancelled && stop.cause != StopCause::Cancelled);
            if replaces {
                let waits = |member: &Member| member.stage == MemberStage::Preparing;
                let slow = attempt.members.iter().position(waits).filter(|_| fact.cause == StopCause::NotReady);
                attempt.stop = Some(Stop { stamp, cause: fact.cause, grace: fact.grace, request: fact.request, slow });
                nodes = living_nodes(attempt);
            }
            if fact.cause == StopCause::Cancelled && job.cancelled.is_none() {
                job.cancelled = fact.request;
            }
        }
        self.reassign(&nodes, stamp.sequence);
        // What stands on them is coming free.
        for name in &nodes {
            if let Some(node) = self.nodes.get_mut(name) {
                node.changed_at = stamp.sequence;
            }
        }
        self.answered(envelope, stamp, fact.request, None);
    }

    pub(super) fn job_requeued(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobRequeued) {
        let Some(job) = self.job_of(envelope) else { return };
        if !job.attempt().is_some_and(|attempt| attempt.number == fact.attempt && attempt.is_released()) {
            return;
        }
        job.latest = stamp;
        job.past.push(PastAttempt { number: fact.attempt, cause: fact.cause, root: fact.root.clone(), closed: stamp });
        let excess = job.past.len().saturating_sub(Job::PAST_MAX);
        job.past.drain(..excess);
        if let Some(budget) = Budget::of(fact.cause) {
            job.spent.insert(budget, fact.spent);
        }
        job.avoid.clone_from(&fact.avoid);
        job.class = Job::class_of(&job.spec, &job.avoid);
        job.parts = Part::all(&job.spec, &job.avoid);
        let reason = (fact.backoff.0 > 0).then_some(WaitReason::Backoff);
        job.stage = Stage::Pending { since: stamp, backoff: fact.backoff, reason };
    }

    pub(super) fn job_ended(&mut self, envelope: &Envelope, stamp: Stamp, fact: &JobEnded) {
        let Some(job) = self.job_of(envelope) else { return };
        if job.attempt().is_some_and(|attempt| !attempt.is_released()) {
            return;
        }
        let run = job.run;
        let Some(job) = self.jobs.remove(&run) else { return };
        if let Some(queue) = self.queues.get_mut(&job.spec.queue) {
            queue.living = queue.living.saturating_sub(1);
        }
        let mut ended = EndedJob {
            run,
            project: job.project,
            name: job.spec.name.clone(),
            queue: job.spec.queue.clone(),
            priority: job.priority,
            preemptible: job.spec.preemptible,
            nodes: job.spec.members(),
            gpus: job.spec.resources.per_node.gpus,
            gpu_profile: job.spec.resources.per_node.gpu_profile.clone(),
            gpu_share: job.spec.resources.per_node.gpu_share,
            slots: job.spec.resources.per_node.slots,
            roles: job.spec.roles.clone(),
            array: job.spec.array,
            body: job.body,
            chain: job.chain,
            submitted: job.submitted,
            ended: stamp,
            fact: fact.clone(),
            requests: job.requests,
            answers: job.answers,
        };
        // Whoever else asked for the cancel has got it too.
        if fact.outcome == Outcome::Cancelled {
            let granted: Vec<RequestId> = ended.requests.iter().filter(|request| request.ask == Ask::Cancel).map(|r| r.id).collect();
            ended.requests.retain(|request| request.ask != Ask::Cancel);
            for request in granted {
                remember(&mut ended.answers, request, Answer { sequence: stamp.sequence, refused: None });
            }
        }
        if ended.requests.is_empty() {
            self.asking.remove(&run);
        }
        self.ended.insert(run, ended);
        self.untie(run, &job.spec.after, stamp);
        self.answered(envelope, stamp, fact.request, None);
    }
}

/// The nodes on which an attempt still has members.
fn living_nodes(attempt: &Attempt) -> Vec<footplate_types::NodeName> {
    let living = attempt.members.iter().filter(|member| !member.is_released());
    living.map(|member| member.placement.node.clone()).collect()
}
