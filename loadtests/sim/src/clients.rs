//! Clients and operators: they submit (also twice with one key), cancel, hold, release, reprioritise, change queues, cordon, drain, uncordon,
//! declare lost what is lost. Their appends are sent again until the answer is definite, the same bytes at the same expectation.

use crate::broker::{Answer, Done, EPOCH_MS, Op, Trouble};
use crate::cluster::{MODELS, PROFILE};
use crate::dice::Dice;
use crate::wire::{Party, Step, Wire};
use footplate_events::facts::*;
use footplate_events::{Envelope, Event, Subject};
use footplate_scheduler_core::{State, admit, can_close, can_follow};
use footplate_types::*;
use std::collections::BTreeSet;

/// What a client does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    /// Something new.
    Act,
    /// A business is taken up again.
    Again(usize),
}

/// Something that a client wants to stand in the ledger.
#[derive(Debug)]
struct Business {
    envelope: Envelope,
    /// At which sequence of its aggregate; not known yet.
    expect: Option<u64>,
    /// Whether another event on the aggregate ends it (a submission, a queue's settings), or it is tried at the next sequence.
    once: bool,
    is_done: bool,
}

/// All clients together.
pub(crate) struct Clients {
    dice: Dice,
    /// What comes after what.
    after: Dice,
    /// What is an array.
    array: Dice,
    /// Who asks slices and shares.
    parts: Dice,
    /// Taints and who tolerates them, deadlines, what is retried after it ran out of memory.
    more: Dice,
    /// What has roles.
    roles: Dice,
    book: Vec<Business>,
    runs: Vec<(RunId, JobSpec)>,
    nodes: Vec<NodeName>,
    jobs_left: u32,
    keys: u64,
}

/// The queues that are used; `ghost` is never made.
const QUEUES: [&str; 4] = ["default", "a", "b", "ghost"];

/// The taints that operators set, and that jobs tolerate.
const TAINTS: [&str; 3] = ["dedicated=a", "dedicated=b", "flaky"];

fn parsed(taint: &str) -> Taint {
    Taint::parse(taint).expect("a key, or a key with its value")
}

fn project() -> ProjectName {
    ProjectName::parse("sim").expect("a slug")
}

fn queue_name(name: &str) -> QueueName {
    QueueName::parse(name).expect("a slug")
}

impl Clients {
    pub(crate) fn new(seed: u64, nodes: Vec<NodeName>) -> Self {
        let mut dice = Dice::new(seed, "clients");
        let jobs_left = dice.between(8, 28) as u32;
        Self {
            dice,
            after: Dice::new(seed, "after"),
            array: Dice::new(seed, "array"),
            parts: Dice::new(seed, "asks for parts"),
            more: Dice::new(seed, "more"),
            roles: Dice::new(seed, "roles"),
            book: Vec::new(),
            runs: Vec::new(),
            nodes,
            jobs_left,
            keys: 0,
        }
    }

    /// Does something new. `state`: what the instance knows that the client speaks to; `dead`: machines that are off.
    pub(crate) fn act(&mut self, wire: &mut Wire, state: &State, dead: &[NodeName]) {
        match self.dice.below(100) {
            0..=54 => self.submit(wire, state),
            55..=74 => self.ask_of_job(wire),
            75..=86 => self.set_queue(wire, state),
            _ => self.ask_of_node(wire, state, dead),
        }
    }

    fn open(&mut self, wire: &mut Wire, subject: Subject, event: impl Into<Event>, id: EventId, expect: Option<u64>, once: bool) {
        let envelope = Envelope {
            id,
            subject,
            event: event.into(),
            source: "clients/sim".to_owned(),
            time: Timestamp::from_millis(EPOCH_MS + wire.now as i64),
            actor: PrincipalId::parse("ada").expect("a name"),
            correlation: id,
            causation: None,
            trace: None,
        };
        self.book.push(Business { envelope, expect, once, is_done: false });
        self.again(wire, self.book.len() - 1);
    }

    /// Takes a business up: reads its aggregate, or sends the same bytes.
    pub(crate) fn again(&mut self, wire: &mut Wire, at: usize) {
        let Some(business) = self.book.get(at).filter(|business| !business.is_done) else { return };
        let envelope = &business.envelope;
        let op = match business.expect {
            Some(expect) => Op::AppendClient { expect, envelope: Box::new(envelope.clone()), business: at },
            None => Op::ReadAggregate { subject: envelope.subject.clone(), id: envelope.id, business: at },
        };
        wire.call(Party::Client, 0, op);
    }

