//! Who may call what: every method of the API, tried by every kind of principal against a real platform.
//!
//! What is expected stands here in words of its own, and not in what the protos say: a method whose option is changed by mistake is found.

use crate::up::Up;
use bytes::{Buf, BufMut};
use footplate_api::descriptors::pool;
use footplate_api::{ApiError, v1};
use footplate_testkit::{Signal, eventually, repository_root};
use prost_reflect::{DynamicMessage, MethodDescriptor, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Whom a call is made by. The project of every call is `vision`.
const PRINCIPALS: [&str; 13] = [
    "nobody",
    "unknown token",
    "revoked token",
    "disabled",
    "no role",
    "admin of another project",
    "token for another project",
    "viewer",
    "member",
    "approver",
    "admin",
    "viewer everywhere",
    "local user",
];
/// And an agent, who is told apart by what is for nodes.
const NODE: &str = "node";

/// From whom on a method is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Every principal that is known.
    Anyone,
    /// The project's viewers.
    Viewer,
    /// The project's members.
    Member,
    /// The project's approvers.
    Approver,
    /// The project's admins.
    Admin,
    /// Those with a role everywhere.
    PlatformViewer,
    /// Admins of the platform.
    PlatformAdmin,
}

impl From {
    fn lets_in(self, principal: &str) -> bool {
        let least = match self {
            Self::Anyone => 4,
            Self::Viewer => 7,
            Self::Member => 8,
            Self::Approver => 9,
            Self::Admin => 10,
            Self::PlatformViewer => 11,
            Self::PlatformAdmin => 12,
        };
        let index = PRINCIPALS.iter().position(|known| *known == principal).unwrap();
        match (self, principal) {
            // Whoever reads everywhere is a viewer of vision, and no more.
            (Self::Member | Self::Approver | Self::Admin, "viewer everywhere") => false,
            _ => index >= least,
        }
    }
}

