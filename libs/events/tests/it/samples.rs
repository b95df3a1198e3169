//! One sample of every event type, with every field set, so that a golden file shows all of its type.

use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_types::*;
use std::collections::BTreeMap;

fn name<T>(parse: impl Fn(&str) -> Result<T, Invalid>, text: &str) -> T {
    parse(text).unwrap()
}

fn digest(seed: &str) -> Digest {
    Digest::of(seed.as_bytes())
}

fn document(seed: &str) -> DocumentRef {
    DocumentRef { digest: digest(seed), bytes: 1_234 }
}

fn run() -> RunId {
    RunId::from_bytes([0x19; 16])
}

fn project() -> ProjectName {
    name(ProjectName::parse, "vision")
}

fn node() -> NodeName {
    name(NodeName::parse, "gpu-07")
}

fn gpu(n: u8) -> GpuUuid {
    name(GpuUuid::parse, &format!("GPU-8932f937-d72c-4106-c12f-20bd9faed9f{n}"))
}

fn request() -> RequestId {
    RequestId::from_bytes([0x2a; 16])
}

fn title(text: &str) -> DisplayName {
    name(DisplayName::parse, text)
}

fn key(text: &str) -> ParamKey {
    name(ParamKey::parse, text)
}

fn rendezvous() -> Rendezvous {
    Rendezvous { address: "10.0.0.7".to_owned(), port: 29_500 }
}

fn root() -> RootCause {
    RootCause { member: MemberIndex(1), node: node(), rank: Some(Rank(9)), what: "exit 7".to_owned(), memory: None }
}

fn session() -> SessionEnd {
    SessionEnd { rank: Rank(8), session: SessionId::from_bytes([3; 16]), batches: 17 }
}

pub(crate) fn spec() -> JobSpec {
    JobSpec {
        name: title("résumé 図"),
        experiment: title("digits"),
        labels: BTreeMap::from([("team".to_owned(), "vision".to_owned())]),
        why: Why {
            hypothesis: "a lower rate generalises better".to_owned(),
            success: "val/acc above 0.93".to_owned(),
            baseline: Some(RunId::from_bytes([0x18; 16])),
        },
        resources: ResourceAsk {
            nodes: 2,
            per_node: PerNode {
                gpus: 8,
                gpu_profile: None,
                gpu_share: 0,
                slots: 0,
                gpu_models: vec![name(GpuModel::parse, "NVIDIA H200")],
                gpu_memory_bytes: 141 << 30,
                cpus: 64,
                memory_bytes: 512 << 30,
                disk_bytes: 1 << 40,
            },
        },
        placement: PlacementAsk {
            pool: Some("h200".to_owned()),
            nodes: vec![node()],
            exclude: vec![name(NodeName::parse, "gpu-13")],
            ..PlacementAsk::default()
        },
        queue: name(QueueName::parse, "research"),
        priority: -5,
        preemptible: true,
        launcher: Launcher::Torchrun,
        limits: Limits { max_duration: Millis::from_secs(86_400), max_pending: Millis::from_secs(3_600), ..Limits::default() },
        stop: StopPolicy {
            signal: StopSignal::Int,
            grace: Millis(45_000),
            notice: Some(StopNotice { signal: StopSignal::Usr1, before: Millis(60_000) }),
        },
        retry: RetryPolicy { user_code: 1, exit_codes: vec![99], ..RetryPolicy::default() },
        launch: document("launch"),
        config: Some(document("config")),
        document: Some(document("document")),
        source: Some(SourceRef {
            archive: document("archive"),
            tree: digest("tree"),
            commit: "0f1e2d3c".to_owned(),
            branch: "main".to_owned(),
            dirty: true,
            untracked: 2,
            remote: "https://example.org/vision.git".to_owned(),
            folder: "train".to_owned(),
            remark: "1 file over 100 MB was left out".to_owned(),
        }),
        inputs: vec![InputRef { name: "train".to_owned(), snapshot: "digits@3".to_owned(), digest: Some(digest("data")) }],
        seed: Some(42),
        rerun_of: Some(RunId::from_bytes([0x17; 16])),
        masked: vec!["config.api_key".to_owned()],
        // Added later: absent from what was written before.
        objectives: Vec::new(),
        after: Vec::new(),
        roles: Vec::new(),
        array: None,
    }
}

