//! Who may call what: by the words of the protos, the project in the request, and the roles that a gate tells.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use footplate_api::ApiError;
use footplate_api::refusal::{Refusal, reason};
use footplate_api::server::{Changed, Gate};
use footplate_api::v1::event_service_client::EventServiceClient;
use footplate_api::v1::metric_service_client::MetricServiceClient;
use footplate_api::v1::queue_service_client::QueueServiceClient;
use footplate_api::v1::{EventFilter, IngestRequest, ListLatestRequest, ListQueuesRequest, SetQueueRequest, WatchEventsRequest};
use footplate_types::{Bearer, PrincipalId, ProjectName, Role};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::fixture::{Fixture, http, start_behind};

/// How long an end may take that has no other signal.
const SOON: Duration = Duration::from_secs(10);

/// Roles by principal and project; a principal's token is its name. One without an entry is not known.
struct Desk {
    roles: Mutex<BTreeMap<String, BTreeMap<&'static str, Role>>>,
    changes: watch::Sender<u64>,
}

impl Desk {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, BTreeMap<&'static str, Role>>)) {
        change(&mut self.roles.lock().unwrap());
        self.changes.send_modify(|version| *version += 1);
    }

    fn known(roles: &Mutex<BTreeMap<String, BTreeMap<&'static str, Role>>>, token: &str) -> Result<(), Refusal> {
        let is_known = roles.lock().unwrap().contains_key(token);
        if is_known { Ok(()) } else { Err(Refusal::new(&reason::TOKEN_UNKNOWN, "the token is not known, or was revoked")) }
    }
}

struct OfDesk(Arc<Desk>);

impl Gate for OfDesk {
    fn bearer(&self, token: Option<&str>) -> Result<Bearer, Refusal> {
        let token = token.ok_or_else(|| Refusal::new(&reason::TOKEN_MISSING, "the call carries no token"))?;
        Desk::known(&self.0.roles, token)?;
        Ok(Bearer::of(PrincipalId::parse(token)?))
    }

    fn role(&self, bearer: &Bearer, project: &ProjectName) -> Option<Role> {
        let roles = self.0.roles.lock().unwrap();
        let own = roles.get(bearer.principal.as_str())?;
        own.get(project.as_str()).max(own.get("_")).copied()
    }

    fn changed(&self, bearer: &Bearer) -> Changed {
        let (desk, mut changes, token) = (self.0.clone(), self.0.changes.subscribe(), bearer.principal.clone());
        Box::pin(async move {
            Desk::known(&desk.roles, token.as_str())?;
            changes.changed().await.map_err(|_| Refusal::new(&reason::STOPPING, "the gate is gone"))?;
            Desk::known(&desk.roles, token.as_str())
        })
    }
}

async fn guarded() -> (Fixture, Arc<Desk>, Channel) {
    let vision = |role| BTreeMap::from([("vision", role)]);
    let roles = BTreeMap::from([
        ("user:root".to_owned(), BTreeMap::from([("_", Role::Admin)])),
        ("user:ada".to_owned(), vision(Role::Member)),
        ("user:bob".to_owned(), vision(Role::Viewer)),
        ("user:nobody".to_owned(), BTreeMap::new()),
        ("node:gpu-1".to_owned(), BTreeMap::new()),
    ]);
    let desk = Arc::new(Desk { roles: Mutex::new(roles), changes: watch::Sender::new(0) });
    let server = start_behind(|parts| parts.gate(Arc::new(OfDesk(desk.clone())))).await;
    let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap();
    (server, desk, channel)
}

fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

fn word(status: &Status) -> String {
    ApiError::from_status(status, "here").reason
}

fn latest(project: &str) -> ListLatestRequest {
    ListLatestRequest { project: project.to_owned(), ..ListLatestRequest::default() }
}

fn batch(project: &str, n: u64) -> IngestRequest {
    IngestRequest { project: project.to_owned(), n, ..IngestRequest::default() }
}

