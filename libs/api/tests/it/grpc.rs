//! gRPC through the same port: reflection, health, deadlines on streams, the drain.

use std::time::Duration;

use footplate_api::v1::event_service_client::EventServiceClient;
use footplate_api::v1::queue_service_client::QueueServiceClient;
use footplate_api::v1::{SetQueueRequest, WatchEventsRequest};
use footplate_testkit::eventually;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

use crate::fixture::{Fixture, TOKEN, call, start};

const DEADLINE: Duration = Duration::from_secs(20);

async fn channel(server: &Fixture) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap()
}

fn authorized<T>(message: T) -> Request<T> {
    let mut metadata = MetadataMap::new();
    metadata.insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    Request::from_parts(metadata, tonic::Extensions::default(), message)
}

#[tokio::test]
async fn reflection_in_both_versions_shows_the_whole_api() {
    let server = start().await;
    let channel = channel(&server).await;

    let ask = v1::ServerReflectionRequest {
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::iter([ask])).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["footplate.api.v1.RunService", "footplate.api.v1.NodeService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }

    let symbol = "footplate.api.v1.RunService".to_owned();
    let ask = v1alpha::ServerReflectionRequest {
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(symbol)),
        ..Default::default()
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::iter([ask])).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(answer, v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_)), "{answer:?}");
}

#[tokio::test]
async fn health_follows_readiness_for_the_whole_and_each_service() {
    let server = start().await;
    let client = HealthClient::new(channel(&server).await);
    let status = async |service: &str| {
        let ask = HealthCheckRequest { service: service.to_owned() };
        client.clone().check(ask).await.map(|answer| answer.into_inner().status())
    };
    let becomes = async |wanted: ServingStatus| {
        let look = || async { status("").await.ok().filter(|status| *status == wanted) };
        eventually(DEADLINE, "health changes", look).await;
    };
    becomes(ServingStatus::Serving).await;
    assert_eq!(status("footplate.api.v1.QueueService").await.unwrap(), ServingStatus::Serving);
    assert_eq!(status("footplate.api.v1.RunService").await.unwrap_err().code(), Code::NotFound);
    let latch = server.readiness.latch("ledger");
    becomes(ServingStatus::NotServing).await;
    latch.ready();
    becomes(ServingStatus::Serving).await;
}

#[tokio::test]
async fn a_deadline_ends_a_stream_that_would_last_for_ever() {
    let server = start().await;
    let mut client = EventServiceClient::new(channel(&server).await);
    let mut request = authorized(WatchEventsRequest::default());
    // By hand: a timeout set through the client would be enforced by the client too, and prove nothing.
    request.metadata_mut().insert("grpc-timeout", "300m".parse().unwrap());
    let mut events = client.watch_events(request).await.unwrap().into_inner();
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 1);
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 2);
    let end = tokio::time::timeout(DEADLINE, events.next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(end.code(), Code::DeadlineExceeded, "{end}");
}

#[tokio::test]
async fn a_method_that_panics_leaves_the_connection_standing() {
    let server = start().await;
    let mut client = QueueServiceClient::new(channel(&server).await);
    let panic = SetQueueRequest { name: "panic".to_owned(), ..SetQueueRequest::default() };
    assert_eq!(client.set_queue(authorized(panic)).await.unwrap_err().code(), Code::Internal);
    client.set_queue(authorized(SetQueueRequest::default())).await.unwrap();
}

#[tokio::test]
async fn a_drain_lets_calls_end_and_takes_no_new_connection() {
    let mut server = start().await;
    let mut client = EventServiceClient::new(channel(&server).await);
    let mut events = client.watch_events(authorized(WatchEventsRequest::default())).await.unwrap().into_inner();
    events.next().await.unwrap().unwrap();
    server.shutdown.request();
    let refused = || async { tokio::net::TcpStream::connect(server.address).await.is_err().then_some(()) };
    eventually(DEADLINE, "new connections are refused", refused).await;
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 2, "a stream that runs goes on");
    drop((events, client));
    tokio::time::timeout(DEADLINE, &mut server.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn calls_are_counted_by_method_and_code_whatever_their_protocol() {
    let server = start().await;
    let mut client = QueueServiceClient::new(channel(&server).await);
    client.set_queue(authorized(SetQueueRequest::default())).await.unwrap();
    let closed = SetQueueRequest { name: "closed".to_owned(), ..SetQueueRequest::default() };
    client.set_queue(authorized(closed)).await.unwrap_err();
    call(server.address, "QueueService/SetQueue", r#"{"name": "closed"}"#).await;
    call(server.address, "QueueService/NoSuchMethod", "{}").await;
    let mut events = EventServiceClient::new(channel(&server).await).watch_events(authorized(WatchEventsRequest::default())).await.unwrap();
    events.get_mut().next().await.unwrap().unwrap();
    drop(events);
    let line = |service: &str, method: &str, code: &str, count: u32| {
        format!("footplate_api_calls_total{{service=\"footplate.api.v1.{service}\",method=\"{method}\",code=\"{code}\"}} {count}\n")
    };
    let wanted = [
        line("QueueService", "SetQueue", "OK", 1),
        line("QueueService", "SetQueue", "FAILED_PRECONDITION", 2),
        line("EventService", "WatchEvents", "CANCELLED", 1),
    ];
    let counted = || async {
        let shown = server.metrics.show();
        (wanted.iter().all(|line| shown.contains(line)) && !shown.contains("NoSuchMethod")).then_some(())
    };
    eventually(DEADLINE, "every call is counted", counted).await;
}
