//! The typed client.

use std::time::Duration;

use footplate_api::v1::{ListQueuesRequest, SetQueueRequest, WatchEventsRequest};
use footplate_api::{Client, Kind, Refusal, Target, reason};
use footplate_service::Exit;
use tokio_stream::StreamExt;
use tonic::Request;

use crate::fixture::{TOKEN, start};

#[tokio::test]
async fn calls_carry_token_project_and_a_deadline() {
    let server = start().await;
    let client = Client::connect(Target::new(server.address.to_string()).token(TOKEN).project("vision")).unwrap();
    let queues = client.safely(|| async { client.queues().list_queues(ListQueuesRequest::default()).await }).await.unwrap().queues;
    assert_eq!(queues[0].name, "ada/vision/true");
    assert_eq!(client.project(), "vision");
}

#[tokio::test]
async fn a_stream_has_no_deadline_unless_asked() {
    let server = start().await;
    let client = Client::connect(Target::new(server.address.to_string()).token(TOKEN)).unwrap();
    let mut events = client.once(client.events().watch_events(WatchEventsRequest::default())).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 1);
}

#[tokio::test]
async fn a_refusal_becomes_an_error_with_advice_and_an_exit_code() {
    let server = start().await;
    let client = Client::connect(Target::new(server.address.to_string()).token(TOKEN)).unwrap();
    let closed = SetQueueRequest { name: "closed".to_owned(), ..SetQueueRequest::default() };
    let error = client.once(client.queues().set_queue(closed)).await.unwrap_err();
    assert_eq!((error.kind, error.reason.as_str(), error.exit()), (Kind::Conflict, "QUEUE_CLOSED", Exit::Refused));
    assert_eq!(error.field.as_deref(), Some("name"));
    assert!(error.advice.unwrap().contains("another queue"));
    let stranger = Client::connect(Target::new(server.address.to_string())).unwrap();
    let error = stranger.once(stranger.queues().list_queues(ListQueuesRequest::default())).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit()), ("TOKEN_MISSING", Exit::Refused));
}

#[tokio::test]
async fn a_platform_that_is_away_is_tried_again_and_then_told_by_its_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::connect(Target::new(address.to_string())).unwrap();
    let tries = std::cell::Cell::new(0);
    let call = || {
        tries.set(tries.get() + 1);
        async { client.queues().list_queues(ListQueuesRequest::default()).await }
    };
    let error = client.safely(call).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit(), tries.get()), ("UNREACHABLE", Exit::Unavailable, 4));
    assert!(error.message.contains(&address.to_string()) && error.message.contains("refused"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn all_tries_together_keep_the_deadline_and_tell_what_was_learnt() {
    let client = Client::connect(Target::new("127.0.0.1:1")).unwrap();
    let began = tokio::time::Instant::now();
    let slow = || async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Err::<tonic::Response<()>, _>(tonic::Status::from(Refusal::new(&reason::BROKER_AWAY, "the ledger is away")))
    };
    let error = client.safely_within(Duration::from_secs(30), slow).await.unwrap_err();
    assert_eq!((error.reason.as_str(), began.elapsed()), ("BROKER_AWAY", Duration::from_secs(30)));
    let silent = || std::future::pending::<Result<tonic::Response<()>, tonic::Status>>();
    let error = client.safely_within(Duration::from_secs(5), silent).await.unwrap_err();
    assert_eq!((error.reason.as_str(), began.elapsed()), ("DEADLINE_PASSED", Duration::from_secs(35)));
}

#[tokio::test]
async fn a_refused_call_is_not_repeated() {
    let server = start().await;
    let client = Client::connect(Target::new(server.address.to_string()).token(TOKEN)).unwrap();
    let tries = std::cell::Cell::new(0);
    let call = || {
        tries.set(tries.get() + 1);
        async { client.queues().set_queue(SetQueueRequest { name: "closed".to_owned(), ..SetQueueRequest::default() }).await }
    };
    assert!(client.safely(call).await.is_err());
    assert_eq!(tries.get(), 1);
}

#[tokio::test]
async fn a_deadline_is_told_as_such() {
    let server = start().await;
    let client = Client::connect(Target::new(server.address.to_string()).token(TOKEN)).unwrap();
    let mut request = Request::new(SetQueueRequest { name: "slow".to_owned(), ..SetQueueRequest::default() });
    request.set_timeout(Duration::from_millis(50));
    let error = client.once(client.queues().set_queue(request)).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit()), ("DEADLINE_PASSED", Exit::TimedOut));
}