fn run_events() -> Vec<(Subject, Event)> {
    let params = BTreeMap::from([
        (key("lr"), ParamValue::Float(0.001)),
        (key("epochs"), ParamValue::Int(20)),
        (key("amp"), ParamValue::Bool(true)),
        (key("opt/betas"), ParamValue::List(vec![ParamValue::Float(0.9), ParamValue::Null(())])),
        (key("model"), ParamValue::Map(BTreeMap::from([("name".to_owned(), ParamValue::Text("resnet".to_owned()))]))),
    ]);
    let path = name(ArtifactPath::parse, "weights/最终 model.pt");
    let artifact = LoggedArtifact { path, digest: digest("weights"), bytes: 98_765, attempt: AttemptNumber(2), rank: Rank(0) };
    let events: Vec<Event> = vec![
        RunCreated {
            name: title("a notebook"),
            experiment: ExperimentId::of(&project(), &title("digits")),
            experiment_name: title("digits"),
            body: Some(digest("body")),
            hypothesis: "it runs".to_owned(),
        }
        .into(),
        RunParamsLogged { attempt: AttemptNumber(2), rank: Rank(1), params }.into(),
        RunTagsSet { set: BTreeMap::from([(key("stage"), "final".to_owned())]), removed: vec![key("draft")] }.into(),
        RunNoted { hypothesis: Some("h".to_owned()), conclusion: Some("c".to_owned()), note: Some("line one\nline two".to_owned()) }.into(),
        RunInputsLogged { inputs: spec().inputs }.into(),
        RunArtifactsLogged { artifacts: vec![artifact] }.into(),
        RunFinished {
            outcome: Outcome::Failed,
            attempt: AttemptNumber(2),
            message: "ValueError: nan".to_owned(),
            sessions: vec![session()],
        }
        .into(),
        RunSealed {
            outcome: Outcome::Succeeded,
            attempt: AttemptNumber(2),
            complete: false,
            missing: vec!["metrics of rank 3 after batch 17".to_owned()],
            points: 1_000_000,
            artifacts: 3,
            log_bytes: 4_096,
            record: digest("record"),
            objectives: BTreeMap::new(),
        }
        .into(),
    ];
    events.into_iter().map(|event| (Subject::run(&project(), run()), event)).collect()
}

fn job_events() -> Vec<(Subject, Event)> {
    let member = MemberPlacement {
        member: MemberIndex(0),
        node: node(),
        epoch: Epoch(4),
        gpus: vec![gpu(0), gpu(1)],
        gpu_profile: None,
        gpu_share: 0,
        gpu_memory_bytes: 0,
        slots: vec![SlotIndex(3)],
        cpus: 64,
        memory_bytes: 512 << 30,
        role: None,
        first_rank: Rank(0),
        workers: 8,
    };
    let view = View { sequence: 41, now: Timestamp::from_millis(1_764_500_000_123), seed: 7, policy: "fair-backfill/1".to_owned() };
    let events: Vec<Event> = vec![
        JobSubmitted { spec: spec(), body: digest("body") }.into(),
        JobRefused { request: request(), reason: "it has ended".to_owned() }.into(),
        JobDeadlineNeared { latest_start: Timestamp::from_millis(1_767_225_600_000) }.into(),
        JobDeadlineMissed { deadline: Timestamp::from_millis(1_767_229_200_000) }.into(),
        JobWaiting { reason: WaitReason::Quota { detail: "gpus: 4 of 4".to_owned() } }.into(),
        JobHeld { request: request() }.into(),
        JobReleased { request: request() }.into(),
        JobReprioritized { request: request(), priority: 9 }.into(),
        JobPlaced { attempt: AttemptNumber(2), members: vec![member], ready_within: Millis(600_000), view }.into(),
        JobLaunched { attempt: AttemptNumber(2), rendezvous: rendezvous() }.into(),
        JobStopRequested {
            attempt: AttemptNumber(2),
            cause: StopCause::Preempted,
            grace: Millis(30_000),
            request: Some(request()),
            message: "a more urgent job needs its GPUs".to_owned(),
        }
        .into(),
        JobRequeued {
            attempt: AttemptNumber(2),
            cause: Cause::Lost,
            root: Some(root()),
            backoff: Millis(2_000),
            spent: 2,
            allowed: 3,
            avoid: vec![node()],
        }
        .into(),
        JobEnded {
            outcome: Outcome::Failed,
            cause: Cause::UserCode,
            attempt: AttemptNumber(2),
            root: Some(root()),
            request: Some(request()),
            message: "the program failed".to_owned(),
        }
        .into(),
    ];
    events.into_iter().map(|event| (Subject::job(&project(), run()), event)).collect()
}