/// Every method, from whom on, and whether agents may.
const METHODS: &[(&str, From, bool)] = &[
    ("ArtifactService/LogArtifacts", From::Member, false),
    ("ArtifactService/ListArtifacts", From::Viewer, false),
    ("BlobService/Upload", From::Member, true),
    ("BlobService/Download", From::Viewer, true),
    ("BlobService/Stat", From::Viewer, true),
    ("BlobService/PutBlob", From::Member, true),
    ("BlobService/GetBlob", From::Viewer, true),
    ("AttemptService/ListAttempts", From::Viewer, false),
    ("EventService/WatchEvents", From::Viewer, false),
    ("EventService/ListEvents", From::Viewer, false),
    ("EventService/GetEvent", From::Viewer, false),
    ("ExperimentService/CreateExperiment", From::Member, false),
    ("ExperimentService/GetExperiment", From::Viewer, false),
    ("ExperimentService/ListExperiments", From::Viewer, false),
    ("ExperimentService/NoteExperiment", From::Member, false),
    ("JobService/SubmitJob", From::Member, false),
    ("JobService/SubmitPipeline", From::Member, false),
    ("JobService/SubmitArray", From::Member, false),
    ("JobService/GetJob", From::Viewer, false),
    ("JobService/ListJobs", From::Viewer, false),
    ("JobService/CancelJob", From::Member, false),
    ("JobService/CancelArray", From::Member, false),
    ("JobService/HoldJob", From::Member, false),
    ("JobService/ReleaseJob", From::Member, false),
    ("JobService/ReprioritizeJob", From::Member, false),
    ("JobService/ExplainJob", From::Viewer, false),
    ("JobService/WatchDecisions", From::Viewer, false),
    ("QueueService/SetQueue", From::PlatformAdmin, false),
    ("QueueService/ListQueues", From::Anyone, false),
    ("QueueService/GetCapacity", From::Viewer, false),
    ("LogService/ReadLogs", From::Viewer, false),
    ("LogService/GetLog", From::Viewer, false),
    ("LogService/ListLogs", From::Viewer, false),
    ("MetricService/Ingest", From::Member, false),
    ("MetricService/LogBatch", From::Member, false),
    ("MetricService/ListLatest", From::Viewer, false),
    ("MetricService/GetHistory", From::Viewer, false),
    ("RegistryService/CreateModel", From::Member, false),
    ("RegistryService/GetModel", From::Viewer, false),
    ("RegistryService/ListModels", From::Viewer, false),
    ("RegistryService/RegisterVersion", From::Member, false),
    ("RegistryService/GetVersion", From::Viewer, false),
    ("RegistryService/ListVersions", From::Viewer, false),
    ("RegistryService/EvaluateVersion", From::Member, false),
    ("RegistryService/ProposeVersion", From::Member, false),
    ("RegistryService/ApproveVersion", From::Approver, false),
    ("RegistryService/RejectVersion", From::Member, false),
    ("RegistryService/PromoteVersion", From::Member, false),
    ("RegistryService/MoveVersion", From::Member, false),
    ("RegistryService/RollBackModel", From::Member, false),
    ("RegistryService/ArchiveVersion", From::Member, false),
    ("RegistryService/SetAlias", From::Member, false),
    ("RegistryService/RemoveAlias", From::Member, false),
    ("RegistryService/ResolveModel", From::Viewer, false),
    ("RegistryService/GetModelLineage", From::Viewer, false),
    ("NodeService/ListNodes", From::Anyone, false),
    ("NodeService/GetNode", From::Anyone, false),
    ("NodeService/CordonNode", From::PlatformAdmin, false),
    ("NodeService/UncordonNode", From::PlatformAdmin, false),
    ("NodeService/TaintNode", From::PlatformAdmin, false),
    ("NodeService/UntaintNode", From::PlatformAdmin, false),
    ("NodeService/DrainNode", From::PlatformAdmin, false),
    ("NodeService/DeclareNodeLost", From::PlatformAdmin, false),
    ("PrincipalService/CreatePrincipal", From::Anyone, false),
    ("PrincipalService/ListPrincipals", From::Anyone, false),
    ("PrincipalService/DisablePrincipal", From::Anyone, false),
    ("PrincipalService/EnablePrincipal", From::Anyone, false),
    ("PrincipalService/WhoAmI", From::Anyone, true),
    ("ProjectService/CreateProject", From::PlatformAdmin, false),
    ("ProjectService/ListProjects", From::Anyone, false),
    ("ProjectService/GetProject", From::Viewer, false),
    ("ProjectService/GiveRole", From::Admin, false),
    ("ProjectService/TakeRole", From::Admin, false),
    ("RunService/CreateRun", From::Member, false),
    ("RunService/GetRun", From::Viewer, false),
    ("RunService/ListRuns", From::Viewer, false),
    ("RunService/WaitRun", From::Viewer, false),
    ("RunService/LogParams", From::Member, false),
    ("RunService/SetTags", From::Member, false),
    ("RunService/NoteRun", From::Member, false),
    ("RunService/LogInputs", From::Member, false),
    ("RunService/FinishRun", From::Member, false),
    ("RunService/GetLineage", From::Viewer, false),
    ("SweepService/CreateSweep", From::Member, false),
    ("SweepService/GetSweep", From::Viewer, false),
    ("SweepService/ListSweeps", From::Viewer, false),
    ("SweepService/ListTrials", From::Viewer, false),
    ("SweepService/StopSweep", From::Member, false),
    ("SweepService/ResumeSweep", From::Member, false),
    ("SubscriptionService/CreateSubscription", From::Admin, false),
    ("SubscriptionService/ListSubscriptions", From::Member, false),
    ("SubscriptionService/DeleteSubscription", From::Admin, false),
    ("TokenService/CreateNodeToken", From::PlatformAdmin, false),
    ("TokenService/CreateToken", From::Anyone, false),
    ("TokenService/ListTokens", From::Anyone, false),
    ("TokenService/RevokeToken", From::Anyone, false),
    ("WebhookService/CreateWebhook", From::Admin, false),
    ("WebhookService/ListWebhooks", From::Member, false),
    ("WebhookService/GetWebhook", From::Member, false),
    ("WebhookService/DeleteWebhook", From::Admin, false),
    ("WebhookService/TestWebhook", From::Admin, false),
    ("WebhookService/ReplayWebhook", From::Admin, false),
    ("WebhookService/ResumeWebhook", From::Admin, false),
    ("TrackerViewService/VerifyViews", From::PlatformViewer, false),
    ("SchedulerViewService/VerifyViews", From::PlatformViewer, false),
    ("ExecutorViewService/VerifyViews", From::PlatformViewer, false),
    ("InventoryViewService/VerifyViews", From::PlatformViewer, false),
    ("SweepViewService/VerifyViews", From::PlatformViewer, false),
    ("RegistryViewService/VerifyViews", From::PlatformViewer, false),
];

