//! Given events, when a command, then events or a refusal; and the fold of a job's life.

use super::*;
use crate::seal::{LatestFigure, SealPolicy, Sealing, SessionStored, Stored, decide_seal};
use footplate_es::harness::Story;
use footplate_es::{Decide, Evolve};
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_types::{AttemptId, Digest, Epoch, Millis, RequestId, SessionId, SpoolId};
use std::time::Duration;

fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

fn run_id() -> RunId {
    RunId::from_bytes([7; 16])
}

fn key(text: &str) -> ParamKey {
    ParamKey::parse(text).unwrap()
}

fn node(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

/// A story of one run and its fold.
struct Told {
    story: Story,
    run: Run,
}

impl Told {
    fn new() -> Self {
        Self { story: Story::new(), run: Run::new(project(), run_id()) }
    }

    fn on(&mut self, subject: Subject, event: impl Into<Event>) -> &mut Self {
        let recorded = self.story.record(subject, event).clone();
        self.run.evolve(&recorded);
        self
    }

    fn run(&mut self, event: impl Into<Event>) -> &mut Self {
        self.on(Subject::run(&project(), run_id()), event)
    }

    fn job(&mut self, event: impl Into<Event>) -> &mut Self {
        self.on(Subject::job(&project(), run_id()), event)
    }

    fn attempt(&mut self, number: u32, event: impl Into<Event>) -> &mut Self {
        self.on(Subject::attempt(&project(), AttemptId { run: run_id(), attempt: AttemptNumber(number) }), event)
    }

    fn decide(&self, command: RunCommand) -> Result<Vec<Event>, RunRefusal> {
        self.run.decide(command, &RunFacts)
    }

    fn does(&mut self, command: RunCommand) -> &mut Self {
        for event in self.decide(command).unwrap() {
            self.run(event);
        }
        self
    }
}

fn create(body: &[u8]) -> RunCommand {
    let name = |text| DisplayName::parse(text).unwrap();
    RunCommand::Create { name: name("first"), experiment: name("digits"), body: Digest::of(body), hypothesis: String::new() }
}

fn params(attempt: u32, pairs: &[(&str, ParamValue)]) -> RunCommand {
    let params = pairs.iter().map(|(name, value)| (key(name), value.clone())).collect();
    RunCommand::LogParams { attempt: AttemptNumber(attempt), rank: Rank(0), params }
}

pub(crate) fn spec() -> JobSpec {
    let document = |text: &[u8]| DocumentRef { digest: Digest::of(text), bytes: text.len() as u64 };
    JobSpec {
        labels: [("team".to_owned(), "a b".to_owned())].into(),
        priority: 3,
        ..JobSpec::of(
            DisplayName::parse("gang").unwrap(),
            DisplayName::parse("digits").unwrap(),
            QueueName::parse("default").unwrap(),
            ResourceAsk { nodes: 1, per_node: PerNode { slots: 2, ..PerNode::default() } },
            document(b"launch"),
        )
    }
}

fn submitted() -> JobSubmitted {
    JobSubmitted { spec: spec(), body: Digest::of(b"body") }
}

fn placed(attempt: u32) -> JobPlaced {
    let member = MemberPlacement {
        member: MemberIndex(0),
        node: node("n1"),
        epoch: Epoch(1),
        gpus: Vec::new(),
        gpu_profile: None,
        gpu_share: 0,
        gpu_memory_bytes: 0,
        slots: vec![SlotIndex(0), SlotIndex(1)],
        cpus: 0,
        memory_bytes: 0,
        role: None,
        first_rank: Rank(0),
        workers: 2,
    };
    JobPlaced {
        attempt: AttemptNumber(attempt),
        members: vec![member],
        ready_within: Millis(1_000),
        view: View { sequence: 0, now: Timestamp::default(), seed: 0, policy: "fifo".to_owned() },
    }
}

fn launched(attempt: u32) -> JobLaunched {
    JobLaunched { attempt: AttemptNumber(attempt), rendezvous: Rendezvous { address: "n1".to_owned(), port: 1 } }
}

fn offsets() -> FinalOffsets {
    FinalOffsets {
        spool: Some(SpoolId::from_bytes([1; 16])),
        tracker: 4,
        logs: 2,
        sessions: vec![SessionEnd { rank: Rank(0), session: SessionId::from_bytes([5; 16]), batches: 9 }],
        incomplete: Vec::new(),
    }
}

fn exited(offsets: FinalOffsets) -> AttemptExited {
    let workers = vec![WorkerExit { rank: Rank(0), exit: Exit::Code(0), after_ms: 0, message: String::new(), out_of_memory: None }];
    AttemptExited {
        members: vec![MemberExited {
            member: MemberIndex(0),
            node: node("n1"),
            epoch: Epoch(1),
            obeyed: None,
            workers,
            not_started: None,
            offsets,
        }],
    }
}

fn ended(attempt: u32, outcome: Outcome) -> JobEnded {
    JobEnded { outcome, cause: Cause::Success, attempt: AttemptNumber(attempt), root: None, request: None, message: String::new() }
}

fn archived(complete: bool) -> AttemptLogsArchived {
    let log = LogArchive { rank: Rank(0), stream: LogStream::Stdout, digest: Digest::of(b"log"), bytes: 30 };
    AttemptLogsArchived { member: MemberIndex(0), node: node("n1"), complete, logs: vec![log] }
}

fn stored(contiguous: u64, settled: u64) -> Stored {
    let session = SessionStored { attempt: AttemptNumber(1), rank: Rank(0), session: SessionId::from_bytes([5; 16]), contiguous };
    let settled = [((node("n1"), SpoolId::from_bytes([1; 16])), settled)].into();
    Stored { sessions: vec![session], latest: Vec::new(), settled }
}

const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(61);

#[test]
fn the_same_request_creates_nothing_and_another_is_refused_naming_the_first() {
    let mut told = Told::new();
    told.does(create(b"a"));
    assert_eq!(told.decide(create(b"a")), Ok(vec![]));
    assert_eq!(told.decide(create(b"b")), Err(RunRefusal::Exists { run: run_id() }));
    assert_eq!(told.run.status, Status::Running);
}

#[test]
fn a_run_is_visible_from_its_submission_and_keeps_its_labels_as_tags() {
    let mut told = Told::new();
    assert!(!told.run.is_visible());
    told.job(submitted());
    assert!(told.run.is_visible() && told.run.has_job());
    assert_eq!(told.run.tags.get(&key("team")).map(String::as_str), Some("a b"));
    assert_eq!(told.run.version, 0, "an append to the run aggregate still expects 0");
    assert_eq!(told.decide(create(b"a")), Err(RunRefusal::Exists { run: run_id() }));
}

#[test]
fn nothing_can_be_logged_to_a_run_that_never_began() {
    let refused = Told::new().decide(params(0, &[("lr", ParamValue::Float(0.1))]));
    assert_eq!(refused, Err(RunRefusal::NotFound(run_id())));
}

#[test]
fn what_part_of_a_gpu_a_member_claims_is_kept() {
    let mut told = Told::new();
    told.job(submitted());
    let mut fact = placed(1);
    let member = &mut fact.members[0];
    member.gpus = vec![footplate_types::GpuUuid::parse("GPU-0").unwrap()];
    (member.gpu_share, member.gpu_memory_bytes) = (250, 1 << 30);
    told.job(fact);
    let kept = &told.run.attempts[&AttemptNumber(1)].members[&MemberIndex(0)];
    assert_eq!((kept.gpu_share, &kept.gpu_profile), (Some((250, 1 << 30)), &None));
    let mut told = Told::new();
    told.job(submitted()).job(placed(1));
    let kept = &told.run.attempts[&AttemptNumber(1)].members[&MemberIndex(0)];
    assert_eq!((kept.gpu_share, &kept.gpu_profile), (None, &None));
}

#[test]
fn a_status_follows_the_job_through_requeue_and_end() {
    let mut told = Told::new();
    told.job(submitted());
    told.job(JobWaiting { reason: WaitReason::Quota { detail: "gpus: 4 of 4".to_owned() } });
    assert_eq!(told.run.waiting, "quota: gpus: 4 of 4");
    told.job(placed(1));
    assert_eq!((told.run.status, told.run.waiting.as_str()), (Status::Preparing, ""));
    told.job(launched(1));
    assert_eq!(told.run.status, Status::Running);
    told.job(JobStopRequested {
        attempt: AttemptNumber(1),
        cause: StopCause::Preempted,
        grace: Millis(1),
        request: Some(RequestId::from_bytes([0; 16])),
        message: String::new(),
    });
    assert_eq!(told.run.status, Status::Stopping);
    told.job(JobRequeued {
        attempt: AttemptNumber(1),
        cause: Cause::Preempted,
        root: None,
        backoff: Millis(5_000),
        spent: 1,
        allowed: 9,
        avoid: Vec::new(),
    });
    assert_eq!((told.run.status, told.run.waiting.as_str()), (Status::Pending, "waits before its next attempt"));
    assert_eq!(told.run.running_since, None);
    assert_eq!(told.run.duration_ms(Timestamp::from_millis(1_000_000)), 2_000, "from the launch to the requeue, and not a moment longer");
    told.job(placed(2)).job(launched(2)).job(ended(2, Outcome::Succeeded)).job(ended(2, Outcome::Failed));
    assert_eq!(told.run.ended.as_ref().map(|ended| ended.outcome), Some(Outcome::Succeeded), "the first terminal event stands");
    assert_eq!(told.run.attempts[&AttemptNumber(1)].cause, Some(Cause::Preempted));
    assert_eq!(told.run.duration_ms(Timestamp::default()), 3_000);
}

#[test]
fn a_run_that_attaches_again_keeps_its_config_and_shows_the_old_value_beside_the_new() {
    let mut told = Told::new();
    let map = ParamValue::Map([("lr".to_owned(), ParamValue::Float(0.1))].into());
    told.does(create(b"a")).does(params(0, &[("batch", ParamValue::Int(16)), ("opt", map.clone())]));
    assert_eq!(told.decide(params(0, &[("batch", ParamValue::Int(16)), ("opt", map.clone())])), Ok(vec![]), "nothing new, no event");
    told.does(params(0, &[("batch", ParamValue::Int(32))]));
    let batch = &told.run.params[&key("batch")];
    assert_eq!(batch.value, ParamValue::Int(32));
    assert_eq!(batch.earlier, [(AttemptNumber(0), ParamValue::Int(16))]);
    assert_eq!(told.run.params[&key("opt")].value, map);
}

#[test]
fn a_later_attempt_shadows_a_param_and_a_late_word_of_an_earlier_one_does_not() {
    let mut told = Told::new();
    told.job(submitted()).does(params(1, &[("lr", ParamValue::Float(0.1))])).does(params(2, &[("lr", ParamValue::Float(0.2))]));
    told.does(params(1, &[("lr", ParamValue::Float(0.3))]));
    let lr = &told.run.params[&key("lr")];
    assert_eq!((lr.attempt, &lr.value), (AttemptNumber(2), &ParamValue::Float(0.2)));
    assert_eq!(lr.earlier.len(), 2);
    assert_eq!(told.decide(params(1, &[("lr", ParamValue::Float(0.3))])), Ok(vec![]), "said again, it changes nothing");
}

#[test]
fn three_is_not_three_point_zero() {
    let mut told = Told::new();
    told.does(create(b"a")).does(params(0, &[("n", ParamValue::Int(3))]));
    assert_eq!(told.decide(params(0, &[("n", ParamValue::Float(3.0))])).map(|events| events.len()), Ok(1));
    assert_eq!(param_text(&ParamValue::Float(3.0)), "3.0");
    assert!(told.decide(params(0, &[("n", ParamValue::Float(f64::NAN))])).is_err());
}

#[test]
fn a_run_with_a_job_is_not_ended_by_its_client_nor_by_its_worker() {
    let mut told = Told::new();
    told.job(submitted());
    let finish = |outcome| RunCommand::Finish { outcome, message: String::new(), sessions: Vec::new() };
    assert_eq!(told.decide(finish(Outcome::Succeeded)), Err(RunRefusal::EndsWithItsJob(run_id())));
    told.run(RunFinished { outcome: Outcome::Succeeded, attempt: AttemptNumber(1), message: String::new(), sessions: Vec::new() });
    assert_eq!(told.run.ended, None);
}

#[test]
fn a_run_without_a_job_ends_once() {
    let mut told = Told::new();
    let finish = |outcome| RunCommand::Finish { outcome, message: String::new(), sessions: Vec::new() };
    told.does(create(b"a")).does(finish(Outcome::Succeeded));
    assert_eq!(told.run.status, Status::Ending);
    assert_eq!(told.decide(finish(Outcome::Succeeded)), Ok(vec![]));
    assert_eq!(told.decide(finish(Outcome::Failed)), Err(RunRefusal::AlreadyEnded { run: run_id(), outcome: "succeeded" }));
    assert!(told.decide(params(0, &[("late", ParamValue::Bool(true))])).is_ok(), "what a process still logs is taken");
}

#[test]
fn a_run_is_sealed_when_every_offset_is_covered_and_not_a_moment_before() {
    let mut told = Told::new();
    told.job(submitted()).job(placed(1)).job(launched(1)).attempt(1, exited(offsets())).job(ended(1, Outcome::Succeeded));
    let policy = SealPolicy::default();
    let waits = |told: &Told, stored: &Stored| matches!(decide_seal(&told.run, stored, SOON, &policy), Sealing::Waits(_));
    assert!(waits(&told, &stored(9, 4)), "logs are not archived");
    told.attempt(1, archived(true));
    assert!(waits(&told, &stored(8, 4)), "a batch is missing");
    assert!(waits(&told, &stored(9, 3)), "a report is missing");
    assert!(waits(&told, &Stored::default()));
    let Sealing::Seal(seal) = decide_seal(&told.run, &stored(9, 4), SOON, &policy) else { panic!("not sealed") };
    assert!(seal.complete && seal.missing.is_empty());
    assert_eq!((seal.log_bytes, seal.attempt, seal.outcome), (30, AttemptNumber(1), Outcome::Succeeded));
}

#[test]
fn a_seal_holds_the_objectives_at_the_lowest_rank_that_logged_them_over_all_attempts() {
    let mut told = Told::new();
    let loss = MetricName::parse("loss").unwrap();
    let spec = JobSpec { objectives: vec![loss.clone()], ..spec() };
    told.job(JobSubmitted { spec, body: Digest::of(b"body") }).job(placed(1)).job(launched(1)).attempt(1, exited(offsets()));
    told.attempt(1, archived(true)).job(ended(2, Outcome::Succeeded));
    let figure = |attempt, rank, name: &MetricName, value, least: f64, greatest: f64| LatestFigure {
        attempt: AttemptNumber(attempt),
        rank: Rank(rank),
        name: name.clone(),
        step: 9,
        value,
        min: Some(least),
        max: Some(greatest),
        count: 1,
    };
    let other = MetricName::parse("other").unwrap();
    let first = figure(1, 0, &loss, 5.0, 1.0, 9.0);
    let others = [figure(2, 1, &loss, 2.0, 0.0, 20.0), figure(2, 0, &other, 4.0, 4.0, 4.0)];
    let sealed = |mine: Vec<LatestFigure>| {
        let all = Stored { latest: mine.into_iter().chain(others.clone()).collect(), ..stored(9, 4) };
        let Sealing::Seal(seal) = decide_seal(&told.run, &all, LATE, &SealPolicy::default()) else { panic!("not sealed") };
        seal.objectives
    };
    let held = |last| SealedFigure { step: 9, last: Some(last), min: Some(1.0), max: Some(9.0) };
    assert_eq!(sealed(vec![first.clone(), figure(2, 0, &loss, 4.0, 3.0, 6.0)]), [(loss.clone(), held(4.0))].into());
    // The second attempt resumed at the end and had nothing more to log.
    assert_eq!(sealed(vec![first]), [(loss, held(5.0))].into());
}

#[test]
fn at_the_deadline_a_run_is_sealed_incomplete_and_says_what_is_missing() {
    let mut told = Told::new();
    told.job(submitted()).job(placed(1)).job(launched(1)).attempt(1, exited(offsets())).job(ended(1, Outcome::Succeeded));
    told.attempt(1, archived(false));
    let Sealing::Seal(seal) = decide_seal(&told.run, &stored(7, 4), LATE, &SealPolicy::default()) else { panic!("not sealed") };
    assert!(!seal.complete);
    assert_eq!(seal.missing.len(), 2, "{:?}", seal.missing);
    assert!(seal.missing[0].contains("7 of 9 batches"), "{:?}", seal.missing);
}

#[test]
fn what_a_node_took_over_and_could_not_store_keeps_the_seal_from_being_complete() {
    let mut told = Told::new();
    let lacking = FinalOffsets { incomplete: vec!["artifact model.pt".to_owned()], ..offsets() };
    told.job(submitted()).job(placed(1)).job(launched(1)).attempt(1, exited(lacking)).job(ended(1, Outcome::Succeeded));
    told.attempt(1, archived(true));
    let Sealing::Seal(seal) = decide_seal(&told.run, &stored(9, 4), LATE, &SealPolicy::default()) else { panic!("not sealed") };
    assert!(!seal.complete);
    assert_eq!(seal.missing, ["artifact model.pt of member 0 of attempt 1 on n1"]);
}

#[test]
fn a_lost_member_is_not_waited_for() {
    let mut told = Told::new();
    told.job(submitted()).job(placed(1)).job(launched(1));
    let lost = MemberLost { member: MemberIndex(0), node: node("n1"), epoch: Epoch(1), evidence: LossEvidence::LeaseExpired };
    told.attempt(1, AttemptLost { members: vec![lost] }).job(ended(1, Outcome::Failed));
    let sealing = decide_seal(&told.run, &Stored::default(), SOON, &SealPolicy::default());
    assert!(matches!(sealing, Sealing::Seal(seal) if seal.complete));
}

#[test]
fn a_run_without_a_job_waits_for_the_sessions_that_it_named() {
    let mut told = Told::new();
    let session = SessionEnd { rank: Rank(0), session: SessionId::from_bytes([5; 16]), batches: 3 };
    told.does(create(b"a"));
    assert_eq!(decide_seal(&told.run, &Stored::default(), LATE, &SealPolicy::default()), Sealing::Nothing);
    told.does(RunCommand::Finish { outcome: Outcome::Succeeded, message: String::new(), sessions: vec![session] });
    let mut stored = stored(2, 0);
    stored.sessions[0].attempt = AttemptNumber(0);
    assert!(matches!(decide_seal(&told.run, &stored, SOON, &SealPolicy::default()), Sealing::Waits(_)));
    stored.sessions[0].contiguous = 3;
    assert!(matches!(decide_seal(&told.run, &stored, SOON, &SealPolicy::default()), Sealing::Seal(_)));
}

#[test]
fn what_comes_after_the_seal_is_kept_and_counted_and_the_seal_stays() {
    let mut told = Told::new();
    told.does(create(b"a")).does(RunCommand::Finish { outcome: Outcome::Succeeded, message: String::new(), sessions: Vec::new() });
    let Sealing::Seal(seal) = decide_seal(&told.run, &Stored::default(), SOON, &SealPolicy::default()) else { panic!("not sealed") };
    told.run(*seal.clone());
    assert_eq!(told.run.status, Status::Sealed);
    told.does(params(0, &[("post/score", ParamValue::Float(0.5))]));
    told.run(RunSealed { complete: false, ..*seal.clone() });
    assert_eq!(told.run.late, 1);
    assert_eq!(told.run.seal.as_ref().map(|mark| &mark.fact), Some(&*seal), "the first seal stands");
    assert!(told.run.params.contains_key(&key("post/score")));
    assert_eq!(decide_seal(&told.run, &Stored::default(), LATE, &SealPolicy::default()), Sealing::Nothing);
}

#[test]
fn an_event_of_another_project_or_run_changes_nothing() {
    let mut told = Told::new();
    told.does(create(b"a"));
    let before = told.run.clone();
    let other = ProjectName::parse("audio").unwrap();
    told.on(Subject::run(&other, run_id()), RunNoted { hypothesis: None, conclusion: None, note: Some("x".to_owned()) });
    told.on(
        Subject::run(&project(), RunId::from_bytes([8; 16])),
        RunNoted { hypothesis: None, conclusion: None, note: Some("x".to_owned()) },
    );
    assert_eq!(told.run, before);
}

#[test]
fn the_ids_of_recent_events_are_remembered() {
    let mut told = Told::new();
    told.does(create(b"a"));
    let id = told.story.recorded()[0].envelope.id;
    assert_eq!(told.run.remembered(&id), Some(1));
}

#[test]
fn a_node_speaks_only_for_its_own_members() {
    use crate::ClaimRefused;
    use footplate_events::messages::MemberRef;
    let mut told = Told::new();
    told.job(submitted()).job(placed(1));
    let of = MemberRef { project: project(), run: run_id(), attempt: AttemptNumber(1), member: MemberIndex(0) };
    assert_eq!(told.run.check_claim(&of, &node("n1")), Ok(()));
    assert!(matches!(told.run.check_claim(&of, &node("n2")), Err(ClaimRefused::OtherNode { .. })));
    let other = MemberRef { attempt: AttemptNumber(2), ..of.clone() };
    assert!(matches!(told.run.check_claim(&other, &node("n1")), Err(ClaimRefused::NoSuchMember { .. })));
    let foreign = MemberRef { project: ProjectName::parse("audio").unwrap(), ..of };
    assert!(matches!(told.run.check_claim(&foreign, &node("n1")), Err(ClaimRefused::UnknownRun(_))));
}

#[test]
fn a_lineage_names_the_checkpoint_that_an_attempt_resumed_from() {
    let mut told = Told::new();
    told.job(submitted()).job(placed(1));
    let manifest = DocumentRef { digest: Digest::of(b"manifest"), bytes: 3 };
    told.attempt(1, AttemptCheckpointed { step: 100, rank: Rank(0), manifest, bytes: 10, metadata: String::new() });
    told.job(placed(2));
    let lineage: crate::Lineage = told.story.folded();
    let resumed: Vec<_> = lineage.edges().filter(|edge| edge.relation == "resumed_from").collect();
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].from, format!("attempt:{}-2", run_id()));
    assert_eq!(resumed[0].to, format!("checkpoint:{}", manifest.digest));
    assert_eq!(lineage.attempts_of(run_id()), [AttemptNumber(1), AttemptNumber(2)]);
}

#[test]
fn a_seal_expects_nothing_of_a_void_placement() {
    let mut told = Told::new();
    told.job(submitted()).job(placed(1));
    told.job(JobRequeued {
        attempt: AttemptNumber(1),
        cause: Cause::Void,
        root: None,
        backoff: Millis(0),
        spent: 0,
        allowed: 0,
        avoid: Vec::new(),
    });
    told.job(ended(1, Outcome::Cancelled));
    let sealing = crate::decide_seal(&told.run, &crate::Stored::default(), std::time::Duration::ZERO, &crate::SealPolicy::default());
    assert!(matches!(&sealing, crate::Sealing::Seal(fact) if fact.complete), "{sealing:?}");
}