fn request_events() -> Vec<(Subject, Event)> {
    let reason = "disk swap".to_owned();
    let job: Vec<Event> = vec![
        JobCancelRequested { request: request(), reason: "wrong config".to_owned() }.into(),
        JobHoldRequested { request: request(), reason: "wait for data".to_owned() }.into(),
        JobReleaseRequested { request: request() }.into(),
        JobReprioritizeRequested { request: request(), priority: 9 }.into(),
    ];
    let node_requests: Vec<Event> = vec![
        NodeCordonRequested { request: request(), reason: reason.clone() }.into(),
        NodeUncordonRequested { request: request() }.into(),
        NodeDrainRequested { request: request(), reason: reason.clone() }.into(),
        NodeTaintRequested { request: request(), taint: name(Taint::parse, "dedicated=vision"), reason: reason.clone() }.into(),
        NodeUntaintRequested { request: request(), taint: name(Toleration::parse, "dedicated") }.into(),
        NodeLossDeclared { request: request(), reason, epoch: None }.into(),
    ];
    let of_job = job.into_iter().map(|event| (Subject::job_request(&project(), run()), event));
    let of_node = node_requests.into_iter().map(|event| (Subject::node_request(&node()), event));
    of_job.chain(of_node).collect()
}

fn attempt_events() -> Vec<(Subject, Event)> {
    let (member, epoch) = (MemberIndex(1), Epoch(4));
    let worker =
        WorkerExit { rank: Rank(9), exit: Exit::Signal(9), after_ms: 12, message: "CUDA out of memory".to_owned(), out_of_memory: None };
    let offsets = FinalOffsets {
        spool: Some(SpoolId::from_bytes([5; 16])),
        tracker: 11,
        logs: 12,
        sessions: vec![session()],
        incomplete: Vec::new(),
    };
    let exited = MemberExited {
        member,
        node: node(),
        epoch,
        obeyed: Some(StopCause::Drained),
        workers: vec![worker],
        not_started: Some("set-up failed".to_owned()),
        offsets,
    };
    let log = LogArchive { rank: Rank(8), stream: LogStream::Stderr, digest: digest("log"), bytes: 777 };
    let events: Vec<Event> = vec![
        AttemptReady { members: vec![MemberReady { member, node: node(), epoch, rendezvous: Some(rendezvous()) }] }.into(),
        AttemptStarted {
            members: vec![MemberStarted { member, node: node(), epoch, workers: vec![WorkerStarted { rank: Rank(8), pid: 4_711 }] }],
        }
        .into(),
        AttemptCheckpointed {
            step: 12_000,
            rank: Rank(0),
            manifest: document("manifest"),
            bytes: 5 << 30,
            metadata: "{\"loss\":0.1}".to_owned(),
        }
        .into(),
        AttemptExited { members: vec![exited] }.into(),
        AttemptLost { members: vec![MemberLost { member, node: node(), epoch, evidence: LossEvidence::LeaseExpired }] }.into(),
        AttemptLogsArchived { member, node: node(), complete: true, logs: vec![log] }.into(),
    ];
    let attempt = AttemptId { run: run(), attempt: AttemptNumber(2) };
    events.into_iter().map(|event| (Subject::attempt(&project(), attempt), event)).collect()
}

