//! The JSON door.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use serde_json::json;

use footplate_api::v1::{SetQueueRequest, WriteResponse};

use crate::fixture::{TOKEN, call, http, start};

#[tokio::test]
async fn a_unary_method_answers_json_at_its_own_path() {
    let server = start().await;
    let answer = call(server.address, "QueueService/SetQueue", r#"{"name": "night", "weight": 3}"#).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"sequence": u64::MAX.to_string()})));
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
}

#[tokio::test]
async fn an_empty_body_is_an_empty_message_and_metadata_is_kept() {
    let server = start().await;
    let answer = call(server.address, "QueueService/ListQueues", "").await;
    assert_eq!((answer.status, &answer.json()["queues"][0]["name"]), (200, &json!("ada/-/false")));
    assert!(answer.head.contains("x-own: kept") && !answer.head.contains("grpc-"), "{}", answer.head);
}

#[tokio::test]
async fn json_over_http2_is_the_same() {
    let server = start().await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = http::Request::post(format!("http://{}/footplate.api.v1.QueueService/ListQueues", server.address))
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("footplate-project", "vision")
        .header("connect-timeout-ms", "60000")
        .body(Full::from("{}"))
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap(), json!({"queues": [{"name": "ada/vision/true"}]}));
}

#[tokio::test]
async fn bare_protobuf_is_taken_too() {
    let server = start().await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let body = SetQueueRequest { name: "night".to_owned(), ..SetQueueRequest::default() }.encode_to_vec();
    let request = http::Request::post(format!("http://{}/footplate.api.v1.QueueService/SetQueue", server.address))
        .header("content-type", "application/proto")
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Full::from(body))
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/proto");
    let answer = WriteResponse::decode(response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(answer.sequence, u64::MAX);
}

