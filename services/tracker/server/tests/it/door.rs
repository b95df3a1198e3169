//! The same through the JSON door, as curl and the Python package speak it.

use crate::world::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One POST of JSON over HTTP/1.1: the status and the body.
async fn post(world: &World, path: &str, body: &str) -> (u16, serde_json::Value) {
    let mut connection = tokio::net::TcpStream::connect(world.tracker().address).await.unwrap();
    let request = format!(
        "POST /footplate.api.v1.{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let json = body.find('{').and_then(|from| body.rfind('}').map(|to| &body[from..=to])).unwrap_or("null");
    (status, serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

#[tokio::test]
async fn a_notebook_without_stubs_logs_a_run_from_its_start_to_its_seal() {
    let world = World::new().await;
    let (status, made) = post(&world, "RunService/CreateRun", r#"{"project":"vision","name":"curl","params":{"lr":"0.1"}}"#).await;
    assert_eq!(status, 200, "{made}");
    let run = made["runId"].as_str().unwrap();
    let session = session(3);
    let log = format!(
        r#"{{"project":"vision","runId":"{run}","session":"{session}","n":1,"series":[{{"name":"loss","points":[{{"step":1,"value":"NaN"}},{{"step":2,"value":0.5}}]}}]}}"#
    );
    let (status, acked) = post(&world, "MetricService/LogBatch", &log).await;
    assert_eq!((status, acked["acked"].as_str()), (200, Some("1")), "{acked}");
    let finish = format!(
        r#"{{"project":"vision","runId":"{run}","outcome":"OUTCOME_SUCCEEDED","sessions":[{{"session":"{session}","batches":1}}]}}"#
    );
    assert_eq!(post(&world, "RunService/FinishRun", &finish).await.0, 200);
    let (_, waited) = post(&world, "RunService/WaitRun", &format!(r#"{{"project":"vision","runId":"{run}","timeoutMs":15000}}"#)).await;
    assert_eq!((waited["done"].as_bool(), waited["run"]["state"].as_str()), (Some(true), Some("RUN_STATE_SEALED")), "{waited}");
    let history = format!(r#"{{"project":"vision","runId":"{run}","name":"loss"}}"#);
    let (_, history) = post(&world, "MetricService/GetHistory", &history).await;
    assert_eq!(history["points"][0]["value"].as_str(), Some("NaN"), "{history}");
    let (_, found) =
        post(&world, "RunService/ListRuns", r#"{"project":"vision","filter":"params.lr = 0.1 and metrics.loss <= 0.5"}"#).await;
    assert_eq!(found["runs"][0]["name"].as_str(), Some("curl"), "{found}");
}

#[tokio::test]
async fn steps_that_are_no_whole_numbers_and_values_that_are_no_numbers_are_refused_before_anything_is_written() {
    let world = World::new().await;
    let run = world.create("first").await;
    for point in [r#"{"step":50.5,"value":1}"#, r#"{"step":1,"value":true}"#, r#"{"step":1,"value":[1]}"#, r#"{"step":"x","value":1}"#] {
        let body = format!(
            r#"{{"project":"vision","runId":"{run}","session":"{}","n":1,"series":[{{"name":"good","points":[{{"step":1,"value":1}}]}},{{"name":"bad","points":[{point}]}}]}}"#,
            session(1)
        );
        let (status, refused) = post(&world, "MetricService/LogBatch", &body).await;
        assert_eq!(status, 400, "{point}: {refused}");
    }
    for point in [r#"{"step":50.0,"value":1}"#, r#"{"step":"50","value":1}"#] {
        let body = format!(
            r#"{{"project":"vision","runId":"{run}","session":"{}","n":1,"series":[{{"name":"good","points":[{point}]}}]}}"#,
            session(1)
        );
        let (status, taken) = post(&world, "MetricService/LogBatch", &body).await;
        assert_eq!(status, 200, "{point}: {taken}");
    }
    let answer = world.history(&run, "good").await;
    assert_eq!((answer.count, answer.points[0].step), (1, 50));
}