#[tokio::test]
async fn a_call_takes_a_role_in_the_project_that_its_request_names() {
    let (_server, _, channel) = guarded().await;
    let mut metrics = MetricServiceClient::new(channel.clone());
    for (who, project, code, reason) in [
        ("user:bob", "vision", Code::Ok, ""),
        ("user:root", "any", Code::Ok, ""),
        ("user:bob", "speech", Code::PermissionDenied, "PROJECT_DENIED"),
        ("user:nobody", "vision", Code::PermissionDenied, "PROJECT_DENIED"),
        ("user:bob", "_", Code::PermissionDenied, "PROJECT_DENIED"),
        ("node:gpu-1", "vision", Code::PermissionDenied, "PROJECT_DENIED"),
        ("user:stranger", "vision", Code::Unauthenticated, "TOKEN_UNKNOWN"),
        ("user:bob", "", Code::InvalidArgument, "MISSING_FIELD"),
        ("user:bob", "Vision!", Code::InvalidArgument, "INVALID_FIELD"),
    ] {
        let answer = metrics.list_latest(by(who, latest(project))).await;
        let (is, told) = answer.map_or_else(|status| (status.code(), word(&status)), |_| (Code::Ok, String::new()));
        assert_eq!((is, told.as_str()), (code, reason), "{who} in {project:?}");
    }
    let refused = metrics.log_batch(by("user:bob", batch("vision", 1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("takes the role member") && refused.message().contains("the role viewer"), "{}", refused.message());
    let mut headed = by("user:bob", latest(""));
    headed.metadata_mut().insert("footplate-project", "vision".parse().unwrap());
    assert!(metrics.list_latest(headed).await.is_ok(), "a request that names none is of the header's project");
    let mut headed = by("user:bob", latest("speech"));
    headed.metadata_mut().insert("footplate-project", "vision".parse().unwrap());
    assert_eq!(metrics.list_latest(headed).await.unwrap_err().code(), Code::PermissionDenied, "the request's own word stands");
}

#[tokio::test]
async fn what_belongs_to_no_project_takes_a_role_in_the_platforms_own() {
    let (_server, _, channel) = guarded().await;
    let mut queues = QueueServiceClient::new(channel.clone());
    let refused = queues.set_queue(by("user:ada", SetQueueRequest::default())).await.unwrap_err();
    assert_eq!((refused.code(), word(&refused).as_str()), (Code::PermissionDenied, "PLATFORM_DENIED"));
    assert!(queues.set_queue(by("user:root", SetQueueRequest::default())).await.is_ok());
    assert!(queues.list_queues(by("user:nobody", ListQueuesRequest::default())).await.is_ok(), "everyone who is known");
    let refused = queues.list_queues(by("node:gpu-1", ListQueuesRequest::default())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "a node may what is said to be for nodes");
    let mut events = EventServiceClient::new(channel);
    let of = |project: &str| WatchEventsRequest {
        filter: Some(EventFilter { project: project.to_owned(), ..EventFilter::default() }),
        ..WatchEventsRequest::default()
    };
    assert!(events.watch_events(by("user:bob", of("vision"))).await.is_ok());
    let refused = events.watch_events(by("user:bob", of(""))).await.unwrap_err();
    assert_eq!(word(&refused), "PLATFORM_DENIED", "all projects' events take a role in the platform's own");
    let refused = events.watch_events(by("user:bob", WatchEventsRequest::default())).await.unwrap_err();
    assert_eq!(word(&refused), "PLATFORM_DENIED");
    assert!(events.watch_events(by("user:root", WatchEventsRequest::default())).await.is_ok());
}

#[tokio::test]
async fn the_json_door_is_held_to_the_same() {
    let (server, ..) = guarded().await;
    let post = async |who: &str, method: &str, body: &str| {
        let authorization = format!("Bearer {who}");
        let headers = [("content-type", "application/json"), ("authorization", authorization.as_str())];
        http(server.address, "POST", &format!("/footplate.api.v1.{method}"), &headers, body).await
    };
    assert_eq!(post("user:bob", "MetricService/ListLatest", r#"{"project": "vision"}"#).await.status, 200);
    let refused = post("user:bob", "MetricService/ListLatest", r#"{"project": "speech"}"#).await;
    assert_eq!((refused.status, refused.reason().as_str()), (403, "PROJECT_DENIED"));
    let refused = post("user:bob", "MetricService/LogBatch", r#"{"project": "vision"}"#).await;
    assert_eq!((refused.status, refused.reason().as_str()), (403, "PROJECT_DENIED"));
    assert_eq!(post("user:stranger", "MetricService/ListLatest", r#"{"project": "vision"}"#).await.status, 401);
}

#[tokio::test]
async fn a_stream_cannot_turn_to_another_project_after_its_first_message() {
    let (_server, _, channel) = guarded().await;
    let mut metrics = MetricServiceClient::new(channel);
    let (send, receive) = mpsc::channel(4);
    send.send(batch("vision", 1)).await.unwrap();
    let mut acks = metrics.ingest(by("user:ada", ReceiverStream::new(receive))).await.unwrap().into_inner();
    assert_eq!(acks.next().await.unwrap().unwrap().acked, 1);
    send.send(batch("", 2)).await.unwrap();
    assert_eq!(acks.next().await.unwrap().unwrap().acked, 2, "one that names none is of the same");
    send.send(batch("speech", 3)).await.unwrap();
    let ended = acks.next().await.unwrap().unwrap_err();
    assert_eq!((ended.code(), word(&ended).as_str()), (Code::PermissionDenied, "PROJECT_DENIED"));
    assert!(acks.next().await.is_none());
}

#[tokio::test]
async fn a_stream_may_be_opened_before_its_first_message_and_that_one_is_looked_into() {
    let (_server, _, channel) = guarded().await;
    let mut metrics = MetricServiceClient::new(channel);
    for (who, first) in [("user:ada", Ok(1)), ("user:bob", Err("PROJECT_DENIED"))] {
        let (send, receive) = mpsc::channel(4);
        let mut acks = metrics.ingest(by(who, ReceiverStream::new(receive))).await.unwrap().into_inner();
        send.send(batch("vision", 1)).await.unwrap();
        let told = acks.next().await.unwrap().map(|ack| ack.acked).map_err(|status| word(&status));
        assert_eq!(told, first.map_err(str::to_owned), "{who}");
    }
    let (_send, receive) = mpsc::channel(4);
    let refused = metrics.ingest(by("user:stranger", ReceiverStream::new(receive))).await.unwrap_err();
    assert_eq!(word(&refused), "TOKEN_UNKNOWN", "whoever is not known opens nothing");
}

#[tokio::test]
async fn messages_are_looked_into_however_the_bytes_are_cut() {
    let (_server, _, channel) = guarded().await;
    let mut metrics = MetricServiceClient::new(channel);
    // Many frames of HTTP/2 a message, and many messages a frame.
    let batches = (1..=40).map(|n| IngestRequest { run_id: "x".repeat(if n % 2 == 0 { 100_000 } else { 3 }), ..batch("vision", n) });
    let acks = metrics.ingest(by("user:ada", tokio_stream::iter(batches.collect::<Vec<_>>()))).await.unwrap().into_inner();
    let acked: Vec<u64> = acks.map(|ack| ack.unwrap().acked).collect().await;
    assert_eq!(acked, (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_open_ends_when_its_token_or_role_is_taken_away() {
    let (_server, desk, channel) = guarded().await;
    let mut events = EventServiceClient::new(channel.clone());
    let of = WatchEventsRequest {
        filter: Some(EventFilter { project: "vision".to_owned(), ..EventFilter::default() }),
        ..WatchEventsRequest::default()
    };
    let mut of_bob = events.watch_events(by("user:bob", of.clone())).await.unwrap().into_inner();
    let mut of_ada = events.watch_events(by("user:ada", of)).await.unwrap().into_inner();
    for stream in [&mut of_bob, &mut of_ada] {
        assert_eq!(stream.next().await.unwrap().unwrap().sequence, 1);
        assert_eq!(stream.next().await.unwrap().unwrap().sequence, 2);
    }
    let mut metrics = MetricServiceClient::new(channel);
    let (send, receive) = mpsc::channel(4);
    send.send(batch("vision", 1)).await.unwrap();
    let mut acks = metrics.ingest(by("user:ada", ReceiverStream::new(receive))).await.unwrap().into_inner();
    assert_eq!(acks.next().await.unwrap().unwrap().acked, 1);

    desk.change(|roles| drop(roles.remove("user:bob")));
    let ended = tokio::time::timeout(SOON, of_bob.next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!((ended.code(), word(&ended).as_str()), (Code::Unauthenticated, "TOKEN_UNKNOWN"));
    assert!(of_bob.next().await.is_none());
    send.send(batch("vision", 2)).await.unwrap();
    assert_eq!(acks.next().await.unwrap().unwrap().acked, 2, "others are not touched");

    desk.change(|roles| drop(roles.insert("user:ada".to_owned(), BTreeMap::from([("vision", Role::Viewer)]))));
    let ended = tokio::time::timeout(SOON, acks.next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!((ended.code(), word(&ended).as_str()), (Code::PermissionDenied, "PROJECT_DENIED"), "who may only read logs no more");
    assert!(tokio::time::timeout(Duration::from_millis(200), of_ada.next()).await.is_err(), "and reads on");
}

#[tokio::test]
async fn behind_no_gate_nobody_may_anything() {
    let server = start_behind(|parts| parts).await;
    let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap();
    let refused = QueueServiceClient::new(channel).list_queues(by("user:root", ListQueuesRequest::default())).await.unwrap_err();
    assert_eq!(word(&refused), "PLATFORM_DENIED");
}