fn sweep_events() -> Vec<(Subject, Event)> {
    let id = SweepId::from_bytes([0x5e; 16]);
    let float = Domain::Float { low: 1e-5, high: 0.1, log: true, step: None };
    let int = Domain::Int { low: 1, high: 9, log: false, step: Some(2) };
    let choices = vec![ParamValue::Text("adam".to_owned()), ParamValue::Bool(false), ParamValue::Int(3)];
    let condition = Condition { parameter: key("optimizer"), one_of: vec![ParamValue::Text("adam".to_owned())] };
    let space = Space(vec![
        Parameter { name: key("optimizer"), domain: Domain::Categorical { choices }, when: Vec::new() },
        Parameter { name: key("opt.lr"), domain: float, when: vec![condition] },
        Parameter { name: key("layers"), domain: int, when: Vec::new() },
    ]);
    let created = SweepCreated {
        name: title("digits, wide"),
        space,
        objective: Objective { metric: name(MetricName::parse, "val/loss"), direction: Direction::Minimize, take: Take::Best },
        sampler: Sampler::Grid,
        pruner: Pruner::Median { startup: 3 },
        rungs: vec![1, 3, 9],
        seed: 42,
        parallel: 4,
        trials: Some(50),
        points: Some(45),
        job: spec(),
        body: digest("body"),
    };
    let of_sweep: Vec<Event> = vec![
        created.into(),
        SweepStopRequested { cancel: true, reason: "good enough".to_owned() }.into(),
        SweepResumed { trials: Some(80) }.into(),
    ];
    let trial = TrialId { sweep: id, trial: TrialNumber(7) };
    let values = BTreeMap::from([(key("optimizer"), ParamValue::Bool(false)), (key("layers"), ParamValue::Int(3))]);
    let of_trial: Vec<Event> = vec![
        TrialSuggested { run: trial.run(), values, job: spec(), view: 41 }.into(),
        TrialObserved { rung: 3, step: 4, value: Some(0.25) }.into(),
        TrialPruned { cause: PruneCause::Rule, rung: Some(3), message: "worse than the median of 5 others".to_owned() }.into(),
        TrialFinished { outcome: TrialOutcome::Pruned, value: Some(0.25), message: "pruned at rung 3".to_owned() }.into(),
    ];
    let of_sweep = of_sweep.into_iter().map(|event| (Subject::sweep(&project(), id), event));
    of_sweep.chain(of_trial.into_iter().map(|event| (Subject::trial(&project(), trial), event))).collect()
}

fn node_events() -> Vec<(Subject, Event)> {
    let one = Gpu {
        uuid: gpu(0),
        model: name(GpuModel::parse, "NVIDIA H200"),
        memory_bytes: 141 << 30,
        island: Some(NvlinkIsland(0)),
        numa: Some(1),
        pci: Some("0000:3b:00.0".to_owned()),
        mig_profile: Some("1g.18gb".to_owned()),
        parent: None,
    };
    let shape = NodeShape {
        gpus: vec![one],
        share_gpus: false,
        slots: 4,
        cpus: 96,
        memory_bytes: 1 << 40,
        disk_bytes: 2 << 40,
        rack: Some("r3".to_owned()),
        pool: Some("h200".to_owned()),
        labels: BTreeMap::from([("zone".to_owned(), "b".to_owned())]),
        ..NodeShape::default()
    };
    let registered = NodeRegistered {
        epoch: Epoch(4),
        boot_id: "6f1e0a52-1a2b-4c3d-8e9f-001122334455".to_owned(),
        shape,
        address: "10.0.0.7".to_owned(),
        agent_version: "0.1.0".to_owned(),
        clock_ahead_ms: Some(-120),
    };
    let events: Vec<Event> = vec![
        registered.into(),
        NodeHealthChanged { gpu: Some(gpu(0)), healthy: false, reason: "Xid 79".to_owned() }.into(),
        NodeCordoned { request: Some(request()), reason: "disk swap".to_owned() }.into(),
        NodeUncordoned { request: Some(request()) }.into(),
        NodeDrained { request: Some(request()), reason: "disk swap".to_owned() }.into(),
        NodeTainted { request: Some(request()), taint: name(Taint::parse, "dedicated=vision"), reason: "theirs".to_owned() }.into(),
        NodeUntainted { request: Some(request()), taint: name(Toleration::parse, "dedicated") }.into(),
        NodeLost { epoch: Epoch(4), reason: "no beat for 6m".to_owned() }.into(),
        NodeRefused { request: request(), reason: "no such node".to_owned() }.into(),
    ];
    events.into_iter().map(|event| (Subject::node(&node()), event)).collect()
}