#[tokio::test]
async fn a_refusal_carries_its_reason_field_and_advice() {
    let server = start().await;
    let answer = call(server.address, "QueueService/SetQueue", r#"{"name": "closed"}"#).await;
    assert_eq!(answer.status, 400);
    let error = answer.json();
    assert_eq!((&error["code"], &error["message"]), (&json!("failed_precondition"), &json!("the queue closed takes no jobs")));
    let detail = &error["details"][0];
    assert_eq!((&detail["type"], &detail["debug"]["reason"]), (&json!("google.rpc.ErrorInfo"), &json!("QUEUE_CLOSED")));
    assert_eq!(detail["debug"]["metadata"]["field"], json!("name"));
    assert!(detail["debug"]["metadata"]["next"].as_str().unwrap().contains("another queue"));
    assert!(!detail["value"].as_str().unwrap().contains('='), "base64 without padding");
}

#[tokio::test]
async fn numbers_that_json_has_no_form_for_pass_as_text() {
    let server = start().await;
    let answer = call(server.address, "MetricService/GetHistory", r#"{"project": "vision"}"#).await;
    assert_eq!(
        answer.json()["points"],
        json!([{"value": "NaN", "step": "0"}, {"value": "-Infinity", "step": "0"}, {"value": 0.5, "step": "0"}])
    );
    let batch = r#"{"project": "vision", "session": "s", "series": [{"name": "推/loss", "points": [{"value": "NaN"}, {"value": "Infinity"}, {"value": 1e300}]}]}"#;
    assert_eq!(call(server.address, "MetricService/LogBatch", batch).await.json(), json!({"session": "s", "acked": "2"}));
    // Not JSON at all, though Python's default encoder writes it.
    let answer = call(server.address, "MetricService/LogBatch", r#"{"series": [{"points": [{"value": NaN}]}]}"#).await;
    assert_eq!((answer.status, answer.reason().as_str()), (400, "MALFORMED_REQUEST"));
}

#[tokio::test]
async fn bad_requests_are_told_by_name_with_the_nearest_known() {
    let server = start().await;
    let answer = call(server.address, "QueueService/SetQueue", r#"{"nmae": "night"}"#).await;
    assert_eq!((answer.status, answer.reason().as_str()), (400, "UNKNOWN_FIELD"));
    assert!(answer.json()["message"].as_str().unwrap().contains("did you mean name?"), "{answer:?}");
    let answer = call(server.address, "QueueService/SetQueue", r#"{"weight": -1}"#).await;
    assert_eq!(answer.json()["details"][0]["debug"]["metadata"]["field"], json!("weight"), "{answer:?}");
    let answer = call(server.address, "QueueService/SetQueue", "{").await;
    assert_eq!(answer.reason(), "MALFORMED_REQUEST");
    let answer = call(server.address, "QueueService/SetQueu", "{}").await;
    assert_eq!((answer.status, answer.reason().as_str()), (501, "METHOD_NOT_FOUND"));
    assert!(answer.json()["message"].as_str().unwrap().contains("did you mean /footplate.api.v1.QueueService/SetQueue?"), "{answer:?}");
    let answer = call(server.address, "RunService/GetRun", "{}").await;
    assert!(answer.json()["message"].as_str().unwrap().contains("not served at this address"), "{answer:?}");
    let answer = call(server.address, "EventService/WatchEvents", "{}").await;
    assert_eq!(answer.reason(), "STREAMING_ONLY");
}

#[tokio::test]
async fn what_is_no_call_is_answered_in_plain_http() {
    let server = start().await;
    let path = "/footplate.api.v1.QueueService/ListQueues";
    let token = format!("Bearer {TOKEN}");
    let authorized = ("authorization", token.as_str());
    let answer = http(server.address, "GET", path, &[authorized], "").await;
    assert!(answer.status == 405 && answer.head.contains("allow: post"), "{answer:?}");
    let answer = http(server.address, "POST", path, &[authorized, ("content-type", "text/plain")], "x").await;
    assert!(answer.status == 415 && answer.head.contains("accept-post: application/json"), "{answer:?}");
    let answer =
        http(server.address, "POST", path, &[authorized, ("content-type", "application/json"), ("content-encoding", "gzip")], "x").await;
    assert_eq!((answer.status, answer.reason().as_str()), (400, "NOT_SUPPORTED_YET"));
    assert_eq!(http(server.address, "GET", "/", &[], "").await.body, "the page");
    assert_eq!(http(server.address, "GET", "/nothing", &[], "").await.status, 404);
}

#[tokio::test]
async fn a_body_without_end_is_refused() {
    let server = start().await;
    let body = format!(r#"{{"name": "{}"}}"#, "x".repeat(9 << 20));
    let answer = call(server.address, "QueueService/SetQueue", &body).await;
    assert_eq!((answer.status, answer.reason().as_str()), (429, "TOO_LARGE"));
}

#[tokio::test]
async fn a_deadline_ends_the_call() {
    let server = start().await;
    let token = format!("Bearer {TOKEN}");
    let headers = [("content-type", "application/json"), ("authorization", token.as_str()), ("connect-timeout-ms", "50")];
    let call = http(server.address, "POST", "/footplate.api.v1.QueueService/SetQueue", &headers, r#"{"name": "slow"}"#);
    let answer = tokio::time::timeout(Duration::from_secs(20), call).await.unwrap();
    assert_eq!((answer.status, answer.reason().as_str()), (504, "DEADLINE_PASSED"));
}

#[tokio::test]
async fn a_method_that_panics_fails_its_own_call_only() {
    let server = start().await;
    let answer = call(server.address, "QueueService/SetQueue", r#"{"name": "panic"}"#).await;
    assert_eq!((answer.status, answer.reason().as_str()), (500, "INTERNAL"));
    assert!(!answer.body.contains("broke"), "the panic's words stay in the log");
    assert_eq!(call(server.address, "QueueService/ListQueues", "").await.status, 200);
}

#[tokio::test]
async fn callers_without_a_good_token_are_sent_away() {
    let server = start().await;
    let path = "/footplate.api.v1.QueueService/ListQueues";
    let json = ("content-type", "application/json");
    let answer = http(server.address, "POST", path, &[json], "{}").await;
    assert_eq!((answer.status, answer.reason().as_str()), (401, "TOKEN_MISSING"));
    let answer = http(server.address, "POST", path, &[json, ("authorization", "Bearer wrong")], "{}").await;
    assert_eq!((answer.status, answer.reason().as_str()), (401, "TOKEN_UNKNOWN"));
    let answer = http(server.address, "POST", "/grpc.health.v1.Health/Check", &[json], "{}").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"status": "SERVING"})), "health answers everyone");
}