    /// Takes in an answer; what was acknowledged, and where it stands.
    pub(crate) fn answered(&mut self, wire: &mut Wire, op: &Op, answer: &Answer) -> Option<(EventId, u64)> {
        let (Op::AppendClient { business: at, .. } | Op::ReadAggregate { business: at, .. }) = op else { return None };
        let again = Step::Client(Plan::Again(*at));
        let business = self.book.get_mut(*at).filter(|business| !business.is_done)?;
        match answer {
            Ok(Done::Sequence(sequence)) | Ok(Done::Aggregate { found: Some(sequence), .. }) => {
                business.is_done = true;
                return Some((business.envelope.id, *sequence));
            }
            // Whoever comes second with another body, or decided on settings that have changed, is told so.
            Ok(Done::Aggregate { last, .. }) if business.once && *last > 0 => business.is_done = true,
            Ok(Done::Aggregate { last, .. }) => {
                business.expect = Some(*last);
                wire.after(1, again);
            }
            // Somebody else's event stands there, or our own: that is looked up before anything else.
            Err(Trouble::Conflict) => {
                business.expect = None;
                wire.after(1, again);
            }
            _ => wire.after(500, again),
        }
        None
    }

    fn spec(&mut self, now: crate::clock::Time) -> JobSpec {
        let (dice, more) = (&mut self.dice, &mut self.more);
        let mut per_node = PerNode::default();
        if dice.chance(800) {
            per_node.gpus = [1, 1, 2, 2, 4][dice.below(5) as usize];
            if dice.chance(200) {
                per_node.gpu_models.extend(dice.pick(&MODELS).and_then(|model| GpuModel::parse(model).ok()));
            }
        } else {
            per_node.slots = dice.between(1, 3) as u32;
        }
        let nodes = if per_node.slots > 0 { 1 } else { [1, 1, 2, 2, 3][dice.below(5) as usize] };
        let mut placement = PlacementAsk::default();
        if dice.chance(100) {
            placement.exclude.extend(dice.pick(&self.nodes).cloned());
        }
        placement.tolerations.extend(TAINTS.iter().filter(|_| more.chance(150)).filter_map(|taint| Toleration::parse(taint).ok()));
        let queue = QUEUES[if dice.chance(20) { 3 } else { dice.below(3) as usize }];
        let mut limits = Limits::default();
        if dice.chance(150) {
            limits.max_duration = Millis(dice.between(5_000, 400_000));
        }
        if dice.chance(150) {
            limits.max_pending = Millis(dice.between(30_000, 900_000));
        }
        if more.chance(200) {
            limits.deadline = Some(Timestamp::from_millis(EPOCH_MS + now as i64).plus_millis(more.between(10_000, 5_400_000)));
            limits.deadline_missed = if more.chance(400) { DeadlineMissed::End } else { DeadlineMissed::Run };
        }
        let retry = RetryPolicy {
            user_code: dice.below(3) as u32,
            infrastructure: dice.below(4) as u32,
            lost: dice.below(4) as u32,
            out_of_memory: more.below(2) as u32,
            backoff: Millis(dice.below(5_000)),
            backoff_max: Millis(30_000),
            ..RetryPolicy::default()
        };
        let text = |text: &str| DisplayName::parse(text).expect("short");
        JobSpec {
            placement,
            priority: dice.below(7) as i32 - 2,
            preemptible: dice.chance(450),
            limits,
            stop: StopPolicy { grace: Millis(dice.between(0, 20_000)), ..StopPolicy::default() },
            retry,
            ..JobSpec::of(
                text("job"),
                text("sim"),
                queue_name(queue),
                ResourceAsk { nodes, per_node },
                DocumentRef { digest: Digest::of(b"launch"), bytes: 1 },
            )
        }
    }

    /// Some jobs that ask GPUs ask a share of one of each node, or slices.
    fn part(&mut self, ask: &mut PerNode) {
        let dice = &mut self.parts;
        let what = dice.below(100);
        if ask.gpus == 0 {
            return;
        }
        if what < 35 {
            ask.gpus = 1;
            ask.gpu_share = [1, 250, 300, 500, 500, 700, 999][dice.below(7) as usize];
            ask.gpu_memory_bytes = [0, 0, 20, 45, 80][dice.below(5) as usize] << 30;
        } else if what < 50 {
            ask.gpus = ask.gpus.min(2);
            ask.gpu_profile = MigProfile::parse(PROFILE).ok();
        }
    }

    /// Some jobs come after one or two others.
    fn after(&mut self) -> Vec<AfterJob> {
        let mut all: Vec<AfterJob> = Vec::new();
        if self.after.chance(300) {
            let runs = self.standing_runs();
            for _ in 0..self.after.between(1, 2) {
                let Some(run) = self.after.pick(&runs).copied() else { break };
                let when = [AfterWhen::Success, AfterWhen::Success, AfterWhen::Failure, AfterWhen::Any][self.after.below(4) as usize];
                if all.iter().all(|known| known.run != run) {
                    all.push(AfterJob { run, when });
                }
            }
        }
        all
    }