fn other_events() -> Vec<(Subject, Event)> {
    let scheduler = name(ServiceName::parse, "scheduler");
    let experiment = Subject::experiment(&project(), ExperimentId::of(&project(), &title("digits")));
    let quota = Quota { gpus: Some(16), slots: Some(64) };
    vec![
        (Subject::term(&scheduler), TermBegan { service: scheduler, instance: "host-1/4711".to_owned() }.into()),
        (experiment.clone(), ExperimentCreated { name: title("digits"), note: "handwritten".to_owned() }.into()),
        (experiment, ExperimentNoted { note: "handwritten digits, 8 by 8".to_owned() }.into()),
        (
            Subject::queue(&name(QueueName::parse, "research")),
            QueueConfigured { weight: 3, quota, held: true, closed: true, ..QueueConfigured::default() }.into(),
        ),
    ]
}

fn model_events() -> Vec<(Subject, Event)> {
    let model = name(ModelName::parse, "digits");
    let id = ModelId::of(&project(), &model);
    let (version, reason, body) = (VersionNumber(2), "better on rare classes".to_owned(), Some(digest("body")));
    let (alias, path) = (name(AliasName::parse, "champion"), name(ArtifactPath::parse, "weights/最终 model.pt"));
    let to = VersionRef { version, run: run(), path: path.clone(), digest: digest("weights") };
    let (from, approval) = (Some(VersionNumber(1)), EventId::from_bytes([0x44; 16]));
    let (model_of, reason_of) = (|| model.clone(), || reason.clone());
    let of_model: Vec<Event> = vec![
        ModelCreated { model: model_of(), note: "reads handwriting".to_owned(), body }.into(),
        ModelPromoted { model: model_of(), to: to.clone(), from, approval, reason: reason_of(), body }.into(),
        ModelRolledBack { model: model_of(), to: to.clone(), from, reason: reason_of(), body }.into(),
        ModelStaged { model: model_of(), version, from: Stage::None, to: Stage::Staging, displaced: from, reason: reason_of(), body }
            .into(),
        ModelArchived { model: model_of(), version, from: Stage::Staging, freed: vec![alias.clone()], reason: reason_of(), body }.into(),
        ModelAliasSet { model: model_of(), alias: alias.clone(), to, from, reason: reason_of(), body }.into(),
        ModelAliasRemoved { model: model_of(), alias, version, reason: reason_of(), body }.into(),
    ];
    let figures = BTreeMap::from([(name(MetricName::parse, "acc"), 0.9375), (name(MetricName::parse, "val/loss"), 1e-7)]);
    let of_version: Vec<Event> = vec![
        ModelVersionRegistered {
            model: model_of(),
            version,
            run: run(),
            attempt: AttemptNumber(2),
            path: path.clone(),
            digest: digest("weights"),
            bytes: 98_765,
            files: vec![ModelFile { path, digest: digest("weights"), bytes: 98_765 }],
            outcome: Outcome::Succeeded,
            complete: true,
            note: "of the nightly run".to_owned(),
            body,
        }
        .into(),
        ModelVersionEvaluated {
            model: model_of(),
            version,
            figures,
            data: Some(EvaluationData { name: "digits-test@3".to_owned(), digest: Some(digest("data")) }),
            note: "on the held-out set".to_owned(),
            body,
        }
        .into(),
        ModelVersionProposed { model: model_of(), version, reason: reason_of(), body }.into(),
        ModelVersionApproved { model: model_of(), version, proposal: approval, as_only_member: true, reason: reason_of(), body }.into(),
        ModelVersionRejected { model: model_of(), version, proposal: approval, reason: reason_of(), body }.into(),
    ];
    let version_subject = Subject::model_version(&project(), ModelVersionId { model: id, version });
    let of_model = of_model.into_iter().map(|event| (Subject::model(&project(), id), event));
    of_model.chain(of_version.into_iter().map(|event| (version_subject.clone(), event))).collect()
}