/// Messages as the bytes that they are.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}

/// A request that names the project where the method's requests name one, and nothing else.
fn request(method: &MethodDescriptor) -> Vec<u8> {
    let mut message = DynamicMessage::new(method.input());
    let project = Value::String("vision".to_owned());
    if method.input().get_field_by_name("project").is_some() {
        message.set_field_by_name("project", project);
    } else if let Some(filter) = message.get_field_by_name_mut("filter") {
        filter.as_message_mut().unwrap().set_field_by_name("project", project);
    }
    prost::Message::encode_to_vec(&message)
}

/// Whether a call got past the front: whatever the method then said of an empty request.
async fn is_let_in(channel: &Channel, method: &MethodDescriptor, token: &str) -> Result<bool, String> {
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| error.to_string())?;
    let mut asked = Request::new(tokio_stream::once(request(method)));
    asked.set_timeout(Duration::from_secs(20));
    if !token.is_empty() {
        asked.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let answered = match grpc.streaming(asked, path.parse().unwrap(), Bytes).await {
        // Of a stream of requests the first is looked into when it comes; any other refusal of the front comes before the answer.
        Ok(response) if method.is_client_streaming() => response.into_inner().message().await.map(|_| ()),
        Ok(_) => Ok(()),
        Err(status) => Err(status),
    };
    match answered.map_err(|status| ApiError::from_status(&status, "here")) {
        Err(error) if ["TOKEN_MISSING", "TOKEN_UNKNOWN", "PROJECT_DENIED"].contains(&error.reason.as_str()) => Ok(false),
        // What the desk of principals says of an empty request is not the front's word.
        Err(error) if error.reason == "PLATFORM_DENIED" => Ok(!error.message.contains("may not call")),
        Err(error) if ["UNREACHABLE", "INTERNAL"].contains(&error.reason.as_str()) => Err(format!("{path}: {error}")),
        _ => Ok(true),
    }
}

/// The tokens of all principals of the table.
fn tokens(up: &Up) -> BTreeMap<&'static str, String> {
    let token = |args: &[&str]| up.done(&[&["token", "create", "-q"], args].concat()).trim().to_owned();
    up.done(&["project", "create", "vision"]);
    up.done(&["project", "create", "speech"]);
    let mut tokens = BTreeMap::from([("nobody", String::new()), ("unknown token", format!("fp_{}", "0".repeat(64)))]);
    for (principal, user, role) in [
        ("no role", "user:none", None),
        ("admin of another project", "user:eve", Some(("speech", "admin"))),
        ("viewer", "user:vera", Some(("vision", "viewer"))),
        ("member", "user:mel", Some(("vision", "member"))),
        ("approver", "user:april", Some(("vision", "approver"))),
        ("admin", "user:adam", Some(("vision", "admin"))),
        ("viewer everywhere", "user:eva", Some(("_", "viewer"))),
        ("disabled", "user:dan", Some(("vision", "admin"))),
    ] {
        up.done(&["user", "create", user]);
        if let Some((project, role)) = role {
            up.done(&["project", "grant", project, user, role]);
        }
        tokens.insert(principal, token(&["--for", user]));
    }
    tokens.insert("token for another project", token(&["--for", "user:adam", "--only", "speech"]));
    tokens.insert("revoked token", token(&["--for", "user:adam", "--label", "to be revoked"]));
    let listed = up.json(&["token", "list", "--for", "user:adam"]);
    let revoked = listed.as_array().unwrap().iter().find(|token| token["label"] == "to be revoked").unwrap();
    up.done(&["token", "revoke", revoked["id"].as_str().unwrap()]);
    up.done(&["user", "disable", "user:dan"]);
    for (principal, file) in [("local user", "token"), (NODE, "agent-token")] {
        tokens.insert(principal, std::fs::read_to_string(up.folder.path().join("data").join(file)).unwrap().trim().to_owned());
    }
    tokens
}