    /// Some gangs have a second role beside what they ask anyway, and some of these a third.
    fn roles_of(&mut self, spec: &JobSpec) -> Vec<GangRole> {
        let dice = &mut self.roles;
        // Parts of GPUs are asked by jobs without roles.
        let whole = spec.resources.per_node.gpu_share == 0 && spec.resources.per_node.gpu_profile.is_none();
        if !dice.chance(150) || !whole {
            return Vec::new();
        }
        let ResourceAsk { nodes, per_node } = spec.resources.clone();
        let mut roles = vec![GangRole { name: "worker".to_owned(), nodes, per_node }];
        for name in ["chief", "ps"].into_iter().take(dice.between(1, 2) as usize) {
            let units = dice.between(1, 2) as u32;
            let (gpus, slots) = if dice.chance(700) { (units, 0) } else { (0, units) };
            let nodes = dice.between(1, 2) as u32;
            roles.push(GangRole { name: name.to_owned(), nodes, per_node: PerNode { gpus, slots, ..PerNode::default() } });
        }
        roles
    }

    fn submit(&mut self, wire: &mut Wire, state: &State) {
        if self.jobs_left == 0 {
            return;
        }
        let spec = self.spec(wire.now);
        let mut spec = JobSpec { after: self.after(), ..spec };
        self.part(&mut spec.resources.per_node);
        spec.roles = self.roles_of(&spec);
        let beside = BTreeSet::new();
        if admit(state, &spec, self.dice.chance(200)).is_err() || can_follow(state, &project(), &spec, &beside).is_err() {
            return;
        }
        if self.array.chance(150) {
            return self.submit_array(wire, spec);
        }
        self.jobs_left -= 1;
        self.keys += 1;
        let run = RunId::for_key(&project(), "job", &format!("key-{}", self.keys));
        self.send_submission(wire, run, spec.clone());
        if self.dice.chance(150) {
            // The same key again: the same submission, or another body.
            let mut again = spec.clone();
            if self.dice.chance(300) {
                again.priority += 1;
            }
            self.send_submission(wire, run, again);
        }
        self.runs.push((run, spec));
    }

    /// Some jobs that differ in a number; most such have a limit. They come one by one: what the log holds at any moment may be a part of them.
    fn submit_array(&mut self, wire: &mut Wire, spec: JobSpec) {
        let count = (self.array.between(2, 6) as u32).min(self.jobs_left);
        let at_once = self.array.below(3) as u32;
        self.jobs_left -= count;
        self.keys += 1;
        let run = |index: u32| RunId::for_key(&project(), "array", &format!("key-{}/{index}", self.keys));
        let runs: Vec<RunId> = (0..count).map(run).collect();
        for (index, run) in (0..count).zip(&runs) {
            let array = ArrayMember { id: runs[0], index, count, at_once };
            let spec = JobSpec { array: Some(array), ..spec.clone() };
            self.send_submission(wire, *run, spec.clone());
            self.runs.push((*run, spec));
        }
    }

    fn send_submission(&mut self, wire: &mut Wire, run: RunId, spec: JobSpec) {
        let body = Digest::of(format!("{spec:?}").as_bytes());
        let id = EventId::derived(&[b"submitted", run.as_bytes(), body.as_bytes()]);
        self.open(wire, Subject::job(&project(), run), JobSubmitted { spec, body }, id, Some(0), true);
    }

    fn request(&mut self) -> (RequestId, EventId) {
        (RequestId::from_bytes(self.dice.bytes()), EventId::from_bytes(self.dice.bytes()))
    }

    /// A run of which the client was told that it stands.
    fn known_run(&mut self) -> Option<RunId> {
        let runs = self.standing_runs();
        self.dice.pick(&runs).copied()
    }

    fn standing_runs(&self) -> Vec<RunId> {
        let stands = |run: &RunId| {
            let of_run = |business: &&Business| business.envelope.subject == Subject::job(&project(), *run);
            self.book.iter().filter(of_run).any(|business| business.is_done)
        };
        self.runs.iter().map(|(run, _)| *run).filter(stands).collect()
    }

    fn ask_of_job(&mut self, wire: &mut Wire) {
        let Some(run) = self.known_run() else { return };
        let subject = Subject::job_request(&project(), run);
        let (request, id) = self.request();
        let reason = String::new();
        match self.dice.below(4) {
            0 => self.open(wire, subject, JobCancelRequested { request, reason }, id, None, false),
            1 => self.open(wire, subject, JobHoldRequested { request, reason }, id, None, false),
            2 => self.open(wire, subject, JobReleaseRequested { request }, id, None, false),
            _ => {
                let priority = self.dice.below(9) as i32 - 3;
                self.open(wire, subject, JobReprioritizeRequested { request, priority }, id, None, false);
            }
        }
    }