/// One sample of every type, on a subject of its aggregate.
fn access_events() -> Vec<(Subject, Event)> {
    let (ada, ci) = (name(PrincipalId::parse, "user:ada"), name(PrincipalId::parse, "service:vision:ci"));
    let of_project: Vec<Event> = vec![
        ProjectCreated { description: "reads handwriting".to_owned(), admin: ada.clone() }.into(),
        ProjectRoleGiven { principal: ci.clone(), role: Role::Member }.into(),
        ProjectRoleTaken { principal: ci.clone() }.into(),
    ];
    let of_principal: Vec<Event> = vec![
        PrincipalCreated { principal: ci.clone(), name: Some(name(DisplayName::parse, "the pipeline of vision")) }.into(),
        PrincipalDisabled { reason: "left the team".to_owned() }.into(),
        PrincipalEnabled { reason: "came back".to_owned() }.into(),
    ];
    let of_token: Vec<Event> = vec![
        TokenCreated {
            principal: ci.clone(),
            digest: Digest::of(b"fp_secret"),
            label: "nightly".to_owned(),
            project: Some(project()),
            role: Some(Role::Viewer),
            expires: Some(Timestamp::from_millis(1_796_036_000_000)),
            parent: Some(TokenId::from_bytes([8; 16])),
            broker_user: Some("UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4".to_owned()),
        }
        .into(),
        TokenRevoked { reason: "it stood in a log".to_owned() }.into(),
    ];
    let of_subscription: Vec<Event> = vec![
        SubscriptionCreated {
            description: "what serves".to_owned(),
            aggregate: Some("model".to_owned()),
            from: Some(41),
            broker_user: "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4".to_owned(),
            expires: Some(Timestamp::from_millis(1_796_036_000_000)),
        }
        .into(),
        SubscriptionDeleted { reason: "the team moved on".to_owned() }.into(),
    ];
    let subscription = Subject::subscription(&project(), &name(SubscriptionName::parse, "serving"));
    let of_subscription = of_subscription.into_iter().map(|event| (subscription.clone(), event));
    let principal = Subject::principal(&ci).unwrap();
    let of_project = of_project.into_iter().map(|event| (Subject::project(&project()), event));
    let of_principal = of_principal.into_iter().map(|event| (principal.clone(), event));
    let of_token = of_token.into_iter().map(|event| (Subject::token(TokenId::from_bytes([9; 16])), event));
    of_project.chain(of_principal).chain(of_token).chain(of_subscription).collect()
}

fn webhook_events() -> Vec<(Subject, Event)> {
    let events: Vec<Event> = vec![
        WebhookCreated {
            url: "https://example.org/hooks/models".to_owned(),
            types: vec!["footplate.model.".to_owned(), "footplate.run.sealed".to_owned()],
            from: 1_042,
            secret: digest("fpwh_secret"),
        }
        .into(),
        WebhookReplayed { from: 17 }.into(),
        WebhookPaused { sequence: 1_044, reason: "not taken for 24h: status 500".to_owned() }.into(),
        WebhookResumed { reason: "mended".to_owned() }.into(),
        WebhookDeleted { reason: "moved".to_owned() }.into(),
    ];
    let subject = Subject::webhook(&project(), &name(WebhookName::parse, "models"));
    events.into_iter().map(|event| (subject.clone(), event)).collect()
}

pub(crate) fn samples() -> Vec<(Subject, Event)> {
    [
        other_events(),
        run_events(),
        job_events(),
        request_events(),
        attempt_events(),
        node_events(),
        model_events(),
        sweep_events(),
        access_events(),
        webhook_events(),
    ]
    .concat()
}
