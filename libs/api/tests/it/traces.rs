//! One trace through client and server, as a collector gets it. Telemetry is set up once a process, so this is one test.

use std::time::Duration;

use footplate_api::v1::ListQueuesRequest;
use footplate_api::{Client, Target};
use footplate_service::{LogFormat, Telemetry, TelemetryOptions};
use footplate_testkit::Collector;
use tracing::Instrument;

use crate::fixture::{TOKEN, http, start};

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_a_child_of_its_callers_span_in_both_protocols() {
    let collector = Collector::start().await.unwrap();
    let telemetry = Telemetry::start(&TelemetryOptions {
        service: "desk".to_owned(),
        instance: "one".to_owned(),
        format: LogFormat::Human,
        colour: false,
        filter: "off".to_owned(),
        otlp_endpoint: Some(collector.endpoint().to_owned()),
    })
    .unwrap();
    let server = start().await;
    let client = Client::connect(Target::new(server.address.to_string()).token(TOKEN)).unwrap();
    let asking = async { client.once(client.queues().list_queues(ListQueuesRequest::default())).await };
    let answer = asking.instrument(tracing::info_span!(target: "footplate_test", "ask")).await.unwrap();
    let carried = answer.queues[1].name.clone();

    let token = format!("Bearer {TOKEN}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", token.as_str()),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    assert_eq!(http(server.address, "POST", "/footplate.api.v1.QueueService/SetQueue", &headers, "{}").await.status, 200);
    tokio::task::spawn_blocking(move || telemetry.flush()).await.unwrap();

    let ask = collector.span("ask", DEADLINE).await;
    assert_eq!(carried, format!("00-{}-{}-01", ask.trace_id, ask.span_id));
    let of_ask = || async {
        let spans = collector.spans();
        spans.into_iter().find(|span| span.name == "footplate.api.v1.QueueService/ListQueues" && span.trace_id == ask.trace_id)
    };
    let served = footplate_testkit::eventually(DEADLINE, "the server's span arrives", of_ask).await;
    assert_eq!(served.parent_span_id, ask.span_id);
    let by_json = || async { collector.spans().into_iter().find(|span| span.trace_id == "0af7651916cd43dd8448eb211c80319c") };
    let served = footplate_testkit::eventually(DEADLINE, "the door's span arrives", by_json).await;
    assert_eq!((served.name.as_str(), served.parent_span_id.as_str()), ("footplate.api.v1.QueueService/SetQueue", "b7ad6b7169203331"));
}
