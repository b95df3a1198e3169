//! Spans as a collector gets them. Telemetry is set up once a process, so this is one test.

use std::time::Duration;

use footplate_service::{LogFormat, Telemetry, TelemetryError, TelemetryOptions, continue_trace, current_traceparent, link_trace};
use footplate_testkit::Collector;
use tracing::Instrument;

const DEADLINE: Duration = Duration::from_secs(20);
const REMOTE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_goes_through_processes_by_its_header() {
    let collector = Collector::start().await.unwrap();
    let options = TelemetryOptions {
        service: "tracker".to_owned(),
        instance: "one".to_owned(),
        format: LogFormat::Human,
        colour: false,
        filter: "off".to_owned(),
        otlp_endpoint: Some(collector.endpoint().to_owned()),
    };
    let telemetry = Telemetry::start(&options).unwrap();
    assert!(matches!(Telemetry::start(&options), Err(TelemetryError::Already)));

    let span = tracing::info_span!(target: "footplate_test", "fold", run_id = "r1");
    continue_trace(&span, REMOTE);
    let header = async { current_traceparent() }.instrument(span).await.unwrap();
    assert!(header.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && header.ends_with("-01"), "{header}");

    let replay = tracing::info_span!(target: "footplate_test", "replay");
    link_trace(&replay, &header);
    drop(replay);
    drop(tracing::info_span!(target: "somebody_else", "noise"));
    tokio::task::spawn_blocking(move || telemetry.flush()).await.unwrap();

    let fold = collector.span("fold", DEADLINE).await;
    assert_eq!((fold.service.as_str(), fold.parent_span_id.as_str()), ("tracker", "b7ad6b7169203331"));
    assert_eq!(header, format!("00-{}-{}-01", fold.trace_id, fold.span_id));
    assert!(fold.attributes.contains(&("run_id".to_owned(), "r1".to_owned())));
    let replay = collector.span("replay", DEADLINE).await;
    assert_eq!(replay.links, [format!("{}-{}", fold.trace_id, fold.span_id)]);
    assert_ne!(replay.trace_id, fold.trace_id, "a replay does not extend the old trace");
    assert!(!collector.spans().iter().any(|span| span.name == "noise"));
}