#[test]
fn every_method_is_answered_to_whom_it_is_for_and_to_nobody_else() {
    let up = Up::start(&[]);
    let tokens = tokens(&up);
    let methods: Vec<MethodDescriptor> = pool().services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
    let named = |method: &MethodDescriptor| format!("{}/{}", method.parent_service().name(), method.name());
    let known: BTreeSet<String> = methods.iter().map(named).collect();
    let expected: BTreeSet<String> = METHODS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(known, expected, "every method has a row here");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (cells, wrong) = runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("http://{}", up.addr)).unwrap().connect().await.unwrap();
        let (mut cells, mut wrong) = (0, Vec::new());
        for method in &methods {
            let (name, from, nodes) = METHODS.iter().find(|(name, ..)| *name == named(method)).unwrap();
            let expected = PRINCIPALS.iter().map(|who| (*who, from.lets_in(who))).chain([(NODE, *nodes)]);
            for (who, expected) in expected {
                cells += 1;
                match is_let_in(&channel, method, &tokens[who]).await {
                    Ok(is) if is == expected => {}
                    is => wrong.push(format!("{name} by {who}: expected {expected}, is {is:?}")),
                }
            }
        }
        (cells, wrong)
    });
    assert!(wrong.is_empty(), "{} of {cells} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(cells, METHODS.len() * (PRINCIPALS.len() + 1));
}