    fn set_queue(&mut self, wire: &mut Wire, state: &State) {
        let name = queue_name(QUEUES[self.dice.below(3) as usize]);
        let known = state.queue(&name);
        let mut settings = known.settings.clone();
        let dice = &mut self.dice;
        match dice.below(7) {
            3 => settings.small_first = Millis([0, 10_000, 300_000][dice.below(3) as usize]),
            0 => settings.held = !settings.held,
            1 => settings.weight = dice.between(1, 4) as u32,
            2 if name.as_str() != "default" => settings.closed = !settings.closed && can_close(state, &name).is_ok(),
            _ => {
                let quota = |dice: &mut Dice| dice.chance(700).then(|| dice.between(0, 8) as u32);
                settings.quota = Quota { gpus: quota(dice), slots: quota(dice) };
            }
        }
        let id = EventId::from_bytes(self.dice.bytes());
        self.open(wire, Subject::queue(&name), settings, id, Some(known.sequence), true);
    }

    fn ask_of_node(&mut self, wire: &mut Wire, state: &State, dead: &[NodeName]) {
        let (request, id) = self.request();
        let reason = "sim".to_owned();
        // An operator's word that a machine is gone is given only of one that is off, and of the generation that is known then.
        if let Some(node) = self.dice.pick(dead).cloned()
            && self.dice.chance(400)
        {
            let epoch = state.nodes().get(&node).map(|known| known.epoch);
            return self.open(wire, Subject::node_request(&node), NodeLossDeclared { request, reason, epoch }, id, None, false);
        }
        let Some(node) = self.dice.pick(&self.nodes).cloned() else { return };
        let subject = Subject::node_request(&node);
        let taint = TAINTS[self.more.below(3) as usize];
        match self.more.below(12) {
            0 | 1 => return self.open(wire, subject, NodeTaintRequested { request, taint: parsed(taint), reason }, id, None, false),
            2..=4 => return self.untaint(wire, node, (request, id), taint),
            _ => {}
        }
        match self.dice.below(5) {
            0 => self.open(wire, subject, NodeCordonRequested { request, reason }, id, None, false),
            1 => self.open(wire, subject, NodeDrainRequested { request, reason }, id, None, false),
            _ => self.open(wire, subject, NodeUncordonRequested { request }, id, None, false),
        }
    }

    fn untaint(&mut self, wire: &mut Wire, node: NodeName, (request, id): (RequestId, EventId), taint: &str) {
        let taint = Toleration::parse(taint).expect("a key, or a key with its value");
        self.open(wire, Subject::node_request(&node), NodeUntaintRequested { request, taint }, id, None, false);
    }

    /// The storm is over: most of what people have closed is opened again, and nobody submits any more.
    pub(crate) fn calm(&mut self, wire: &mut Wire, state: &State) {
        self.jobs_left = 0;
        for node in self.nodes.clone() {
            if self.dice.chance(850) {
                let (request, id) = self.request();
                self.open(wire, Subject::node_request(&node), NodeUncordonRequested { request }, id, None, false);
            }
        }
        for name in ["default", "a", "b"].map(queue_name) {
            let known = state.queue(&name);
            if self.dice.chance(800) && known.settings != footplate_scheduler_core::Queue::default().settings {
                let settings = QueueConfigured { held: false, closed: false, quota: Quota { gpus: None, slots: None }, ..known.settings };
                let id = EventId::from_bytes(self.dice.bytes());
                self.open(wire, Subject::queue(&name), settings, id, Some(known.sequence), true);
            }
        }
        for (run, _) in self.runs.clone() {
            if self.dice.chance(700) {
                let (request, id) = self.request();
                let is_known =
                    self.book.iter().any(|business| business.is_done && business.envelope.subject == Subject::job(&project(), run));
                if is_known {
                    self.open(wire, Subject::job_request(&project(), run), JobReleaseRequested { request }, id, None, false);
                }
            }
        }
        for (node, taint) in self.nodes.clone().into_iter().flat_map(|node| ["dedicated", "flaky"].map(|taint| (node.clone(), taint))) {
            if self.more.chance(850) {
                let request = self.request();
                self.untaint(wire, node, request, taint);
            }
        }
    }

    /// Businesses without an end.
    pub(crate) fn open_ones(&self) -> usize {
        self.book.iter().filter(|business| !business.is_done).count()
    }
}
