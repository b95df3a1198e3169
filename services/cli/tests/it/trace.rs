//! One submit is one trace, through every service that it touches.

use crate::up::Up;
use footplate_testkit::Collector;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_submit_is_one_trace_through_every_service() {
    let collector = Collector::start().await.unwrap();
    let endpoint = collector.endpoint().to_owned();
    let (events, up) = tokio::task::spawn_blocking(move || {
        let up = Up::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
        let run = up.done(&["submit", "-q", "--slots", "1", "--", "true"]).trim().to_owned();
        up.done(&["run", "wait", &run]);
        let lines = up.done(&["event", "tail", "-n", "50", "--run", &run, "-o", "json"]);
        let events: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (events, up)
    })
    .await
    .unwrap();
    let types: BTreeSet<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    for expected in ["job.submitted", "job.placed", "attempt.ready", "job.launched", "attempt.exited", "job.ended", "run.sealed"] {
        assert!(types.contains(format!("footplate.{expected}.v1").as_str()), "{expected} is missing: {types:?}");
    }
    let traces: BTreeSet<&str> =
        events.iter().map(|event| event["traceparent"].as_str().and_then(|parent| parent.get(3..35)).unwrap_or("none")).collect();
    assert_eq!(traces.len(), 1, "{events:#?}");
    let trace = traces.first().unwrap().to_string();
    let in_trace = || collector.spans().into_iter().filter(|span| span.trace_id == trace).collect::<Vec<_>>();
    let attribute = |span: &footplate_testkit::SeenSpan, name: &str| {
        span.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    };
    let found = footplate_testkit::try_eventually(Duration::from_secs(60), "spans of every service in the trace", || async {
        let services: BTreeSet<String> = in_trace().iter().filter_map(|span| attribute(span, "service")).collect();
        ["scheduler", "executor", "agent", "tracker"].iter().all(|service| services.contains(*service)).then_some(())
    })
    .await;
    let seen: Vec<_> = in_trace().iter().map(|span| (span.name.clone(), attribute(span, "service"))).collect();
    assert!(found.is_ok(), "{} spans, in the trace: {seen:?}", collector.spans().len());
    drop(up);
}