#[test]
fn what_the_guide_on_principals_says_works() {
    let up = Up::start(&[]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/principals.md")).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ footplate ")).collect();
    assert!(lines.len() >= 12, "{lines:?}");
    for line in lines {
        let line = line.replace("127.0.0.1:7450", &up.addr);
        let out = up.done(&crate::guide::shell_words(&line).iter().map(String::as_str).collect::<Vec<_>>());
        if line.starts_with("whoami") {
            assert!(out.contains("user:ada") && out.contains("vision  approver"), "{out}");
        }
    }
    // Ada is shut out at the end; her context is still the one that is used.
    let out = up.run(&["project", "list"]);
    assert_eq!(out.status.code(), Some(4), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stderr).contains("user:ada is disabled"), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_token_that_is_revoked_in_the_middle_of_streams_ends_them_and_loses_nothing_that_was_acknowledged() {
    let up = Up::start(&[]);
    up.done(&["project", "create", "vision"]);
    up.done(&["user", "create", "user:mel"]);
    up.done(&["project", "grant", "vision", "user:mel", "member"]);
    let secret = up.done(&["token", "create", "-q", "--for", "user:mel"]).trim().to_owned();
    let id = up.json(&["token", "list", "--for", "user:mel"])[0]["id"].as_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let target = |token: &str| footplate_api::Target::new(up.addr.as_str()).project("vision").token(token);
        let client = footplate_api::Client::connect(target(&secret)).unwrap();
        let asked = v1::CreateRunRequest { project: "vision".to_owned(), name: "r".to_owned(), ..v1::CreateRunRequest::default() };
        let run_id = client.once(client.runs().create_run(asked)).await.unwrap().run_id;
        let (send, receive) = tokio::sync::mpsc::channel(4);
        let batch = |n: u64| v1::IngestRequest {
            project: "vision".to_owned(),
            run_id: run_id.clone(),
            attempt: 0,
            rank: 0,
            session: "5".repeat(32),
            n,
            series: vec![v1::SeriesPoints {
                name: "loss".to_owned(),
                points: vec![v1::Point { step: n.cast_signed(), value: 0.5, ..v1::Point::default() }],
            }],
        };
        send.send(batch(1)).await.unwrap();
        let receive = tokio_stream::wrappers::ReceiverStream::new(receive);
        let mut acks = client.metrics().ingest(receive).await.unwrap().into_inner();
        let mut acked = acks.message().await.unwrap().unwrap().acked;
        let filter = v1::EventFilter { project: "vision".to_owned(), ..v1::EventFilter::default() };
        let watched = v1::WatchEventsRequest { filter: Some(filter), from_sequence: 1, until_sequence: 0 };
        let mut events = client.events().watch_events(watched).await.unwrap().into_inner();
        assert!(events.message().await.unwrap().is_some());

        tokio::task::block_in_place(|| up.done(&["token", "revoke", &id, "--reason", "leaked"]));
        let ended = loop {
            match tokio::time::timeout(Duration::from_secs(20), events.message()).await.expect("the stream ends") {
                Ok(event) => assert!(event.is_some(), "it ends with a word"),
                Err(status) => break ApiError::from_status(&status, "here"),
            }
        };
        assert_eq!(ended.reason, "TOKEN_UNKNOWN");
        assert!(ended.message.contains("revoked: leaked"), "{}", ended.message);
        let ended = loop {
            // Sent or not: the stream may have ended already.
            let _ = send.try_send(batch(acked + 1));
            match tokio::time::timeout(Duration::from_secs(20), acks.message()).await.expect("the stream ends") {
                Ok(Some(ack)) => acked = ack.acked,
                Ok(None) => panic!("it ends with a word"),
                Err(status) => break ApiError::from_status(&status, "here"),
            }
        };
        assert_eq!(ended.reason, "TOKEN_UNKNOWN");
        let refused =
            client.once(client.runs().list_runs(v1::ListRunsRequest { project: "vision".to_owned(), ..Default::default() })).await;
        assert_eq!(refused.unwrap_err().reason, "TOKEN_UNKNOWN");

        let token = std::fs::read_to_string(up.folder.path().join("data/token")).unwrap();
        let owner = footplate_api::Client::connect(target(token.trim())).unwrap();
        let stored = || async {
            let asked = v1::GetHistoryRequest {
                project: "vision".to_owned(),
                run_id: run_id.clone(),
                name: "loss".to_owned(),
                ..v1::GetHistoryRequest::default()
            };
            let points = owner.once(owner.metrics().get_history(asked)).await.ok()?.points;
            (points.len() as u64 >= acked).then_some(())
        };
        eventually(Duration::from_secs(20), "what was acknowledged is stored", stored).await;
    });
}

#[test]
fn a_platform_that_is_started_again_knows_its_principals_and_a_first_admin_comes_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first");
    std::fs::write(&file, "guessed").unwrap();
    let (code, told) = Up::refused(&[("bootstrap", file.display().to_string())]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("no token that is hard to guess") && told.contains("openssl rand -hex 32"), "{told}");
    let secret = "a1".repeat(32);
    std::fs::write(&file, &secret).unwrap();
    let mut up = Up::start(&[("bootstrap", file.display().to_string())]);
    assert_eq!(up.json(&["whoami", "--token", &secret])["platformRole"], "admin");
    up.done(&["user", "create", "user:ada", "--token", &secret]);
    let ada = up.done(&["token", "create", "-q", "--for", "user:ada"]).trim().to_owned();
    up.process.signal(Signal::INT).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(up.process.wait(Duration::from_secs(120))).unwrap().success());
    up.restart(&[]);
    assert_eq!(up.json(&["whoami", "--token", &ada])["principal"], "user:ada");
    assert_eq!(up.json(&["whoami", "--token", &secret])["principal"], "service:bootstrap", "the file is not needed again");
    let made = up.done(&["event", "tail", "-A", "--aggregate", "token", "-n", "100", "-o", "json"]);
    assert_eq!(made.lines().count(), 4, "three that are vouched for and Ada's, each made once:\n{made}");
    assert!(!made.contains(&secret) && !made.contains(&ada), "the ledger knows digests alone");
}
