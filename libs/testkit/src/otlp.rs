//! A collector of spans (OTLP over gRPC) that a test reads back from.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::eventually;

/// A span as the collector got it. Ids are lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSpan {
    /// The service that made it.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its trace.
    pub trace_id: String,
    /// Its own id.
    pub span_id: String,
    /// Its parent's id; empty for a root.
    pub parent_span_id: String,
    /// The spans it is linked to, as `trace_id-span_id`.
    pub links: Vec<String>,
    /// Its attributes, as text.
    pub attributes: Vec<(String, String)>,
}

/// A running collector; it ends when dropped.
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    seen: Arc<Mutex<Vec<SeenSpan>>>,
    server: AbortHandle,
}

impl Collector {
    /// Starts a collector on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free loopback port")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let seen = Arc::<Mutex<Vec<SeenSpan>>>::default();
        let service = TraceServiceServer::new(Sink { seen: seen.clone() });
        let serving = tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(serving).abort_handle();
        Ok(Self { endpoint, seen, server })
    }

    /// The address to send spans to, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// All spans so far, in the order of their arrival.
    pub fn spans(&self) -> Vec<SeenSpan> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a span of this name has arrived.
    ///
    /// # Panics
    /// When `deadline` passes first.
    pub async fn span(&self, name: &str, deadline: Duration) -> SeenSpan {
        let look = || async { self.spans().into_iter().find(|span| span.name == name) };
        eventually(deadline, &format!("the span {name} arrives"), look).await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Sink {
    seen: Arc<Mutex<Vec<SeenSpan>>>,
}

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(&self, request: Request<ExportTraceServiceRequest>) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut arrived = Vec::new();
        for group in request.into_inner().resource_spans {
            let resource = group.resource.map(|resource| texts(resource.attributes)).unwrap_or_default();
            let service = resource.into_iter().find(|(key, _)| key == "service.name").map(|(_, name)| name).unwrap_or_default();
            let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            arrived.extend(spans.map(|span| seen(&service, span)));
        }
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(arrived);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn seen(service: &str, span: Span) -> SeenSpan {
    SeenSpan {
        service: service.to_owned(),
        name: span.name,
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_span_id: hex(&span.parent_span_id),
        links: span.links.iter().map(|link| format!("{}-{}", hex(&link.trace_id), hex(&link.span_id))).collect(),
        attributes: texts(span.attributes),
    }
}

fn texts(attributes: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |value: any_value::Value| match value {
        any_value::Value::StringValue(text) => text,
        other => format!("{other:?}"),
    };
    let value = |entry: KeyValue| (entry.key, entry.value.and_then(|value| value.value).map(text).unwrap_or_default());
    attributes.into_iter().map(value).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
