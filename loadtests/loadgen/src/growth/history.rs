//! What runs leave in the ledger from their submit to their seal: 20 events each, on 3 subjects, such as the services would have written them.

use crate::raw::Ready;
use crate::sample::encoded;
use anyhow::Result;
use footplate_eventlog::{Expect, Message};
use footplate_events::facts::*;
use footplate_events::{Envelope, Event, Subject};
use footplate_types::*;
use std::collections::BTreeMap;

/// Runs that go on at the same time: their events stand interleaved.
const TOGETHER: u32 = 64;
/// Nodes on which they run.
const NODES: u32 = 64;
/// Checkpoints of a run.
const CHECKPOINTS: i64 = 5;

/// Makes the events.
pub(super) struct History {
    project: ProjectName,
    actor: PrincipalId,
    queue: QueueName,
    began: Timestamp,
}

impl History {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            project: ProjectName::parse("vision")?,
            actor: PrincipalId::parse("user:load")?,
            queue: QueueName::parse("default")?,
            began: footplate_clock::now(),
        })
    }

    /// The nodes.
    pub(super) fn platform(&self) -> impl Iterator<Item = Result<Ready>> + '_ {
        (0..NODES).map(|number| {
            let registered = NodeRegistered {
                epoch: Epoch(1),
                boot_id: format!("6f1e0a52-1a2b-4c3d-8e9f-{number:012}"),
                shape: NodeShape { slots: 64, cpus: 64, memory_bytes: 512 << 30, disk_bytes: 1 << 40, ..NodeShape::default() },
                address: "10.0.0.7".to_owned(),
                agent_version: "0.1.0".to_owned(),
                clock_ahead_ms: None,
            };
            self.ready(u32::MAX - number, 0, Subject::node(&node(number)?), registered.into())
        })
    }

    /// All events of `count` runs, in ledger order.
    pub(super) fn runs(&self, count: u32) -> impl Iterator<Item = Result<Ready>> + '_ {
        (0..count.div_ceil(TOGETHER)).flat_map(move |block| {
            let runs = block * TOGETHER..((block + 1) * TOGETHER).min(count);
            let lives: Result<Vec<_>> = runs.map(|number| Ok((number, self.life(number)?))).collect();
            let mut ready = Vec::new();
            match lives {
                Err(error) => ready.push(Err(error)),
                Ok(lives) => {
                    let longest = lives.iter().map(|(_, life)| life.len()).max().unwrap_or_default();
                    for step in 0..longest {
                        for (number, life) in &lives {
                            let event = life.get(step).cloned();
                            ready.extend(event.map(|(subject, event)| self.ready(*number, step as u32, subject, event)));
                        }
                    }
                }
            }
            ready
        })
    }

    fn ready(&self, run: u32, step: u32, subject: Subject, event: Event) -> Result<Ready> {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&run.to_be_bytes());
        id[4..8].copy_from_slice(&step.to_be_bytes());
        let id = EventId::from_bytes(id);
        let time = self.began.plus_millis(u64::from(step));
        let envelope = Envelope {
            id,
            subject,
            event,
            source: "load/host-1".to_owned(),
            time,
            actor: self.actor.clone(),
            correlation: id,
            causation: None,
            trace: None,
        };
        let Message { subject, headers, payload } = encoded(&envelope)?;
        // The broker remembers ids of messages for two minutes: a ledger that grew over months holds none of these.
        let kept = headers.iter().filter(|(name, _)| name != footplate_events::header::MESSAGE_ID);
        let headers: Vec<(String, String)> = kept.map(|(name, value)| (name.to_string(), value.clone())).collect();
        Ready::new(&Message { subject, headers: headers.into(), payload }, &Expect::Any)
    }

    /// One run, on one slot of one node, that ended well at its first attempt.
    fn life(&self, number: u32) -> Result<Vec<(Subject, Event)>> {
        let run = run_id(number);
        let (job, record) = (Subject::job(&self.project, run), Subject::run(&self.project, run));
        let of_attempt = Subject::attempt(&self.project, AttemptId { run, attempt: AttemptNumber(1) });
        let (attempt, member, epoch, rank) = (AttemptNumber(1), MemberIndex(0), Epoch(1), Rank(0));
        let at = node(number % NODES)?;
        let digest = |what: &str| Digest::of(format!("{what} {number}").as_bytes());
        let document = |what: &str| DocumentRef { digest: digest(what), bytes: 1_234 };
        let rendezvous = Rendezvous { address: "10.0.0.7".to_owned(), port: 29_500 };
        let placed = MemberPlacement {
            member,
            node: at.clone(),
            epoch,
            gpus: Vec::new(),
            gpu_profile: None,
            gpu_share: 0,
            gpu_memory_bytes: 0,
            slots: vec![SlotIndex((number / NODES) % 64)],
            cpus: 1,
            memory_bytes: 0,
            role: None,
            first_rank: rank,
            workers: 1,
        };
        let view = View { sequence: u64::from(number), now: self.began, seed: 7, policy: "fair-backfill/1".to_owned() };
        let params = BTreeMap::from([
            (ParamKey::parse("lr")?, ParamValue::Float(0.001 * f64::from(number % 10))),
            (ParamKey::parse("epochs")?, ParamValue::Int(20)),
            (ParamKey::parse("model/name")?, ParamValue::Text("resnet50".to_owned())),
        ]);
        let tags = BTreeMap::from([(ParamKey::parse("owner")?, "vision team".to_owned())]);
        let artifact =
            LoggedArtifact { path: ArtifactPath::parse("weights/model.pt")?, digest: digest("weights"), bytes: 98_765, attempt, rank };
        let noted = |text: &str| RunNoted { hypothesis: None, conclusion: None, note: Some(text.to_owned()) };
        let exited = MemberExited {
            member,
            node: at.clone(),
            epoch,
            obeyed: None,
            workers: vec![WorkerExit { rank, exit: Exit::Code(0), after_ms: 0, message: String::new(), out_of_memory: None }],
            not_started: None,
            offsets: FinalOffsets::default(),
        };
        let log = LogArchive { rank, stream: LogStream::Stdout, digest: digest("log"), bytes: 777 };
        let sealed = RunSealed {
            outcome: Outcome::Succeeded,
            attempt,
            complete: true,
            missing: Vec::new(),
            points: 1_000,
            artifacts: 1,
            log_bytes: 777,
            record: digest("record"),
            objectives: BTreeMap::new(),
        };
        let ended =
            JobEnded { outcome: Outcome::Succeeded, cause: Cause::Success, attempt, root: None, request: None, message: String::new() };
        let ready = MemberReady { member, node: at.clone(), epoch, rendezvous: Some(rendezvous.clone()) };
        let started = MemberStarted { member, node: at.clone(), epoch, workers: vec![WorkerStarted { rank, pid: 4_711 }] };
        let mut life: Vec<(Subject, Event)> = vec![
            (job.clone(), JobSubmitted { spec: self.spec(number)?, body: digest("body") }.into()),
            (job.clone(), JobWaiting { reason: WaitReason::Resources { detail: "1 slot wanted, 0 free".to_owned() } }.into()),
            (job.clone(), JobPlaced { attempt, members: vec![placed], ready_within: Millis(600_000), view }.into()),
            (of_attempt.clone(), AttemptReady { members: vec![ready] }.into()),
            (job.clone(), JobLaunched { attempt, rendezvous }.into()),
            (of_attempt.clone(), AttemptStarted { members: vec![started] }.into()),
            (record.clone(), RunParamsLogged { attempt, rank, params }.into()),
            (record.clone(), RunTagsSet { set: tags, removed: Vec::new() }.into()),
            (record.clone(), noted("warm-up looks right").into()),
        ];
        life.extend((1..=CHECKPOINTS).map(|step| {
            let metadata = "{\"loss\":0.1}".to_owned();
            let saved = AttemptCheckpointed { step: step * 1_000, rank, manifest: document("manifest"), bytes: 5 << 20, metadata };
            (of_attempt.clone(), saved.into())
        }));
        life.extend([
            (record.clone(), RunArtifactsLogged { artifacts: vec![artifact] }.into()),
            (of_attempt.clone(), AttemptExited { members: vec![exited] }.into()),
            (job, ended.into()),
            (of_attempt, AttemptLogsArchived { member, node: at, complete: true, logs: vec![log] }.into()),
            (record.clone(), noted("no dip at step 2,000").into()),
            (record, sealed.into()),
        ]);
        Ok(life)
    }

    fn spec(&self, number: u32) -> Result<JobSpec> {
        Ok(JobSpec {
            labels: BTreeMap::from([("team".to_owned(), "vision".to_owned())]),
            why: Why { hypothesis: "a longer warm-up lets the larger batch train".to_owned(), ..Why::default() },
            seed: Some(42),
            ..JobSpec::of(
                DisplayName::parse(&format!("resnet50 warm-up {number}"))?,
                DisplayName::parse(&format!("learning rates {}", number % 100))?,
                self.queue.clone(),
                ResourceAsk { nodes: 1, per_node: PerNode { slots: 1, ..PerNode::default() } },
                DocumentRef { digest: Digest::of(b"launch"), bytes: 321 },
            )
        })
    }
}

fn run_id(number: u32) -> RunId {
    let mut bytes = [0x01; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    RunId::from_bytes(bytes)
}

fn node(number: u32) -> Result<NodeName> {
    Ok(NodeName::parse(&format!("node-{number:02}"))?)
}
