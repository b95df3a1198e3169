//! A small world: a ledger, the scheduler's state, a clock that tests move, and words for what executor and inventory say.

use crate::checker::Checker;
use footplate_es::harness::Story;
use footplate_es::{Decision, Evolve};
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Facts, Memory, Policy, Ruling, Stamp, State, Timeline, decide};
use footplate_types::*;
use std::cell::RefCell;
use std::collections::BTreeSet;

pub struct World {
    pub story: Story,
    pub state: State,
    pub timeline: Timeline,
    pub elapsed: u64,
    pub policy: Policy,
    pub checker: Checker,
    memory: RefCell<Memory>,
    ids: BTreeSet<EventId>,
    submitted: u32,
}

pub fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

pub fn node_name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

pub fn queue_name(name: &str) -> QueueName {
    QueueName::parse(name).unwrap()
}

pub fn request(n: u8) -> RequestId {
    RequestId::from_bytes([n; 16])
}

/// A job of `nodes` x `slots`.
pub fn spec(nodes: u32, slots: u32) -> JobSpec {
    JobSpec::of(
        DisplayName::parse("job").unwrap(),
        DisplayName::parse("default").unwrap(),
        queue_name("default"),
        ResourceAsk { nodes, per_node: PerNode { slots, ..PerNode::default() } },
        DocumentRef { digest: Digest::of(b"launch"), bytes: 1 },
    )
}

pub fn gpu_spec(nodes: u32, gpus: u32) -> JobSpec {
    let mut spec = spec(nodes, 0);
    spec.resources.per_node.gpus = gpus;
    spec
}

pub fn slots_shape(slots: u32) -> NodeShape {
    NodeShape { slots, cpus: 64, memory_bytes: 1 << 40, disk_bytes: 1 << 40, ..NodeShape::default() }
}

/// GPUs as (model, island).
pub fn gpus_shape(node: &str, gpus: &[(&str, Option<u32>)]) -> NodeShape {
    let gpu = |(at, (model, island)): (usize, &(&str, Option<u32>))| Gpu {
        uuid: GpuUuid::parse(&format!("GPU-{node}-{at}")).unwrap(),
        model: GpuModel::parse(model).unwrap(),
        memory_bytes: 80 << 30,
        island: island.map(NvlinkIsland),
        numa: None,
        pci: None,
        mig_profile: None,
        parent: None,
    };
    NodeShape { gpus: gpus.iter().enumerate().map(gpu).collect(), ..slots_shape(0) }
}

/// Whose GPUs may be shared.
pub fn shared(shape: NodeShape) -> NodeShape {
    NodeShape { share_gpus: true, ..shape }
}

/// Slices of a GPU that is split.
pub fn slices(node: &str, parent: &str, profile: &str, count: usize) -> Vec<Gpu> {
    let slice = |at: usize| Gpu {
        uuid: GpuUuid::parse(&format!("MIG-{node}-{profile}-{at}")).unwrap(),
        model: GpuModel::parse("A").unwrap(),
        memory_bytes: 10 << 30,
        island: None,
        numa: None,
        pci: None,
        mig_profile: Some(profile.to_owned()),
        parent: Some(GpuUuid::parse(parent).unwrap()),
    };
    (0..count).map(slice).collect()
}

/// A job of one node that asks slices of a profile.
pub fn slice_spec(count: u32, profile: &str) -> JobSpec {
    let mut spec = gpu_spec(1, count);
    spec.resources.per_node.gpu_profile = Some(MigProfile::parse(profile).unwrap());
    spec
}

/// A job of one node that asks a share of a GPU, in thousandths, and a part of its memory.
pub fn share_spec(share: u32, memory: u64) -> JobSpec {
    let mut spec = gpu_spec(1, 1);
    (spec.resources.per_node.gpu_share, spec.resources.per_node.gpu_memory_bytes) = (share, memory);
    spec
}

impl World {
    pub fn new() -> Self {
        let mut world = Self {
            story: Story::new(),
            state: State::default(),
            timeline: Timeline::default(),
            elapsed: 1_000,
            policy: Policy::default(),
            checker: Checker::default(),
            memory: RefCell::default(),
            ids: BTreeSet::new(),
            submitted: 0,
        };
        world.new_term();
        world
    }

    /// A leader begins: it knows only the ledger.
    pub fn new_term(&mut self) {
        let service = ServiceName::parse("scheduler").unwrap();
        self.record(Subject::term(&service), TermBegan { service, instance: "here".to_owned() });
        self.state = self.story.folded();
        self.memory.take();
        let term: &Stamp = self.state.term().unwrap();
        self.timeline = Timeline::begin(term, Millis(self.elapsed));
    }

    pub fn record(&mut self, subject: Subject, event: impl Into<Event>) -> u64 {
        let recorded = self.story.record(subject, event).clone();
        self.state.evolve(&recorded);
        self.checker.see(&recorded);
        self.state.check().unwrap();
        self.timeline.observe(self.state.position(), Millis(self.elapsed));
        recorded.sequence
    }

    /// The broker's clock: it stands at the last event.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.state.position() as i64 * 1_000)
    }

    pub fn wait(&mut self, millis: u64) {
        self.elapsed += millis;
    }

    pub fn ruling(&self) -> Ruling {
        let facts = Facts {
            view: self.state.position(),
            now: Timestamp::from_millis(0),
            elapsed: Millis(self.elapsed),
            seed: 0,
            policy: &self.policy,
            timeline: &self.timeline,
        };
        let anew = || decide(&self.state, &facts, &mut Memory::default());
        let ruling = anew();
        assert_eq!(ruling, anew(), "the same state and facts, the same ruling");
        let remembered = decide(&self.state, &facts, &mut self.memory.borrow_mut());
        assert_eq!(ruling, remembered, "what was kept of the looks before saves work and changes nothing");
        ruling
    }

    /// Whether the next look passes over those who wait, by what is kept of the last one.
    pub fn is_at_rest(&self) -> bool {
        self.memory.borrow().is_at_rest(&self.state)
    }

    pub fn append(&mut self, decisions: Vec<Decision>) -> Vec<(RunId, Event)> {
        let mut said = Vec::new();
        for decision in decisions {
            let id = decision.id("scheduler").unwrap();
            assert!(self.ids.insert(id), "an id is given twice: {decision:?}");
            said.push((decision.subject.run_id().unwrap(), decision.event.clone()));
            self.record(decision.subject, decision.event);
        }
        said
    }

    /// Looks until there is nothing to say.
    pub fn settle(&mut self) -> Vec<(RunId, Event)> {
        let mut said = Vec::new();
        for _ in 0..50 {
            let ruling = self.ruling();
            if ruling.decisions.is_empty() {
                return said;
            }
            said.extend(self.append(ruling.decisions));
        }
        panic!("does not come to rest: {said:?}");
    }

    // what the inventory says

    pub fn node(&mut self, name: &str, shape: NodeShape) {
        self.register(name, shape, 1);
    }

    pub fn register(&mut self, name: &str, shape: NodeShape, epoch: u64) {
        let registered = NodeRegistered {
            epoch: Epoch(epoch),
            boot_id: format!("boot-{epoch}"),
            shape,
            address: format!("{name}.local"),
            agent_version: "0.1.0".to_owned(),
            clock_ahead_ms: None,
        };
        self.record(Subject::node(&node_name(name)), registered);
    }

    pub fn slots(&mut self, name: &str, slots: u32) {
        self.node(name, slots_shape(slots));
    }

    pub fn node_lost(&mut self, name: &str) {
        let epoch = self.state.nodes()[&node_name(name)].epoch;
        self.record(Subject::node(&node_name(name)), NodeLost { epoch, reason: "no beat".to_owned() });
    }

    pub fn drain(&mut self, name: &str) {
        self.record(Subject::node(&node_name(name)), NodeDrained { request: None, reason: "repair".to_owned() });
    }

    pub fn uncordon(&mut self, name: &str) {
        self.record(Subject::node(&node_name(name)), NodeUncordoned { request: None });
    }

    // what clients say

    pub fn submit(&mut self, spec: JobSpec) -> RunId {
        self.submitted += 1;
        let run =
            RunId::from_bytes(std::array::from_fn(|at| if at < 12 { self.submitted as u8 } else { self.submitted.to_be_bytes()[at - 12] }));
        self.record(Subject::job(&project(), run), JobSubmitted { spec, body: Digest::of(b"body") });
        run
    }

    pub fn queue(&mut self, name: &str, weight: u32, gpus: Option<u32>, slots: Option<u32>) {
        let settings = QueueConfigured { weight, quota: Quota { gpus, slots }, ..QueueConfigured::default() };
        self.record(Subject::queue(&queue_name(name)), settings);
    }

    pub fn cancel(&mut self, run: RunId, n: u8) {
        let asked = JobCancelRequested { request: request(n), reason: "not needed".to_owned() };
        self.record(Subject::job_request(&project(), run), asked);
    }

    // what the executor says

    fn attempt_subject(&self, run: RunId, attempt: u32) -> Subject {
        Subject::attempt(&project(), AttemptId { run, attempt: AttemptNumber(attempt) })
    }

    fn placement(&self, run: RunId, member: u32) -> (u32, MemberPlacement) {
        let attempt = self.state.jobs()[&run].attempt().unwrap();
        (attempt.number.0, attempt.members[member as usize].placement.clone())
    }

    pub fn ready(&mut self, run: RunId, member: u32) {
        let (attempt, placement) = self.placement(run, member);
        let rendezvous = (member == 0).then(|| Rendezvous { address: format!("{}.local", placement.node), port: 4_000 });
        let ready = MemberReady { member: MemberIndex(member), node: placement.node, epoch: placement.epoch, rendezvous };
        self.record(self.attempt_subject(run, attempt), AttemptReady { members: vec![ready] });
    }

    pub fn all_ready(&mut self, run: RunId) {
        let members = self.state.jobs()[&run].attempt().unwrap().members.len();
        (0..members as u32).for_each(|member| self.ready(run, member));
    }

    pub fn starts(&mut self, run: RunId, member: u32) {
        let (attempt, placement) = self.placement(run, member);
        let started = MemberStarted { member: MemberIndex(member), node: placement.node, epoch: placement.epoch, workers: Vec::new() };
        self.record(self.attempt_subject(run, attempt), AttemptStarted { members: vec![started] });
    }

    pub fn exit_of(&self, run: RunId, member: u32, code: Exit, obeyed: Option<StopCause>) -> (Subject, MemberExited) {
        let (attempt, placement) = self.placement(run, member);
        let worker = WorkerExit { rank: placement.first_rank, exit: code, after_ms: 0, message: String::new(), out_of_memory: None };
        let exited = MemberExited {
            member: MemberIndex(member),
            node: placement.node,
            epoch: placement.epoch,
            obeyed,
            workers: vec![worker],
            not_started: None,
            offsets: FinalOffsets::default(),
        };
        (self.attempt_subject(run, attempt), exited)
    }

    pub fn exits(&mut self, run: RunId, member: u32, code: i32, obeyed: Option<StopCause>) {
        let (subject, exited) = self.exit_of(run, member, Exit::Code(code), obeyed);
        self.record(subject, AttemptExited { members: vec![exited] });
    }

    pub fn not_started(&mut self, run: RunId, member: u32, why: &str) {
        let (subject, mut exited) = self.exit_of(run, member, Exit::Code(0), None);
        exited.workers.clear();
        exited.not_started = Some(why.to_owned());
        self.record(subject, AttemptExited { members: vec![exited] });
    }

    pub fn lost(&mut self, run: RunId, member: u32) {
        let (attempt, placement) = self.placement(run, member);
        let lost =
            MemberLost { member: MemberIndex(member), node: placement.node, epoch: placement.epoch, evidence: LossEvidence::LeaseExpired };
        self.record(self.attempt_subject(run, attempt), AttemptLost { members: vec![lost] });
    }

    /// Submits and brings it to run.
    pub fn running(&mut self, spec: JobSpec) -> RunId {
        let run = self.submit(spec);
        self.settle();
        self.all_ready(run);
        self.settle();
        assert!(self.state.jobs()[&run].attempt().unwrap().launched.is_some(), "{run} runs");
        run
    }

    // what tests look at

    pub fn is_active(&self, run: RunId) -> bool {
        self.state.jobs().get(&run).is_some_and(|job| job.attempt().is_some())
    }

    pub fn is_pending(&self, run: RunId) -> bool {
        self.state.jobs().get(&run).is_some_and(|job| job.attempt().is_none())
    }

    pub fn attempt(&self, run: RunId) -> u32 {
        self.state.jobs()[&run].last_attempt.0
    }

    pub fn stop_cause(&self, run: RunId) -> Option<StopCause> {
        self.state.jobs()[&run].attempt()?.stop.as_ref().map(|stop| stop.cause)
    }

    pub fn reason(&self, run: RunId) -> Option<WaitReason> {
        match &self.state.jobs()[&run].stage {
            footplate_scheduler_core::Stage::Pending { reason, .. } => reason.clone(),
            footplate_scheduler_core::Stage::Active(_) => None,
        }
    }

    pub fn nodes_of(&self, run: RunId) -> Vec<String> {
        let attempt = self.state.jobs()[&run].attempt().unwrap();
        attempt.members.iter().map(|member| member.placement.node.to_string()).collect()
    }

    pub fn end(&self, run: RunId) -> &JobEnded {
        &self.state.ended().get(&run).unwrap_or_else(|| panic!("{run} has not ended: {:?}", self.state.jobs().get(&run))).fact
    }

    /// How many events of a job there are that a test counts.
    pub fn count(&self, run: RunId, which: impl Fn(&Event) -> bool) -> usize {
        let of_run = |recorded: &&footplate_events::Recorded| recorded.envelope.subject.run_id() == Some(run);
        self.story.recorded().iter().filter(of_run).filter(|recorded| which(&recorded.envelope.event)).count()
    }
}
